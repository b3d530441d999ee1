"""What becomes of a tenant that is disabled or deleted, on a hub in this process."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
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
from contextlib import suppress
from trunkline import Agent, Turn

agent = Agent("Local")
let_go = []

@agent.skill
async def hold(turn: Turn) -> str:
    await turn.write("begun")
    await turn.flush()
    await asyncio.Event().wait()
    return ""

@agent.skill
async def stay(turn: Turn) -> str:
    while not let_go:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
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
        assert await docs.list("acme", "ceremony")
        # Nobody keeps another's id by what cannot be read.
        await docs.put("default", "ceremony", "damaged", b"{", 0)
        # What was done for who had the id before is not what is answered to who has it next.
        again_key = {"agent": "local", "message": "go", "correlationId": "the-same"}
        first = (await said("POST", "/api/dispatch", key, **again_key))["tasks"][0]["taskId"]
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
        assert not any([await docs.list("acme", kind) for kind in ("ceremony", "of-another-room")])
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
        assert (await said("POST", "/api/dispatch", again, **again_key))["tasks"][0]["taskId"] != first

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
        # What the database cannot even be asked for is nobody's, and no fault of the store.
        wrong = [
            ("PATCH", "/admin/tenants/acme%00", {"disabled": True}, 404),
            ("DELETE", "/admin/tenants/acme%00", {}, 404),
            ("GET", "/v1/executions?tenant=acme%00", {}, 400),
            ("GET", "/api/tasks?tenant=acme%00", {}, 400),
        ]
        for verb, path, body, status in wrong:
            assert await said(near, verb, path, OPERATOR, **body) == status, path
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
        while await docs.list("acme", "of-another-room") or await docs.list("builds", "of-another-room"):  # noqa: ASYNC110
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


class Asked:
    """A hub in this process with a store of its own, and who asks it."""

    def __init__(self, workspace: Path, **flags: Any) -> None:
        (workspace / "agents.yaml").write_text(AGENTS)
        (workspace / "closing_agent.py").write_text(LOCAL)
        known = {"store": "memory:", "keys": (OPERATOR[1].decode(),), "log_level": "error"}
        self.hub = Hub(workspace, {**known, "drain_limit": 0.2, "cancel_limit": 0.2, **flags}, {})

    async def said(self, verb: str, path: str, key: tuple[bytes, bytes] = OPERATOR, **body: Any) -> Any:
        sent = msgspec.json.encode(body) if body else b""
        answer = await ask(self.hub.host, Ask("", verb, path, sent, ((b"a2a-version", b"1.0"),)), key)
        return msgspec.json.decode(answer.body) if answer.status < 300 else answer.status

    async def tenant(self, name: str) -> tuple[bytes, bytes]:
        return b"x-api-key", (await self.said("POST", "/admin/tenants", name=name))["token"].encode()

    async def begun(self, key: tuple[bytes, bytes], skill: str = "hold") -> str:
        made = await self.said("POST", "/api/dispatch", key, agent="local", skill=skill, message="go")
        return made["tasks"][0]["taskId"]

    async def until(self, task: str, tenant: str, state: str, told: bytes = b"") -> None:
        """Wait until a task is in a state, and has something in its log."""
        while True:
            shown = await self.said("GET", f"/api/tasks/{task}?tenant={tenant}")
            if shown["state"] == state and told in msgspec.json.encode(shown):
                return
            await asyncio.sleep(0.01)

    def run(self, case: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(60), self.hub.host.lifespan():
                await case()

        asyncio.run(whole())


def test_work_that_begins_after_a_tenant_is_enabled_is_not_cancelled_by_a_look_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Asked(tmp_path)

    async def case() -> None:
        key = await at.tenant("acme")
        heads = at.hub.host.store.heads
        listed, later = heads.list, asyncio.get_running_loop().create_future()

        async def list_late(tenant: str, where: Any, **rest: Any) -> Any:
            if tenant == "acme" and not later.done():
                await at.said("PATCH", "/admin/tenants/acme", disabled=False)
                later.set_result(await at.begun(key))
            return await listed(tenant, where, **rest)

        early = await at.begun(key)
        monkeypatch.setattr(heads, "list", list_late)
        await at.said("PATCH", "/admin/tenants/acme", disabled=True)
        task = await later
        other = await at.tenant("other")
        ends = await at.begun(other)
        await at.said("PATCH", "/admin/tenants/other", disabled=True)
        await at.until(ends, "other", "canceled")
        for one in (early, task):
            await at.until(one, "acme", "working")
        await at.said("PATCH", "/admin/tenants/acme", disabled=True)
        for one in (early, task):
            await at.until(one, "acme", "canceled")

    at.run(case)


def test_a_tenant_whose_work_does_not_end_keeps_no_other_open(tmp_path: Path) -> None:
    at = Asked(tmp_path, cancel_limit=50.0)

    async def case() -> None:
        stubborn, quick = await at.tenant("stubborn"), await at.tenant("quick")
        stays, ends = await at.begun(stubborn, "stay"), await at.begun(quick)
        await at.until(stays, "stubborn", "working")
        await at.said("PATCH", "/admin/tenants/stubborn", disabled=True)
        await at.until(stays, "stubborn", "working", b"cancel")
        await at.said("PATCH", "/admin/tenants/quick", disabled=True)
        try:
            async with asyncio.timeout(20):
                await at.until(ends, "quick", "canceled")
            await at.until(stays, "stubborn", "working")
        finally:
            importlib.import_module("closing_agent").let_go.append(True)

    at.run(case)


def test_a_process_that_is_late_removes_nothing_of_who_has_the_id_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "LAST_S", 0.0)
    monkeypatch.setattr(closing, "LOOK_S", 0.02)
    at = Asked(tmp_path, retention=0.1)

    async def case() -> None:
        await at.tenant("acme")
        docs, keys = at.hub.host.store.docs, at.hub.host.key_store
        listed, next_key = keys.list, asyncio.get_running_loop().create_future()

        async def list_late() -> Any:
            found = await listed()
            deleted = await docs.get("default", "tenant", "acme")
            if b"deleted_at" in deleted.body and not next_key.done():
                # Another process was faster, and an operator has given the id again.
                await docs.delete("default", "tenant", "acme")
                next_key.set_result(await at.tenant("acme"))
                await docs.put("acme", "of-another-room", "one", b"1", 0)
            return found

        await at.said("DELETE", "/admin/tenants/acme")
        monkeypatch.setattr(keys, "list", list_late)
        key = await next_key
        for _ in range(5):
            assert await at.said("GET", "/api/tasks", key) == {"items": [], "next": None}
            await asyncio.sleep(0.02)
        assert await docs.get("acme", "of-another-room", "one")
        assert await docs.get("default", "tenant", "acme")

    at.run(case)
