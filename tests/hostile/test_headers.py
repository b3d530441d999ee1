"""Row 41: what could end a header line is refused where it is written, and no header repeats a caller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ServerProcess, message
from tests.hostile.reach import HOOK
from tests.hostile.shapes import V1
from tests.hostile.sockets import flood, one, post, request, until_closed
from trunkline import Agent
from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.clock import now_ms
from trunkline.config import load
from trunkline.errors import Misuse
from trunkline.store.url import store_from_url
from trunkline.wire.card import Provider

ENDS = ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x1b[31m", "a\x7fb", "a\x85b", "a\u2028b", "a\u2029b"]
OURS = {
    b"date", b"content-type", b"content-length", b"transfer-encoding", b"allow", b"www-authenticate", b"etag", b"cache-control",
    b"vary", b"x-accel-buffering", b"connection", b"retry-after",
}  # fmt: skip


def _agent(**given: Any) -> Agent:
    agent = Agent(
        given.pop("name", "plain"),
        **{
            key: given.pop(key)
            for key in list(given)
            if key in ("description", "version", "provider", "icon_url", "documentation_url", "output_modes")
        },
    )

    @agent.skill(**given)
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    return agent


WRITES: dict[str, Callable[[str], Agent]] = {
    "name": lambda end: _agent(name=end),
    "version": lambda end: _agent(version=end),
    "icon_url": lambda end: _agent(icon_url=end),
    "documentation_url": lambda end: _agent(documentation_url=end),
    "provider": lambda end: _agent(provider=Provider(end, "https://example.org")),
    "provider's url": lambda end: _agent(provider=Provider("x", end)),
    "output modes": lambda end: _agent(output_modes=[end]),
    "skill id": lambda end: _agent(id=end),
    "skill name": lambda end: _named(end),
    "skill tag": lambda end: _agent(tags=["fine", end]),
    "skill input modes": lambda end: _agent(input_modes=[end]),
}


def _named(end: str) -> Agent:
    agent = Agent("plain")
    agent.skill(name=end)(lambda text: text)
    return agent


@pytest.mark.parametrize("end", ENDS, ids=ascii)
@pytest.mark.parametrize("where", WRITES)
def test_an_author_cannot_write_it(where: str, end: str) -> None:
    with pytest.raises(Misuse):
        WRITES[where](end).asgi(store="memory:")


@pytest.mark.parametrize("end", ["a\0b", "a\rb", "a\x1b[31m"], ids=ascii)
@pytest.mark.parametrize("where", [{"description": ""}, {"examples": [""]}], ids=["description", "example"])
def test_prose_may_have_lines_but_nothing_else(where: dict[str, Any], end: str) -> None:
    def filled(text: str) -> dict[str, Any]:
        return {name: [text] if isinstance(value, list) else text for name, value in where.items()}

    _agent(**filled("two\nlines,\tone tab, \U0001f468\u200d\U0001f469")).asgi(store="memory:")
    with pytest.raises(Misuse, match="control characters"):
        _agent(**filled(end)).asgi(store="memory:")


@pytest.mark.parametrize("end", ENDS, ids=ascii)
@pytest.mark.parametrize("setting", ["public_url", "host", "store", "allowed_hosts", "keys", "cors_origins"])
def test_a_setting_cannot_hold_it(setting: str, end: str, tmp_path: Path) -> None:
    value: Any = (
        (f"long enough {end}",)
        if setting in ("keys", "allowed_hosts")
        else (f"https://app.example{end}",)
        if setting == "cors_origins"
        else f"https://x.example/{end}"
        if setting == "public_url"
        else end
    )
    with pytest.raises(Misuse):
        _agent().asgi(**{"store": "memory:", setting: value})


def test_settings_from_a_file_are_checked_as_well(tmp_path: Path) -> None:
    file = tmp_path / "trunkline.toml"
    file.write_text('public_url = "https://x.example/\\r\\nX-Evil: 1"')
    with pytest.raises(Misuse, match="public_url"):
        load({}, file=file)


@pytest.mark.parametrize("end", ENDS, ids=ascii)
@pytest.mark.parametrize("where", ["owner", "tenant"])
def test_a_key_belongs_to_nobody_of_such_a_name(where: str, end: str) -> None:
    async def create() -> None:
        store = store_from_url("memory:")
        await store.open()
        try:
            await KeyStore(store.docs, Keyring(()), now_ms).create(**{"owner": "me", where: end})
        finally:
            await store.close()

    with pytest.raises(Misuse, match=where):
        asyncio.run(create())


CONFIGS: dict[str, Callable[[str], dict[str, Any]]] = {
    "url": lambda end: {"url": f"{HOOK}/{end}"},
    "id": lambda end: {"url": HOOK, "id": end},
    "token": lambda end: {"url": HOOK, "token": end},
    "authentication.credentials": lambda end: {
        "url": HOOK,
        "authentication": {"scheme": "Bearer", "schemes": ["Bearer"], "credentials": end},
    },
    "authentication.scheme": lambda end: {"url": HOOK, "authentication": {"scheme": end, "schemes": [end]}},
}


@pytest.mark.parametrize("where", CONFIGS)
def test_a_push_config_cannot_hold_it(target: ServerProcess, where: str) -> None:
    sent = one(target.port, post("/message:send", json.dumps({"message": message("echo x")}).encode(), V1))
    task = json.loads(sent.body)["task"]["id"]
    raws: list[bytes] = []
    for end in ENDS:
        config = CONFIGS[where](end)
        inline = {"taskPushNotificationConfig": config}
        inline03 = {"pushNotificationConfig": config}
        nested = {"taskId": task, "pushNotificationConfig": config}
        raws += [
            _rpc("CreateTaskPushNotificationConfig", {**config, "taskId": task}, V1),
            _rpc("tasks/pushNotificationConfig/set", nested),
            post(f"/tasks/{task}/pushNotificationConfigs", json.dumps(config).encode(), V1),
            post(f"/v1/tasks/{task}/pushNotificationConfigs", json.dumps({"config": nested}).encode()),
            _rpc("SendMessage", {"message": message("echo x"), "configuration": inline}, V1),
            _rpc("message/send", {"message": message("echo x", "0.3"), "configuration": inline03}),
        ]
    for raw, answer in zip(raws, flood(target.port, raws, lines=4), strict=True):
        said = json.loads(answer.body)
        assert answer.status == 400 or said["error"]["code"] == -32602, (raw, answer)
        # For what it holds, not for where it leads.
        assert b"PUSH_URL_REFUSED" not in answer.body, (raw, answer)
        assert where in answer.body.decode() and b"Evil" not in b"".join(v for _, v in answer.headers), (
            raw,
            answer,
        )


def _rpc(method: str, params: dict[str, Any], *headers: bytes) -> bytes:
    return post(
        "/a2a", json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode(), *headers
    )


CANARY = "canary7f3a"


def _noisy() -> list[bytes]:
    """Requests with the canary in every place that a caller fills."""
    noise = [
        f"{name}: {CANARY}".encode()
        for name in ("X-Request-Id", "Accept", "Accept-Language", "User-Agent", "Origin", "Referer", "Cookie", "Authorization", "X-API-Key", "If-None-Match", "A2A-Extensions", "Last-Event-ID", "Idempotency-Key", "X-Forwarded-Host", "Forwarded", "Traceparent", "Range", "Upgrade", "Access-Control-Request-Headers")
    ]  # fmt: skip
    body = json.dumps(
        {
            "message": message(
                f"echo {CANARY}", messageId=CANARY, contextId=CANARY, metadata={CANARY: CANARY}
            ),
            "tenant": "",
        }
    ).encode()
    rpc = json.dumps(
        {"jsonrpc": "2.0", "id": CANARY, "method": "SendMessage", "params": json.loads(body)}
    ).encode()
    paths = [
        f"/{CANARY}",
        f"/tasks/{CANARY}",
        f"/v1/tasks/{CANARY}:cancel",
        f"/tasks?pageToken={CANARY}",
        f"/.well-known/agent-card.json?A2A-Version={CANARY}",
        f"/{CANARY}%0d%0aX-{CANARY}:1",
        "/.well-known/agent.json",
        "/a2a",
    ]
    plain = [
        request(verb, path, None, *more)
        for path in paths
        for verb in ("GET", "POST", "HEAD")
        for more in ((), *((one,) for one in noise))
    ]
    sent = [
        post(path, whole, *more)
        for path, whole in (
            ("/a2a", rpc),
            ("/message:send", body),
            ("/message:stream", body),
            ("/v1/message:stream", body),
        )
        for more in ((), (V1,), *((one,) for one in noise))
    ]
    wrong = [post("/a2a", rpc, f"{name}: {CANARY}".encode()) for name in ("A2A-Version", "Content-Encoding")]
    return [*plain, *sent, *wrong, request("POST", "/a2a", rpc, f"Content-Type: {CANARY}".encode())]


def test_no_header_repeats_a_caller(target: ServerProcess) -> None:
    raws = _noisy()
    for raw, answer in zip(raws, flood(target.port, raws), strict=True):
        assert 200 <= answer.status < 500 or answer.status == 501, (raw, answer)
        assert {name for name, _ in answer.headers} <= OURS, (raw, answer.headers)
        assert CANARY.encode() not in b"".join(name + value for name, value in answer.headers).lower(), (
            raw,
            answer,
        )


@pytest.mark.parametrize(
    "line",
    [
        b"X: a\rb",
        b"X: a\nb",
        b"X: a\0b",
        b"X\0: a",
        b"X : a",
        b"X\x7f: a",
        b": a",
        b"X",
        b" folded: a",
        b"X: a\r\n folded",
        b"\xff: a",
    ],
    ids=repr,
)
def test_a_broken_header_line_is_no_request(target: ServerProcess, line: bytes) -> None:
    said, _ = until_closed(target.port, [request("GET", "/tasks", None, line, b"Connection: close")])
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 200 ")), said[:100]
    assert said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "key", [b"x" * 257, b"\xff\x80", b"a\tb", b"\xc2\xad"], ids=lambda key: repr(key[:10])
)
def test_an_odd_idempotency_key_is_refused(target: ServerProcess, key: bytes) -> None:
    answer = one(
        target.port,
        post(
            "/message:send",
            json.dumps({"message": message("echo x")}).encode(),
            V1,
            b"Idempotency-Key: " + key,
        ),
    )
    assert answer.status == 400
    assert b"Idempotency-Key" in answer.body


@pytest.mark.parametrize(
    "place", [b"x", b"-1", b"1e3", b"\xb2", b"9" * 30, b"1 2", b"0x1", b"+1", b"99", b""], ids=repr
)
def test_an_odd_last_event_id_is_refused(target: ServerProcess, place: bytes) -> None:
    answer = one(target.port, post("/message:send", json.dumps({"message": message("echo x")}).encode(), V1))
    task = json.loads(answer.body)["task"]["id"]
    for version in ((), (V1,)):
        refused = one(
            target.port,
            request("GET", f"/tasks/{task}:subscribe", None, b"Last-Event-ID: " + place, *version),
        )
        assert refused.status == 400 or place == b"", refused
