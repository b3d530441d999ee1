"""Row 54: five hundred clients that all call their request 1; each gets its own answer, and all of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.harness import ServerProcess, message
from tests.hostile.shapes import V1
from tests.hostile.sockets import Line, post, read_answer

pytestmark = pytest.mark.slow

CLIENTS = 500
ROUNDS = 5
PIPELINED = 20


def _send(text: str, method: str = "SendMessage") -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message(f"echo {text}")}}
    return post("/a2a", json.dumps(body).encode(), V1)


def _get(task: str) -> bytes:
    return post(
        "/a2a",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task}}).encode(),
        V1,
    )


def test_equal_ids_are_not_mixed_up(target: ServerProcess) -> None:
    assert asyncio.run(_everybody(target.port)) == CLIENTS * ROUNDS * 2


async def _everybody(port: int) -> int:
    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(_client(port, number)) for number in range(CLIENTS)]
    return sum(client.result() for client in clients)


async def _client(port: int, number: int) -> int:
    line, right = Line(port), 0
    try:
        for turn in range(ROUNDS):
            mine = f"client {number} turn {turn} end"
            streaming = (number + turn) % 3 == 0
            answer = await line.ask(
                _send(mine, "SendStreamingMessage" if streaming else "SendMessage"), deadline_s=60
            )
            task = _only_mine(answer.body, mine, number)
            answer = await line.ask(_get(task), deadline_s=60)
            assert _only_mine(answer.body, mine, number) == task
            right += 2
    finally:
        line.close()
    return right


def _only_mine(body: bytes, mine: str, number: int) -> str:
    assert mine.encode() in body, body
    assert body.count(b"client ") == body.count(b"client %d " % number), body
    first = json.loads(body if body.startswith(b"{") else body.split(b"data: ")[1].split(b"\n")[0])
    assert first["id"] == 1
    return (first["result"].get("task") or first["result"])["id"]


def test_pipelined_requests_are_answered_in_order(target: ServerProcess) -> None:
    assert asyncio.run(_pipeline(target.port)) == [f"echo piped {place} end" for place in range(PIPELINED)]


async def _pipeline(port: int) -> list[str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(30):
        writer.write(b"".join(_send(f"piped {place} end") for place in range(PIPELINED)))
        answers = [json.loads((await read_answer(reader)).body) for _ in range(PIPELINED)]
        writer.close()
    return [answer["result"]["task"]["artifacts"][0]["parts"][0]["text"] for answer in answers]
