"""The calls that systems in the field really make, written down as data: each is made, in order, and answered.

`seeds/*_server.json` are systems that our client calls; all others call our server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops import leap
from trunkline import Client, Result
from trunkline.demo import agent
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import BASE, InProcessHttpClient
from trunkline.wire import sse
from trunkline.wire.spellings import plain_state

SEEDS = Path(__file__).parent / "seeds"
SERVERS = sorted(SEEDS.glob("*_server.json"))
CALLERS = sorted(set(SEEDS.glob("*.json")) - set(SERVERS))
LIMIT_S = 30.0


def differs(found: Any, wanted: Any, place: str = "answer") -> str:
    """Where something is not as wanted; members that are not wanted do not matter, `*` is anything but nothing."""
    if wanted == "*":
        return "" if found else f"{place} is empty"
    if isinstance(wanted, dict) and isinstance(found, dict):
        missing = [name for name in wanted if name not in found]
        inner = [differs(found[name], wanted[name], f"{place}.{name}") for name in wanted if name in found]
        return f"{place} lacks {missing}" if missing else next(filter(None, inner), "")
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        inner = [
            differs(*pair, f"{place}[{index}]") for index, pair in enumerate(zip(found, wanted, strict=True))
        ]
        return next(filter(None, inner), "")
    return "" if found == wanted else f"{place} is {found!r}, not {wanted!r}"


def filled(value: Any, kept: dict[str, str]) -> Any:
    """A value with what was kept of earlier answers in it."""
    if isinstance(value, dict):
        return {name: filled(one, kept) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, kept) for one in value]
    if isinstance(value, str):
        for name, text in kept.items():
            value = value.replace(f"${name}", text)
    return value


async def asked(line: InProcessHttpClient, call: dict[str, Any]) -> tuple[int, bytes]:
    """The answer to one call, whole."""
    verb, path, body = call.get("verb", "POST"), call.get("path", "/a2a"), call.get("body")
    if "rpc" in call:
        body = {"jsonrpc": "2.0", "id": 1, "method": call["rpc"], "params": call["params"]}
    headers = {"content-type": "application/json", **call.get("headers", {})}
    content = None if body is None else json.dumps(body).encode()
    reply = await line.open(HttpRequest(verb, BASE + path, tuple(headers.items()), content))
    try:
        return reply.status, b"".join([piece async for piece in reply.chunks()])
    finally:
        await reply.close()
        await reply.ended()


async def made(line: InProcessHttpClient, call: dict[str, Any]) -> Any:
    """What comes back, once it is what the caller polls for."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            status, body = await asked(line, call)
            assert status == call.get("status", 200), body
            if "frames" in call:
                return [json.loads(event.data) for event in sse.SseParser().feed(body)]
            answer = json.loads(body)
            if not differs(answer, call.get("until", {})):
                return answer
            await asyncio.sleep(0.01)


def unreadable(found: Any, told: dict[str, Any]) -> str:
    """What a strict client cannot decode in an answer: a state that it does not have, a part with `kind`."""
    if isinstance(found, list):
        return next(filter(None, [unreadable(one, told) for one in found]), "")
    if not isinstance(found, dict):
        return ""
    if found.get("state", told["states"][0]) not in told["states"]:
        return f"state {found['state']}"
    if any("kind" in part for part in found.get("parts", ())):
        return f"parts {found['parts']}"
    return unreadable(list(found.values()), told)


@pytest.mark.parametrize("seed", CALLERS, ids=lambda path: path.stem)
def test_what_it_asks_is_answered(seed: Path) -> None:
    told = json.loads(seed.read_text("utf-8"))
    calls = told["calls"]

    async def main() -> None:
        application = agent.asgi(store="memory:", drain_limit=0)
        kept: dict[str, str] = {}
        async with application.lifespan():
            line = InProcessHttpClient(application)
            for one in calls:
                call = filled(one, kept)
                answer = await made(line, call)
                assert not told.get("flat_parts") or not unreadable(answer, told), one["name"]
                for frame in call.get("frames", ()):
                    while differs(answer[0], frame):
                        answer.pop(0)
                        assert answer, f"{one['name']}: no frame like {frame}"
                wrong = differs(answer, call.get("answer", answer))
                assert not wrong, f"{one['name']}: {wrong}"
                for name, path in call.get("keep", {}).items():
                    value = answer
                    for member in path.split("."):
                        value = value[member]
                    kept[name] = value
            await line.close()

    asyncio.run(main())


class ScriptedServer:
    """A system that has its cards and gives its answers in order; the params that it was sent are kept."""

    def __init__(self, seed: dict[str, Any]) -> None:
        self._cards = seed["cards"]
        self._answers = {method: list(answers) for method, answers in seed["answers"].items()}
        self._known = json.dumps(seed["answers"])
        self.sent: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status, answer = 404, None
        if scope["method"] == "GET" and scope["path"] in self._cards:
            status, answer = 200, self._cards[scope["path"]]
        elif scope["method"] == "POST" and scope["path"] == "/a2a":
            envelope = json.loads((await receive())["body"])
            status, answer = 200, {"jsonrpc": "2.0", "id": envelope["id"]}
            if envelope["method"] not in self._answers:
                answer["error"] = {"code": -32601, "message": "method not found"}
            elif envelope["params"].get("id", "") not in self._known:
                # The question by which a client finds out whether this is an interface at all.
                answer["error"] = {"code": -32001, "message": "task not found"}
            else:
                answer["result"] = self._answers[envelope["method"]].pop(0)
                self.sent.append(envelope["params"])
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


@contextlib.asynccontextmanager
async def calling(server: ScriptedServer) -> AsyncIterator[Client]:
    """Our client, which was told nothing but the address."""
    line = InProcessHttpClient(server)
    async with Client(BASE, http_client=line) as client:
        yield client
    await line.close()


@pytest.mark.parametrize("seed", SERVERS, ids=lambda path: path.stem)
def test_what_it_answers_is_understood(seed: Path) -> None:
    told = json.loads(seed.read_text("utf-8"))
    server = ScriptedServer(told)

    async def main() -> None:
        async with calling(server) as client:
            for step in told["steps"]:
                before = len(server.sent)
                said = {name: step[name] for name in ("context_id", "task_id", "skill") if name in step}
                result: Result = await client.send(step["say"], **said)
                assert not (wrong := differs(server.sent[before], step["asked"], "params")), wrong
                assert result.state is not None
                assert (result.text, plain_state(result.state)) == (step["text"], step["state"])
                assert [*result.all_data] == step.get("data", [*result.all_data])

    leap(main())
