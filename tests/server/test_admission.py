"""The door: who is let in, how often and how many at once; what the others hear, in every dialect."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.auth.issuing import JWKS, Net, Time, key, public, token, tokens
from tests.harness import V1, Agent, ServerProcess, message, params
from tests.hostile.sockets import flood, one, post, request
from trunkline import Agent as Author
from trunkline.auth.identity import ClosedTenants, Identity
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import ANONYMOUS, CALLER, Principal, Scope
from trunkline.config import Settings
from trunkline.errors import Forbidden, TooManyRequests, Unauthenticated
from trunkline.host import Application
from trunkline.http.asgi import AsgiExchange
from trunkline.http.host_check import LOOPBACK, HostCheck
from trunkline.run.limits import Quota
from trunkline.server.admission import Admission
from trunkline.server.caller import permit
from trunkline.telemetry.traces import TraceSeen

KEYS = ("the-key-of-one", "the-key-of-another")
CALLS: dict[str, tuple[str, str, dict[str, str], Any]] = {
    "rpc": ("POST", "/a2a", V1, {"jsonrpc": "2.0", "id": 7, "method": "ListTasks", "params": {}}),
    "rpc 0.3": ("POST", "/a2a", {}, {"jsonrpc": "2.0", "id": 7, "method": "tasks/list", "params": {}}),
    "rest": ("GET", "/tasks", V1, None),
    "rest 0.3": ("GET", "/v1/tasks", {}, None),
    "alias": ("GET", "/tasks", {}, None),
    "delegate": ("GET", "/delegate/tasks/x", {}, None),
    "metrics": ("GET", "/metrics", {}, None),
    "nowhere": ("GET", "/nowhere", V1, None),
}


def _serve(asking: Callable[[httpx2.AsyncClient], Awaitable[Any]], **flags: object) -> Any:
    author = Author("door")
    author.skill(lambda text: text, id="echo")

    async def main() -> Any:
        app = Application(author, {"store": "memory:", "metrics": True, **flags})
        transport = httpx2.ASGITransport(app, client=("203.0.113.5", 999))
        async with (
            app.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await asking(client)

    return asyncio.run(main())


@pytest.mark.parametrize("call", CALLS)
def test_too_often_is_429_in_every_dialect(call: str) -> None:
    verb, path, headers, body = CALLS[call]

    async def asking(client: httpx2.AsyncClient) -> httpx2.Response:
        first = await client.request(verb, path, headers=headers, json=body)
        assert first.status_code in (200, 404), first.text
        return await client.request(verb, path, headers=headers, json=body)

    answer = _serve(asking, rate_limit=0.4, rate_burst=1)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    said = answer.json()
    if call.startswith("rpc"):
        # The body was not read, so its id is not known.
        assert said["id"] is None
        assert said["error"]["code"] == -32012
        assert said["error"]["data"][0]["reason"] == "RATE_LIMITED"
    elif "status" in said.get("error", {}):
        assert said["error"]["status"] == "RESOURCE_EXHAUSTED"
        assert said["error"]["details"][0]["reason"] == "RATE_LIMITED"
    else:
        assert "too many requests" in json.dumps(said)


def test_cards_and_probes_are_for_everybody() -> None:
    async def asking(client: httpx2.AsyncClient) -> list[int]:
        paths = ["/.well-known/agent-card.json", "/healthz", "/readyz"] * 3
        return [(await client.get(path)).status_code for path in ["/tasks", *paths]]

    assert set(_serve(asking, rate_limit=0.01, rate_burst=1)) == {200}


def test_refusals_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def asking(client: httpx2.AsyncClient) -> str:
        for _ in range(30):
            await client.get("/tasks", headers={"X-API-Key": KEYS[0]})
        page = await client.get("/metrics", headers={"X-API-Key": KEYS[1]})
        return page.text

    with caplog.at_level(logging.INFO, "trunkline.server"):
        page = _serve(asking, rate_limit=0.01, rate_burst=5, keys=KEYS)
    (line,) = [line for line in page.splitlines() if line.startswith("trunkline_refusals_total{")]
    assert 'reason="RATE_LIMITED"' in line and line.endswith(" 25.0")
    said = [record.getMessage() for record in caplog.records]
    # Not a line each: a flood of requests would be one of lines.
    assert not [line for line in said if line.startswith("request.refused")]
    (told,) = [line for line in said if line.startswith("caller.limited")]
    assert "tenant='default' caller='key-" in told and KEYS[0] not in told


class _Known:
    """Everybody is the one it was made with; a stranger has to be asked for."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal
        self.asked = 0

    def known(self, headers: object) -> Principal | None:
        return self._principal if self._principal is ANONYMOUS else None

    async def ask(self, headers: object) -> Principal:
        self.asked += 1
        return self._principal


