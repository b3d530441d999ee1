"""The limit: a bare ASGI application that answers every request with a constant Task."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

TASK_ID = "01900000-0000-7000-8000-000000000001"
CONTEXT_ID = "01900000-0000-7000-8000-000000000002"
PARTS = [{"text": "echo Please say this sentence back to me, word for word, and nothing else."}]
TASK = {
    "id": TASK_ID,
    "contextId": CONTEXT_ID,
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00.000Z"},
    "artifacts": [{"artifactId": "01900000-0000-7000-8000-000000000003", "name": "echo", "parts": PARTS}],
    "history": [
        {
            "messageId": "00000000-0000-4000-8000-000000000000",
            "taskId": TASK_ID,
            "contextId": CONTEXT_ID,
            "role": "ROLE_USER",
            "parts": PARTS,
        }
    ],
}
ANSWER = json.dumps(
    {"jsonrpc": "2.0", "id": "r-000000000000", "result": {"task": TASK}}, separators=(",", ":")
).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]

Message = dict[str, Any]


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Read the whole body, as any server must, and answer."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


if __name__ == "__main__":
    uvicorn.run(
        app, port=int(sys.argv[1]), log_level="warning", access_log=False, lifespan="off", backlog=4096
    )  # fmt: skip
