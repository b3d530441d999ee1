"""What becomes of a tenant that is disabled or deleted, on a hub in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.wire.routes import Ask, ask
from trunkline.auth import identity
from trunkline.clock import now_ms
from trunkline.config import Issuer
from trunkline.errors import Unreachable
from trunkline.gateway import closing
from trunkline.gateway.model.folder import FILES
from trunkline.gateway.tenants import Tenant
from trunkline.http import mounts
from trunkline.hub.hub import Hub
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient
from trunkline.run import retention

OPERATOR = (b"x-api-key", b"operators-key-1")
AGENTS = "agents:\n  - {name: local, import: 'closing_agent:agent', tenants: all}\n"
LOCAL = """
import asyncio
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill
async def hold(turn: Turn) -> str:
    await turn.write("begun")
    await turn.flush()
    await asyncio.Event().wait()
    return ""
"""


def test_a_stream_hears_of_the_cancel_and_a_deleted_tenant_leaves_only_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "LOOK_S", 0.05)
    # However slow the machine is; and no round of the retention comes before the id is free.
    monkeypatch.setattr(identity, "LAST_S", 30.0)
    monkeypatch.setattr(retention, "SHORTEST_S", 3600.0)
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "closing_agent.py").write_text(LOCAL)
    flags = {"store": "memory:", "keys": (OPERATOR[1].decode(),), "retention": 0.1, "log_level": "error"}
    hub = Hub(tmp_path, {**flags, "drain_limit": 0.2, "cancel_limit": 0.2}, {})

    async def said(verb: str, path: str, key: tuple[bytes, bytes], **body: Any) -> Any:
        sent = msgspec.json.encode(body) if body else b""
        answer = await ask(hub.host, Ask("", verb, path, sent, ((b"a2a-version", b"1.0"),)), key)
        return msgspec.json.decode(answer.body) if answer.status < 300 else answer.status

    async def case() -> None:
        key = (b"x-api-key", (await said("POST", "/admin/tenants", OPERATOR, name="acme"))["token"].encode())
        settings = {"egress_hosts": ["127.0.0.1"]}
        await said("PATCH", "/admin/tenants/acme", OPERATOR, settings=settings)
        fetcher = hub.host.fetchers.find("acme")
        assert fetcher is hub.host.fetchers.find("acme") is not hub.host.fetchers.shared
        form = {"id": "watch", "name": "Watch", "schedule": "0 3 * * *", "skill": "hold"}
        assert (await said("POST", "/api/ceremonies/create", key, **form))["id"] == "watch"
        docs = hub.host.store.docs
        await docs.put("acme", "of-another-room", "one", b"1", 0)
        assert {"ceremony", "of-another-room"} <= set(await docs.kinds("acme"))
        # Nobody keeps another's id by what cannot be read.
        await docs.put("default", "ceremony", "damaged", b"{", 0)
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
        sent = Ask(
            "", "POST", "/v1/a2a/agents/local/message:stream", msgspec.json.encode({"message": message})
        )
        stream = asyncio.create_task(ask(hub.host, sent._replace(headers=((b"a2a-version", b"1.0"),)), key))
        found: list[Any] = []
        while not found:
            found = (await said("GET", "/api/tasks?state=working", key))["items"]
            await asyncio.sleep(0.02)
        assert (await said("PATCH", "/admin/tenants/acme", OPERATOR, disabled=True))["disabled"]
        assert await said("GET", "/api/tasks", key) == 401
        # The last that a reader hears is the end of the task.
        assert b"TASK_STATE_CANCELED" in (await stream).body
        task = await said("GET", f"/api/tasks/{found[0]['taskId']}?tenant=acme", OPERATOR)
        assert task in (404,) or task["state"] == "canceled"
        # One that is made in the moment of the deletion, and not seen by it.
        keys = hub.host.key_store
        late = (b"x-api-key", (await keys.create("late", tenant="acme")).token.encode())
        listed = keys.list

        async def without_late() -> Any:
            return [one for one in await listed() if one.owner != "late"]

        with monkeypatch.context() as patched:
            patched.setattr(keys, "list", without_late)
            assert (await said("DELETE", "/admin/tenants/acme", OPERATOR))["id"] == "acme"
        while await docs.get("default", "tenant", "acme"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert await docs.kinds("acme") == []
        assert hub.host.fetchers.find("acme") is not fetcher
        rows = (await said("GET", "/admin/audit?tenant=acme", OPERATOR))["items"]
        actions = ["tenant.deleted", "tenant.changed", "tenant.changed", "tenant.created"]
        assert [one["action"] for one in rows] == actions
        # The id is free again, nothing opens with what was made before, and who has it now has none of that.
        made = await said("POST", "/admin/tenants", OPERATOR, name="acme")
        assert made["id"] == "acme"
        assert [await said("GET", "/api/tasks", one) for one in (key, late)] == [401, 401]
        again = (b"x-api-key", made["token"].encode())
        assert (await said("GET", "/api/ceremonies", again))["items"] == []
        assert (await said("GET", "/api/tasks", again))["items"] == []
        seen = [
            [
                (one["owner"], one["tenant"], one["state"])
                for one in (await said("GET", "/admin/keys", who))["keys"]
            ]
            for who in (again, OPERATOR)
        ]
        own, gone = [("admin", "acme", "active")], "acme (deleted)"
        assert seen == [own, [("admin", gone, "revoked"), ("late", gone, "revoked"), *own]]
        assert await said("GET", f"/api/tasks/{found[0]['taskId']}", again) == 404

    async def whole() -> None:
        async with asyncio.timeout(60), hub.host.lifespan():
            await case()

    asyncio.run(whole())


def test_a_reader_of_no_task_is_cut_off_without_waiting_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "WATCH_S", 3600.0)
    (tmp_path / "agents.yaml").write_text("agents: []\n")
    hub = Hub(tmp_path, {"store": "memory:", "keys": (OPERATOR[1].decode(),), "log_level": "error"}, {})

    async def case() -> None:
        made = await ask(hub.host, Ask("", "POST", "/admin/tenants", b'{"name": "acme"}'), OPERATOR)
        headers = (
            ("x-api-key", msgspec.json.decode(made.body)["token"]),
            ("accept", "text/event-stream"),
        )
        topics = HttpRequest("GET", "http://localhost/api/bus/subscribe?topic=%23", headers)
        reader = await InProcessHttpClient(hub.host).open(topics)
        assert reader.status == 200
        await ask(hub.host, Ask("", "PATCH", "/admin/tenants/acme", b'{"disabled": true}'), OPERATOR)
        with pytest.raises(Unreachable, match="ends too soon"):
            await reader.read(1 << 20)
        await reader.close()

    async def whole() -> None:
        async with asyncio.timeout(30), hub.host.lifespan():
            await case()

    asyncio.run(whole())


def test_two_replicas_close_a_tenant_together_and_count_its_requests_together(
    tmp_path: Path, postgres_url: str
) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "closing_agent.py").write_text(LOCAL)
    flags = {"store": postgres_url, "keys": (OPERATOR[1].decode(),), "log_level": "error"}
    near, far = [Hub(tmp_path, {**flags, "drain_limit": 0.2, "cancel_limit": 0.2}, {}) for _ in range(2)]
    version = ((b"a2a-version", b"1.0"),)

    async def said(hub: Hub, verb: str, path: str, key: tuple[bytes, bytes], **body: Any) -> Any:
        sent = msgspec.json.encode(body) if body else b""
        answer = await ask(hub.host, Ask("", verb, path, sent, version), key)
        return msgspec.json.decode(answer.body) if answer.status < 300 else answer.status

    async def until_far(key: tuple[bytes, bytes], *, known: bool) -> None:
        while isinstance(await said(far, "GET", "/api/tasks", key), dict) is not known:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def case() -> None:
        made = await said(near, "POST", "/admin/tenants", OPERATOR, name="acme")
        key = (b"x-api-key", made["token"].encode())
        await until_far(key, known=True)
        await said(near, "PATCH", "/admin/tenants/acme", OPERATOR, quota={"requests_per_minute": 3})
        order = {"agent": "local", "message": "go"}
        statuses = [await said(hub, "POST", "/api/dispatch", key, **order) for hub in (near, near, near)]
        assert all([isinstance(one, dict) for one in statuses])
        # The other one has let nobody in, and yet there is no place.
        shown = await said(far, "GET", "/admin/tenants/acme", OPERATOR)
        assert shown["quota"] == {"requests_per_minute": 3}
        assert await said(far, "POST", "/api/dispatch", key, **order) == 429
        task = statuses[0]["tasks"][0]["taskId"]
        stream = asyncio.create_task(
            ask(
                far.host, Ask("", "POST", f"/v1/a2a/agents/local/tasks/{task}:subscribe", b"{}", version), key
            )
        )
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        assert (await said(near, "PATCH", "/admin/tenants/acme", OPERATOR, disabled=True))["disabled"]
        asked = loop.time()
        await stream
        # A second for the stream; the rest for a machine that has much else to do.
        assert loop.time() - asked < 5.0
        await until_far(key, known=False)

    async def whole() -> None:
        async with asyncio.timeout(60), near.host.lifespan(), far.host.lifespan():
            await case()

    asyncio.run(whole())


def test_every_process_has_time_to_remove_its_files_before_the_id_of_a_tenant_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "LAST_S", 0.0)
    monkeypatch.setattr(closing, "LOOK_S", 3600.0)
    (tmp_path / "agents.yaml").write_text("agents: []\n")
    flags = {"store": "memory:", "keys": (OPERATOR[1].decode(),), "retention": 60.0, "log_level": "error"}
    hub, folder = Hub(tmp_path, flags, {}), tmp_path / FILES / "acme"

    async def case() -> None:
        docs = hub.host.store.docs
        # The second time as if another process had looked later; the last time, when all must have.
        for rev, over_s in enumerate((1, 2, 2 * closing.LOOK_S + 60)):
            folder.mkdir(parents=True)
            ended = now_ms() - round((60 + over_s) * 1000)
            gone = Tenant(id="acme", name="acme", created_at=1, disabled=True, deleted_at=ended)
            await docs.put("default", "tenant", "acme", msgspec.json.encode(gone), rev)
            await ask(hub.host, Ask("", "GET", "/admin/tenants"), OPERATOR)
            while folder.exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.01)
        while await docs.get("default", "tenant", "acme"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def whole() -> None:
        async with asyncio.timeout(60), hub.host.lifespan():
            await case()

    asyncio.run(whole())


def test_a_deleted_tenant_that_a_key_or_an_issuer_names_is_not_let_in_when_its_data_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "LAST_S", 0.0)
    monkeypatch.setattr(closing, "LOOK_S", 0.02)
    (tmp_path / "agents.yaml").write_text("agents: []\n")
    monkeypatch.setenv("THEIRS", "a-key-of-a-file")
    named = "keys: {theirs: {env: THEIRS, scopes: ['tasks:read'], tenant: acme}}\n"
    (tmp_path / "keys.yaml").write_text(named)
    issuer = Issuer(issuer="https://login.example", audience="hub", tenant="builds")
    flags = {"store": "memory:", "keys": (OPERATOR[1].decode(),), "retention": 0.01, "log_level": "error"}
    hub = Hub(tmp_path, {**flags, "issuers": (issuer,)}, {})

    async def opens() -> bool:
        theirs = (b"x-api-key", b"a-key-of-a-file")
        return (await ask(hub.host, Ask("", "GET", "/api/tasks"), theirs)).status == 200

    async def case() -> None:
        docs = hub.host.store.docs
        for tenant in ("acme", "builds", "other"):
            await ask(
                hub.host, Ask("", "POST", "/admin/tenants", b'{"name": "%b"}' % tenant.encode()), OPERATOR
            )
            await docs.put(tenant, "of-another-room", "one", b"1", 0)
        assert await opens()
        for tenant in ("acme", "builds", "other"):
            await ask(hub.host, Ask("", "DELETE", f"/admin/tenants/{tenant}"), OPERATOR)
        while await docs.get("default", "tenant", "other"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while await docs.kinds("acme") or await docs.kinds("builds"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not await opens()
        (tmp_path / "keys.yaml").write_text("keys: {}\n")
        while await docs.get("default", "tenant", "acme"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await docs.get("default", "tenant", "builds")

    async def whole() -> None:
        async with asyncio.timeout(60), hub.host.lifespan():
            await case()

    asyncio.run(whole())