class _Open:
    closing = False


def _exchange(client: tuple[str, int] | None, **headers: str) -> AsgiExchange:
    async def nothing(*_: Any) -> Any:
        raise AssertionError

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": "/", "client": client}
    return AsgiExchange({**scope, "headers": [(b"host", b"localhost"), *named]}, nothing, nothing)


def _door(principal: Principal = ANONYMOUS, *, trust: bool = False) -> Admission:
    quota = Quota(0.001, 1, 0, lambda: 1.0)
    return Admission(
        HostCheck(LOOPBACK),
        _Known(principal),
        _Open(),
        quota,
        Settings(trust_forwarded=trust),
        clock=lambda: 1.0,
    )


def _together(door: Admission, *exchanges: AsgiExchange) -> bool:
    """Whether all of them count as one caller."""
    refused = 0
    for exchange in exchanges:
        try:
            asyncio.run(door.admit(exchange, TraceSeen()))
        except TooManyRequests:
            refused += 1
    assert refused in (0, len(exchanges) - 1)
    return refused > 0


@pytest.mark.parametrize(
    ("places", "together"),
    [
        (("192.0.2.1", "192.0.2.1"), True),
        (("192.0.2.1", "192.0.2.2"), False),
        (("2001:db8::1", "2001:db8:0:0:ffff::2"), True),
        (("2001:db8::1", "2001:db8:0:1::1"), False),
        (("fe80::1%eth0", "fe80::2%eth0"), True),
        (("::ffff:192.0.2.1", "192.0.2.1"), True),
        (("::ffff:192.0.2.1", "::ffff:192.0.2.2"), False),
        (("", ""), True),
        (("odd:one:out", "odd:one:else"), False),
    ],
)
def test_those_without_a_name_are_told_apart_by_where_they_are(
    places: tuple[str, str], together: bool
) -> None:
    assert _together(_door(), *(_exchange((place, 5 + n)) for n, place in enumerate(places))) is together


def test_those_whose_place_nobody_knows_are_one() -> None:
    assert _together(_door(), _exchange(None), _exchange(None))


def test_those_with_a_name_are_one_wherever_they_are() -> None:
    door = _door(Principal("t", "somebody", CALLER))
    assert _together(door, _exchange(("192.0.2.1", 1)), _exchange(("192.0.2.2", 1)))


@pytest.mark.parametrize(
    ("hops", "together"),
    [
        (("1.1.1.1, 192.0.2.1", "2.2.2.2, 192.0.2.1"), True),
        (("192.0.2.1", "192.0.2.2"), False),
        (("192.0.2.1:4000", "192.0.2.1:5000"), True),
        (("[2001:db8::1]:4000", "2001:db8::2"), True),
    ],
)
def test_a_trusted_proxy_says_who_calls(hops: tuple[str, str], together: bool) -> None:
    exchanges = [_exchange(("10.0.0.1", 5), x_forwarded_for=each) for each in hops]
    assert _together(_door(trust=True), *exchanges) is together
    assert _together(_door(trust=False), *exchanges), "anybody can send such a header"


def test_what_is_held_is_given_back_once() -> None:
    quota = Quota(0, 0, 1, lambda: 1.0)
    door = Admission(HostCheck(LOOPBACK), _Known(ANONYMOUS), _Open(), quota, Settings(), clock=lambda: 1.0)
    exchange = _exchange(None)
    for _ in range(3):
        seen, refused = TraceSeen(), TraceSeen()
        asyncio.run(door.admit(exchange, seen))
        with pytest.raises(TooManyRequests):
            asyncio.run(door.admit(exchange, refused))
        door.leave(refused)
        with pytest.raises(TooManyRequests):
            asyncio.run(door.admit(exchange, refused))
        door.leave(seen)
        door.leave(seen)
    assert len(quota) == 0


