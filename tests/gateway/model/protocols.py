"""What servers of models stream: as OpenAI (chat completions, responses), Anthropic and four others do."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

HEAD = {"id": "chatcmpl-1", "created": 1, "model": "small"}


@dataclass
class Reply:
    """One answer: text in pieces, calls of tools, or an error; a stream stops at `hold` after its first piece."""

    pieces: Sequence[str] = ()
    calls: Sequence[tuple[str, Any]] = ()
    status: int = 200
    error: dict[str, Any] = field(default_factory=dict)
    location: str = ""
    hold: threading.Event | None = None
    # Whether all calls have the same id.
    one_id: bool = False
    # In the place of all that: what comes over the wire.
    raw: Sequence[bytes] = ()


def events(path: str, reply: Reply, asked: int) -> Iterator[bytes]:
    """The events of an answer by the protocol of a path; `asked` makes the ids of calls different."""
    path = path.partition("?")[0]
    if reply.raw:
        yield from reply.raw
    elif path.endswith("/messages"):
        yield from _named(_messages(reply, asked))
    elif path.endswith("/responses"):
        yield from _named(_responses(reply, asked))
    elif ":streamGenerateContent" in path:
        for one in _contents(reply):
            yield f"data: {json.dumps(one)}\r\n\r\n".encode()
    elif path.endswith("/v2/chat"):
        yield from _named(_chat_v2(reply, asked))
    elif path.endswith("/converse-stream"):
        for kind, one in _converse(reply, asked):
            yield _binary_event(kind, json.dumps(one).encode())
    else:
        for one in _chat(reply, asked):
            yield f"data: {json.dumps(one)}\n\n".encode()
        yield b"data: [DONE]\n\n"


def _named(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for one in rows:
        yield f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()


def _calls(reply: Reply, asked: int) -> list[tuple[str, str, str]]:
    return [
        (
            f"call_{asked}_{0 if reply.one_id else n}",
            name,
            given if isinstance(given, str) else json.dumps(given),
        )
        for n, (name, given) in enumerate(reply.calls)
    ]


def _chat(reply: Reply, asked: int) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}

    for piece in reply.pieces:
        yield chunk({"content": piece})
    for n, (call_id, name, given) in enumerate(_calls(reply, asked)):
        call = {
            "index": n, "id": call_id, "type": "function", "function": {"name": name, "arguments": given},
        }  # fmt: skip
        yield chunk({"tool_calls": [call]})
    yield chunk({}, "tool_calls" if reply.calls else "stop")
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    last = {**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": usage}
    # Groq reads them elsewhere.
    yield {**last, "x_groq": {"id": "req_1", "usage": usage}}


def _contents(reply: Reply) -> Iterator[dict[str, Any]]:
    """As Gemini does."""
    parts = [{"text": one} for one in reply.pieces]
    parts += [{"functionCall": {"name": name, "args": given}} for name, given in reply.calls]
    for part in parts:
        yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
    end = {"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP", "index": 0}
    yield {"candidates": [end], "usageMetadata": usage, "modelVersion": "small"}


def _chat_v2(reply: Reply, asked: int) -> Iterator[dict[str, Any]]:
    """As Cohere does."""
    yield {"type": "message-start", "id": "1", "delta": {"message": {"role": "assistant"}}}
    if reply.pieces:
        yield {
            "type": "content-start",
            "index": 0,
            "delta": {"message": {"content": {"type": "text", "text": ""}}},
        }
        for piece in reply.pieces:
            yield {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": piece}}}}
        yield {"type": "content-end", "index": 0}
    for n, (call_id, name, given) in enumerate(_calls(reply, asked)):
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        piece = {"function": {"arguments": given}}
        yield {"type": "tool-call-start", "index": n, "delta": {"message": {"tool_calls": call}}}
        yield {"type": "tool-call-delta", "index": n, "delta": {"message": {"tool_calls": piece}}}
        yield {"type": "tool-call-end", "index": n}
    tokens = {"input_tokens": 100, "output_tokens": 10}
    finish = "TOOL_CALL" if reply.calls else "COMPLETE"
    usage = {"billed_units": tokens, "tokens": tokens}
    yield {"type": "message-end", "id": "1", "delta": {"finish_reason": finish, "usage": usage}}


def _converse(reply: Reply, asked: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """As Bedrock does."""
    yield "messageStart", {"role": "assistant"}
    at = 0
    for piece in reply.pieces:
        yield "contentBlockDelta", {"contentBlockIndex": at, "delta": {"text": piece}}
    if reply.pieces:
        yield "contentBlockStop", {"contentBlockIndex": at}
        at += 1
    for call_id, name, given in _calls(reply, asked):
        start = {"toolUse": {"toolUseId": call_id, "name": name}}
        yield "contentBlockStart", {"contentBlockIndex": at, "start": start}
        yield "contentBlockDelta", {"contentBlockIndex": at, "delta": {"toolUse": {"input": given}}}
        yield "contentBlockStop", {"contentBlockIndex": at}
        at += 1
    yield "messageStop", {"stopReason": "tool_use" if reply.calls else "end_turn"}
    usage = {"inputTokens": 100, "outputTokens": 10, "totalTokens": 110}
    yield "metadata", {"usage": usage, "metrics": {"latencyMs": 1}}


def _binary_event(kind: str, payload: bytes) -> bytes:
    """An event of `vnd.amazon.eventstream`: lengths, headers, payload, each part with its checksum."""
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        [
            bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
            for name, value in named.items()
        ]
    )
    lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def _messages(reply: Reply, asked: int) -> Iterator[dict[str, Any]]:
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "small", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 100, "output_tokens": 1},
    }  # fmt: skip
    yield {"type": "message_start", "message": message}
    at = 0
    if reply.pieces:
        yield {"type": "content_block_start", "index": at, "content_block": {"type": "text", "text": ""}}
        for piece in reply.pieces:
            delta = {"type": "text_delta", "text": piece}
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
        at += 1
    for call_id, name, given in _calls(reply, asked):
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        yield {"type": "content_block_start", "index": at, "content_block": block}
        delta = {"type": "input_json_delta", "partial_json": given}
        yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
        at += 1
    stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 10}}
    yield {"type": "message_stop"}


def _responses(reply: Reply, asked: int) -> Iterator[dict[str, Any]]:
    def whole(status: str, **more: Any) -> dict[str, Any]:
        return {
            "id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "small",
            "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **more,
        }  # fmt: skip

    numbers = iter(range(1000))
    rows: list[dict[str, Any]] = [{"type": "response.created", "response": whole("in_progress")}]
    at = 0
    if reply.pieces:
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        place = {"item_id": "msg_1", "output_index": at, "content_index": 0}
        rows.append({"type": "response.output_item.added", "output_index": at, "item": item})
        rows.append({"type": "response.content_part.added", **place, "part": part})
        rows += [
            {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
            for piece in reply.pieces
        ]
        said = {**part, "text": "".join(reply.pieces)}
        done = {**item, "status": "completed", "content": [said]}
        rows.append({"type": "response.output_text.done", **place, "text": said["text"], "logprobs": []})
        rows.append({"type": "response.content_part.done", **place, "part": said})
        rows.append({"type": "response.output_item.done", "output_index": at, "item": done})
        at += 1
    for call_id, name, given in _calls(reply, asked):
        item = {
            "id": f"fc_{call_id}", "type": "function_call", "status": "in_progress", "call_id": call_id,
            "name": name, "arguments": "",
        }  # fmt: skip
        place = {"item_id": item["id"], "output_index": at}
        done = {**item, "status": "completed", "arguments": given}
        rows += [
            {"type": "response.output_item.added", "output_index": at, "item": item},
            {"type": "response.function_call_arguments.delta", **place, "delta": given},
            {"type": "response.function_call_arguments.done", **place, "arguments": given, "name": name},
            {"type": "response.output_item.done", "output_index": at, "item": done},
        ]
        at += 1
    usage = {
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 110,
    }  # fmt: skip
    rows.append({"type": "response.completed", "response": whole("completed", usage=usage)})
    for row in rows:
        yield {**row, "sequence_number": next(numbers)}
