"""A model of a script, as pydantic-ai has models: `model: script:FILE`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import msgspec
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from trunkline.mock.model_script import ModelReply, ModelScript, ModelTurn, load_model_script, reply_to


def scripted_model(file: Path) -> FunctionModel:
    """Return the model that answers by the script in a file.

    Raises:
        Misuse: the file is missing or invalid.
    """
    script = load_model_script(file)

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        reply = await _reply(script, messages, file)
        calls = [ToolCallPart(call.tool, call.arguments) for call in reply.calls]
        return ModelResponse(parts=[*[TextPart(chunk) for chunk in reply.chunks], *calls])

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncGenerator[str | DeltaToolCalls, None]:
        del info
        reply = await _reply(script, messages, file)
        for chunk in reply.chunks:
            yield chunk
        for place, call in enumerate(reply.calls):
            yield {place: DeltaToolCall(call.tool, msgspec.json.encode(call.arguments).decode())}

    return FunctionModel(respond, stream_function=stream, model_name=f"script:{file.name}")


async def _reply(script: ModelScript, messages: Sequence[ModelMessage], file: Path) -> ModelReply:
    reply = reply_to(script, _turn_of(messages))
    await asyncio.sleep(reply.delay)
    if reply.error:
        raise ModelHTTPError(reply.error, f"script:{file.name}")
    return reply


def _turn_of(messages: Sequence[ModelMessage]) -> ModelTurn:
    """Return the newest message, and the tool that it is a result of."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    said = [part for part in parts if isinstance(part, UserPromptPart | ToolReturnPart)]
    turn = sum(isinstance(part, UserPromptPart) for part in said)
    match said[-1] if said else None:
        case ToolReturnPart() as result:
            return ModelTurn(result.model_response_str(), result.tool_name, turn)
        case UserPromptPart() as prompt:
            return ModelTurn(_text_of(prompt), "", turn)
        case None:
            return ModelTurn("", "", turn)


def _text_of(prompt: UserPromptPart) -> str:
    if isinstance(prompt.content, str):
        return prompt.content
    return "".join([part for part in prompt.content if isinstance(part, str)])