def test_a_scope_is_needed() -> None:
    reader = Principal("t", "reader", frozenset({Scope.READ}))
    permit(reader, Scope.READ)
    with pytest.raises(Forbidden, match="tasks:write") as refused:
        permit(reader, Scope.WRITE)
    assert refused.value.details == {"scope": "tasks:write", "granted": "tasks:read"}


def test_one_caller_at_ten_times_its_quota_does_not_shut_out_another(tmp_path: Path) -> None:
    """Row 28, small; `make chaos` measures it."""
    flags = ("--key", KEYS[0], "--key", KEYS[1], "--set", "rate_limit=0.2", "--set", "rate_burst=40")
    flags = (*flags, "--set", "concurrency_limit=3", "--set", "drain_limit=0")
    with ServerProcess(tmp_path, "trunkline.demo:agent", *flags, store="memory:") as server:
        raws = [request("GET", "/tasks", None, f"X-API-Key: {KEYS[0]}".encode()) for _ in range(400)]
        answers = flood(server.port, raws, lines=3)
        refused = [answer for answer in answers if answer.status == 429]
        assert {answer.status for answer in answers} == {200, 429}
        assert len(refused) >= 350
        assert {int(answer.header(b"retry-after") or 0) for answer in refused} <= {1, 2, 3, 4, 5}
        other = Agent(server.base, headers={"X-API-Key": KEYS[1]})
        assert [other.send("echo hi")["status"]["state"] for _ in range(5)] == ["TASK_STATE_COMPLETED"] * 5
        _streams_count(server, other)
        _no_body_is_waited_for(server)
        other.close()
        assert server.stop() == 0


def _streams_count(server: ServerProcess, agent: Agent) -> None:
    with (
        agent.stream("SendStreamingMessage", params("hold 1")) as first,
        agent.stream("SendStreamingMessage", params("hold 2")) as second,
        agent.stream("SendStreamingMessage", params("hold 3")) as third,
    ):
        for frames in (first, second, third):
            next(iter(frames))
        refused = agent.http.get(f"{server.base}/tasks", headers=V1)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "3 may be in flight" in refused.json()["error"]["message"]
    # Who has left is noticed soon.
    deadline = time.monotonic() + 60
    while agent.http.get(f"{server.base}/tasks").status_code != 200:
        assert time.monotonic() < deadline


def _no_body_is_waited_for(server: ServerProcess) -> None:
    key = f"X-API-Key: {KEYS[0]}".encode()
    whole = post("/a2a", json.dumps({"message": message("hi")}).encode() + b" " * 900_000, key)
    head = whole[: whole.index(b"\r\n\r\n") + 4]
    flood(server.port, [request("GET", "/tasks", None, key)] * 20, lines=3)
    assert one(server.port, head, deadline_s=5).status == 429


@pytest.mark.parametrize(
    ("later_s", "is_closed", "is_read"),
    [
        (301, False, True),
        (301, True, False),
        (3700, False, False),
    ],
    ids=["no longer remembered", "of a tenant that was disabled", "ended"],
)
def test_a_body_that_comes_late_has_nothing_done_unless_its_token_is_good_still(
    later_s: float, is_closed: bool, is_read: bool
) -> None:
    now, signing, closed = Time(), key("OKP", "o1"), ClosedTenants()
    identity = Identity(Keyring([]), tokens(Net({JWKS: public(signing)}), time=now), closed=closed)
    door = Admission(HostCheck(LOOPBACK), identity, _Open(), None, Settings(), clock=now.monotonic)

    async def receive() -> Any:
        now.s += later_s
        if is_closed:
            closed.close("default")
        return {"type": "http.request", "body": b"{}"}

    async def case() -> bytes:
        exchange = _exchange(None, authorization=f"Bearer {token(signing).decode()}")
        principal = await door.admit(exchange, TraceSeen())
        late = AsgiExchange({**exchange.scope, "method": "POST"}, receive, receive)
        return await door.read_body(late, principal)

    if is_read:
        assert asyncio.run(case()) == b"{}"
    else:
        with pytest.raises(Unauthenticated):
            asyncio.run(case())
