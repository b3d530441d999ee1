"""A scripted model behind the chat completions API of OpenAI, for `trunkline mock --openai`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.clock import now_ms, random_bits
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.mock.exchange import MockAnswer, MockExchange, MockStream, serve_lifespan
from trunkline.mock.model_script import ModelReply, ModelScript, ModelTurn, count_tokens, reply_to

# The name under which `GET /v1/models` lists the script. Requests may name any model.
MODEL = "script"
_ERRORS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class _CalledFunction(Struct, frozen=True):
    name: str = ""


class _EarlierCall(Struct, frozen=True):
    id: str = ""
    function: _CalledFunction = _CalledFunction()


class _RequestedPart(Struct, frozen=True):
    text: str = ""


class _RequestedMessage(Struct, frozen=True):
    role: str
    content: str | list[_RequestedPart] | None = None
    tool_calls: list[_EarlierCall] | None = None
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """The texts of the message, joined."""
        if isinstance(self.content, list):
            return "".join([part.text for part in self.content])
        return self.content or ""


class _RequestedUsage(Struct, frozen=True):
    include_usage: bool = False


class _CompletionRequest(Struct, frozen=True):
    messages: list[_RequestedMessage]
    model: str = MODEL
    stream: bool | None = None
    stream_options: _RequestedUsage | None = None


class ModelMock:
    """An ASGI application that answers chat completions by a script."""

    def __init__(self, script: ModelScript) -> None:
        self._script = script

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send, _close)
        elif scope["type"] == "http":
            exchange = MockExchange(scope, receive, send)
            await exchange.deliver(await self._answer(exchange), ())

    async def _answer(self, exchange: MockExchange) -> MockAnswer | MockStream:
        match exchange.method, exchange.path.removeprefix("/v1"):
            case "GET", "/models":
                return _encoded({"object": "list", "data": [_model(MODEL)]})
            case "GET", path if path.startswith("/models/"):
                return _encoded(_model(path.removeprefix("/models/")))
            case "POST", "/chat/completions":
                pass
            case method, path:
                return _error(404, f"unknown route: {method} {path}")
        try:
            request = msgspec.json.decode(await exchange.body(), type=_CompletionRequest)
        except msgspec.DecodeError as error:
            return _error(400, f"invalid request: {error}")
        reply = reply_to(self._script, _turn_of(request.messages))
        await asyncio.sleep(reply.delay)
        if reply.error:
            return _error(reply.error, f"the script answers with status {reply.error}")
        about = {
            "id": f"chatcmpl-{random_bits(64):016x}",
            "created": now_ms() // 1000,
            "model": request.model,
        }
        return _stream(request, reply, about) if request.stream else _whole(request, reply, about)


async def _close() -> None:
    pass


def _turn_of(messages: Sequence[_RequestedMessage]) -> ModelTurn:
    """Return the newest message, and the tool that it is a result of."""
    newest = next((one for one in reversed(messages) if one.role in ("user", "tool")), None)
    turn = sum(one.role == "user" for one in messages)
    if newest is None or newest.role == "user":
        return ModelTurn(newest.text if newest else "", "", turn)
    calls = [call for one in messages for call in one.tool_calls or ()]
    tool = next((call.function.name for call in calls if call.id == newest.tool_call_id), "")
    return ModelTurn(newest.text, tool, turn)


def _usage(request: _CompletionRequest, reply: ModelReply) -> dict[str, int]:
    prompt = sum(count_tokens(one.text) for one in request.messages)
    completion = sum(count_tokens(chunk) for chunk in reply.chunks)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _calls(reply: ModelReply) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "id": f"call_{random_bits(64):016x}",
            "type": "function",
            "function": {"name": call.tool, "arguments": msgspec.json.encode(call.arguments).decode()},
        }
        for index, call in enumerate(reply.calls)
    ]


def _whole(request: _CompletionRequest, reply: ModelReply, about: dict[str, Any]) -> MockAnswer:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.chunks) or None}
    if reply.calls:
        message["tool_calls"] = _calls(reply)
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return _encoded(
        {**about, "object": "chat.completion", "choices": [choice], "usage": _usage(request, reply)}
    )


async def _stream(
    request: _CompletionRequest, reply: ModelReply, about: dict[str, Any]
) -> AsyncGenerator[bytes, None]:
    def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _frame({**about, "object": "chat.completion.chunk", "choices": [choice]})

    yield frame({"role": "assistant", "content": ""})
    for chunk in reply.chunks:
        yield frame({"content": chunk})
    if reply.calls:
        yield frame({"tool_calls": _calls(reply)})
    yield frame({}, _finish(reply))
    if request.stream_options is not None and request.stream_options.include_usage:
        usage = _usage(request, reply)
        yield _frame({**about, "object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _finish(reply: ModelReply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _frame(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "trunkline"}


def _encoded(value: dict[str, Any]) -> MockAnswer:
    return MockAnswer(msgspec.json.encode(value))


def _error(status: int, message: str) -> MockAnswer:
    kind = _ERRORS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": None, "code": None}
    return MockAnswer(msgspec.json.encode({"error": error}), status)
