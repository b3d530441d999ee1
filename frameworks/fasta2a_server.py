"""pydantic-ai: an agent whose model is made up, served by fasta2a."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from trial import pieces


def _asked(messages: list[ModelMessage]) -> str:
    return str(messages[-1].parts[-1].content)


async def whole(messages: list[ModelMessage], info: Any) -> ModelResponse:
    return ModelResponse(parts=[TextPart("".join([piece async for piece in pieces(_asked(messages))]))])


async def streamed(messages: list[ModelMessage], info: Any) -> AsyncIterator[str]:
    async for piece in pieces(_asked(messages)):
        yield piece


agent = Agent(FunctionModel(whole, stream_function=streamed), name="counter")
app = agent_to_a2a(agent, url=f"http://127.0.0.1:{sys.argv[1]}")
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
