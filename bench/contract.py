"""One careful pass over an agent before it is timed: every answer parsed, every rule checked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bench.generator import ECHO, HOST, Endpoint


class Broken(Exception):
    """The agent does not do what the scenarios take for granted."""


async def check(endpoint: Endpoint, *, waits: bool = True, chunks: int = 5) -> None:
    """Raises `Broken` when echo, get or a stream is not as agreed."""
    task = await finished(endpoint, await send(endpoint, ECHO), waits=waits)
    _expect(_texts(task.get("artifacts", [])) == [ECHO], "the echo comes back as one artifact", task)
    _expect(task["history"][0]["parts"][0]["text"] == ECHO, "the question is in the history", task)
    events = await stream(endpoint, f"chunks {chunks}")
    _expect("task" in events[0], "a stream starts with the Task", events[0])
    updates = [e["artifactUpdate"] for e in events if "artifactUpdate" in e]
    texts = _texts(u["artifact"] for u in updates)
    wanted = [f"chunk-{n:06d} lorem ipsum dolor sit amet" for n in range(chunks)]
    _expect(all(len(u["artifact"]["parts"]) == 1 for u in updates), "one chunk in one event", updates)
    _expect(texts == wanted, f"{chunks} chunks in order", texts)
    _expect([bool(u.get("append")) for u in updates] == [n > 0 for n in range(chunks)], "append", updates)
    _expect([bool(u.get("lastChunk")) for u in updates][-1], "lastChunk on the last", updates[-1])
    status = events[-1].get("statusUpdate", {}).get("status", {}).get("state")
    _expect(status == "TASK_STATE_COMPLETED", "a stream ends with completed", events[-1])


async def send(endpoint: Endpoint, text: str) -> dict[str, Any]:
    """The Task that one blocking send answers."""
    return await answered(endpoint, endpoint.send(text, close=True)())


async def answered(endpoint: Endpoint, request: bytes) -> dict[str, Any]:
    """The Task that a send answers."""
    answer = json.loads(await exchange(endpoint, request))
    _expect("task" in answer.get("result", {}), "a send answers a Task", answer)
    return answer["result"]["task"]


async def finished(endpoint: Endpoint, task: dict[str, Any], *, waits: bool) -> dict[str, Any]:
    """The same task, completed; asked for again only where a send does not wait."""
    for _ in range(1 if waits else 500):
        if task["status"]["state"] == "TASK_STATE_COMPLETED":
            return task
        await asyncio.sleep(0.01)
        request = endpoint.request("GetTask", {"id": task["id"]}, close=True)
        task = json.loads(await exchange(endpoint, request))["result"]
    raise Broken(f"the task is not completed: {task}")


async def stream(endpoint: Endpoint, text: str) -> list[dict[str, Any]]:
    """Every event of one streaming send."""
    body = await exchange(endpoint, endpoint.send(text, stream=True, close=True)())
    lines = body.decode().replace("\r\n", "\n").split("\n")
    return [json.loads(line[5:])["result"] for line in lines if line.startswith("data:")]


async def exchange(endpoint: Endpoint, request: bytes, limit: float = 60) -> bytes:
    """The body of one answer, over a connection of its own."""
    async with asyncio.timeout(limit):
        reader, writer = await asyncio.open_connection(HOST, endpoint.port)
        try:
            writer.write(request)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    _expect(b" 200 " in head[:14], "status 200", head)
    return _joined(body) if b"chunked" in head.lower() else body


def _joined(body: bytes) -> bytes:
    """The payload of a chunked body."""
    whole: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole.append(body[:length])
        body = body[length + 2 :]
    return b"".join(whole)


def _texts(artifacts: Any) -> list[str]:
    return [part["text"] for artifact in artifacts for part in artifact["parts"]]


def _expect(holds: bool, rule: str, found: object) -> None:
    if not holds:
        raise Broken(f"{rule}; found {str(found)[:400]}")
