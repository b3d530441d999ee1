"""One damaged document of any kind: the hub starts, all others are served, and the document can be repaired."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.wire.routes import Ask, ask
from tests.flow.surfaces import workflow
from trunkline.gateway.documents import DOCUMENT_KINDS
from trunkline.hub.hub import Hub
from trunkline.hub.workspace import STORE
from trunkline.store.url import store_from_url

OPERATOR = (b"x-api-key", b"operators-key-1")
AGENTS = "agents:\n  - {name: local, import: 'damaged_agent:agent', tenants: all}\n"
LOCAL = """
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill
async def answer(turn: Turn) -> str:
    return "here"

@agent.skill
async def hold(turn: Turn) -> str:
    await turn.ask("Go on?")
    return "done"
"""
# Documents that the hub of this test has no cause to write, by kind: the tenant and the ID.
WRITTEN_HERE = {
    "ended-session": ("acme", "0123456789abcdef"),
    "fleet-alert": ("acme", "failure-rate"),
    "model.notes": ("acme", "scout"),
    "model.todos": ("acme", "scout"),
    "store": ("default", "pruned"),
    "task-update": ("acme", "nobody"),
}
# Kinds that a hub reads only when it needs one of them.
READ_LATER = WRITTEN_HERE.keys() - {"ended-session"} | {"workflow", "workflow.id"}
DAMAGE = b"\xff{"
Key = tuple[bytes, bytes]
Said = Callable[..., Awaitable[Any]]


class Desk:
    """A workspace and the requests to its hub, each run of which is in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys: dict[str, Key] = {}

    def run(self, case: Callable[[Said, Hub], Awaitable[None]]) -> None:
        """Start the hub, do something with it, and stop it."""
        flags = {"keys": (OPERATOR[1].decode(),), "drain_limit": 0.2, "cancel_limit": 0.2, "push": True}
        hub = Hub(self.folder, flags, {})

        async def said(verb: str, path: str, key: Key = OPERATOR, **body: Any) -> Any:
            sent = msgspec.json.encode(body) if body else b""
            answer = await ask(hub.host, Ask("", verb, path, sent, ((b"a2a-version", b"1.0"),)), key)
            return msgspec.json.decode(answer.body) if answer.status < 300 else answer.status

        async def whole() -> None:
            async with asyncio.timeout(60), hub.host.lifespan():
                await case(said, hub)

        asyncio.run(whole())

    def execute(self, statement: str, *values: object) -> list[Any]:
        """Execute a statement on the store while no hub has it."""
        with closing(sqlite3.connect(self.folder / STORE)) as database, database:
            return database.execute(statement, values).fetchall()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A workspace whose hub has worked for two tenants and has documents of most kinds."""
    desk = Desk(tmp_path_factory.mktemp("damaged"))
    (desk.folder / "agents.yaml").write_text(AGENTS)
    (desk.folder / "damaged_agent.py").write_text(LOCAL)
    (desk.folder / "hub.yaml").write_text("tenant_settings: {egress_hosts: [localhost]}\n")

    async def work(said: Said, hub: Hub) -> None:
        for name in ("acme", "open"):
            made = await said("POST", "/admin/tenants", name=name)
            desk.keys[name] = (b"x-api-key", made["token"].encode())
        key = desk.keys["acme"]
        assert await said("POST", "/api/agents", key, name="far", url="http://localhost:9")
        assert await said("POST", "/api/agents/far/disable", key)
        daily = {"id": "daily", "name": "Daily", "schedule": "0 3 * * *", "skill": "answer"}
        assert await said("POST", "/api/ceremonies/create", key, **daily)
        assert await said("POST", "/v1/workflows", OPERATOR, workflow_id="echo", definition=workflow())
        for skill in ("answer", "hold"):
            order = {"agent": "local", "skill": skill, "message": "go", "wait": 30}
            assert await said("POST", "/api/dispatch", key, **order)
        assert (await said("GET", "/api/fleet/health", key))["agents"]
        docs = hub.host.store.docs
        for kind, tenant in (("notice", "acme"), ("journal", "acme"), ("tail-cursor", "default")):
            while not await docs.list(tenant, kind):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    desk.run(work)
    kinds = {kind for (kind,) in desk.execute("SELECT DISTINCT kind FROM docs")}
    assert kinds | WRITTEN_HERE.keys() == DOCUMENT_KINDS.keys(), "each kind is damaged by a test"
    return desk


@pytest.fixture
def desk(first: Desk, tmp_path: Path) -> Desk:
    """A copy of that workspace."""
    made = Desk(tmp_path / "hub")
    shutil.copytree(first.folder, made.folder)
    made.keys = first.keys
    return made


def damage(desk: Desk, kind: str) -> list[tuple[str, str]]:
    """Damage the documents of a kind that belong to acme or to all; returns their tenants and IDs."""
    if kind in WRITTEN_HERE:
        tenant, doc_id = WRITTEN_HERE[kind]
        desk.execute(
            "INSERT INTO docs (tenant, kind, id, rev, body, changed) VALUES (?, ?, ?, 1, ?, 1)",
            tenant, kind, doc_id, DAMAGE,
        )  # fmt: skip
        return [(tenant, doc_id)]
    # Of the tenants, and of their keys, those of the other one stay.
    other = "%open%" if kind in ("tenant", "api-key") else ""
    return desk.execute(
        "UPDATE docs SET body = ?, rev = rev + 1 WHERE kind = ? AND gone_at IS NULL "
        "AND CAST(body AS text) NOT LIKE ? RETURNING tenant, id",
        DAMAGE, kind, other,
    )  # fmt: skip


@pytest.mark.parametrize("kind", sorted(DOCUMENT_KINDS))
def test_hub_starts_and_serves_with_a_damaged_document(
    desk: Desk, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = damage(desk, kind)
    assert damaged

    async def work(said: Said, _: Hub) -> None:
        listed = (await said("GET", "/admin/documents"))["documents"]
        assert {one["kind"] for one in listed} <= {kind}
        order = {"agent": "local", "skill": "answer", "message": "go", "wait": 30}
        done = (await said("POST", "/api/dispatch", desk.keys["open"], **order))["tasks"][0]
        assert done["state"] == "completed"
        for path in ("/api/agents", "/api/ceremonies", "/api/fleet/health", "/api/inbox", "/api/tasks"):
            assert isinstance(await said("GET", path, desk.keys["open"]), dict), path
        for path in ("/admin/tenants", "/admin/audit", "/admin/keys"):
            assert isinstance(await said("GET", path), dict), path
        is_closed = kind in ("tenant", "api-key")
        answer = await said("POST", "/api/dispatch", desk.keys["acme"], **order)
        assert answer == 401 if is_closed else answer["tasks"][0]["state"] == "completed"
        # Whatever has not been replaced meanwhile is repaired.
        for one in (await said("GET", "/admin/documents"))["documents"]:
            form = {name: one[name] for name in ("tenant", "kind", "id")}
            assert await said("POST", "/admin/documents:repair", **form) in (
                {**form, "done": "removed"}, {**form, "done": "replaced"}, 400,
            )  # fmt: skip
        assert (await said("GET", "/admin/documents"))["documents"] == []

    desk.run(work)
    assert (f"document.damaged kind={kind} id=" in caplog.text) is (kind not in READ_LATER)
    # And once more, as it was repaired.
    desk.run(lambda said, _: said("GET", "/api/agents"))


def test_hub_starts_with_a_damaged_log_of_an_open_task(desk: Desk) -> None:
    damaged = "task = (SELECT num FROM tasks WHERE state = 3 LIMIT 1)"
    assert desk.execute(f"UPDATE events SET body = ? WHERE seq = 2 AND {damaged} RETURNING seq", DAMAGE)

    async def work(said: Said, hub: Hub) -> None:
        order = {"agent": "local", "skill": "answer", "message": "go", "wait": 30}
        done = await said("POST", "/api/dispatch", desk.keys["acme"], **order)
        assert done["tasks"][0]["state"] == "completed"

    desk.run(work)


def test_damaged_documents_are_shown_where_their_owners_look(desk: Desk) -> None:
    for kind in ("catalogue", "ceremony"):
        damage(desk, kind)

    async def work(said: Said, _: Hub) -> None:
        key = desk.keys["acme"]
        far = await said("GET", "/api/agents/far", key)
        assert (far["state"], far["owner"]) == ("invalid", "api")
        assert "its document is damaged" in far["reason"]
        (daily,) = (await said("GET", "/api/ceremonies", key))["items"]
        assert (daily["id"], daily["state"]) == ("daily", "invalid")
        assert "its document is damaged" in daily["reason"]
        # Their owner can remove them, and add others under the same names.
        assert await said("DELETE", "/api/agents/far", key) == {"name": "far"}
        assert await said("POST", "/api/ceremonies/daily/delete", key) == {"id": "daily"}
        assert (await said("POST", "/api/agents", key, name="far", url="http://localhost:9"))["name"] == "far"
        daily = {"id": "daily", "name": "Daily", "schedule": "0 3 * * *", "skill": "answer"}
        assert (await said("POST", "/api/ceremonies/create", key, **daily))["id"] == "daily"

    desk.run(work)


def test_agent_stays_disabled_while_its_override_is_damaged_and_after_its_repair(desk: Desk) -> None:
    (place,) = damage(desk, "catalogue_override")
    assert place == ("acme", "far")

    async def work(said: Said, _: Hub) -> None:
        key = desk.keys["acme"]
        assert (await said("GET", "/api/agents/far", key))["state"] == "disabled"
        form = {"tenant": "acme", "kind": "catalogue_override", "id": "far"}
        assert await said("POST", "/admin/documents:repair", **form) == {**form, "done": "replaced"}
        assert await said("POST", "/admin/documents:repair", **form) == 400, "it is not damaged any more"
        assert (await said("GET", "/api/agents/far", key))["state"] == "disabled"
        assert (await said("POST", "/api/agents/far/enable", key))["state"] != "disabled"

    desk.run(work)


def test_damaged_tenant_is_closed_until_an_operator_enables_what_replaced_it(desk: Desk) -> None:
    damage(desk, "tenant")

    async def work(said: Said, _: Hub) -> None:
        (shown,) = [one for one in (await said("GET", "/admin/tenants"))["items"] if one["id"] == "acme"]
        assert shown["disabled"] and shown["damaged"]
        assert (await said("GET", "/admin/tenants/acme"))["damaged"]
        assert await said("PATCH", "/admin/tenants/acme", disabled=False) == 500
        form = {"tenant": "default", "kind": "tenant", "id": "acme"}
        assert await said("POST", "/admin/documents:repair", desk.keys["open"], **form) == 403
        assert (await said("POST", "/admin/documents:repair", **form))["done"] == "replaced"
        assert await said("GET", "/api/agents", desk.keys["acme"]) == 401
        assert not (await said("PATCH", "/admin/tenants/acme", disabled=False))["disabled"]
        assert isinstance(await said("GET", "/api/agents", desk.keys["acme"]), dict)
        assert await said("GET", "/admin/documents", desk.keys["acme"]) == 403

    desk.run(work)


def test_document_with_an_impossible_time_keeps_no_others_from_being_listed(desk: Desk) -> None:
    desk.execute(
        "UPDATE docs SET body = json_set(CAST(body AS text), '$.created_at', 1 << 60), rev = rev + 1 "
        "WHERE kind = 'tenant' AND id = 'acme'"
    )

    async def work(said: Said, _: Hub) -> None:
        shown = {one["id"] for one in (await said("GET", "/admin/tenants"))["items"]}
        assert shown >= {"acme", "open"}

    desk.run(work)


def test_damaged_document_of_the_default_tenant_keeps_no_operator_out(desk: Desk) -> None:
    desk.execute("INSERT INTO docs (tenant, kind, id, rev, body, changed) VALUES (?, ?, ?, 1, ?, 99)",
                 "default", "tenant", "default", DAMAGE)  # fmt: skip

    async def work(said: Said, _: Hub) -> None:
        assert isinstance(await said("GET", "/api/agents", desk.keys["acme"]), dict)
        form = {"tenant": "default", "kind": "tenant", "id": "default"}
        assert (await said("POST", "/admin/documents:repair", **form))["done"] == "replaced"
        order = {"agent": "local", "skill": "answer", "message": "go", "wait": 30}
        assert (await said("POST", "/api/dispatch", **order))["tasks"][0]["state"] == "completed"

    desk.run(work)


@pytest.mark.parametrize("body", [DAMAGE, b""], ids=["damaged", "removed"])
def test_outcomes_are_counted_once_when_the_place_in_the_log_is_lost(desk: Desk, body: bytes) -> None:
    totals: list[int] = []

    async def outcomes(said: Said) -> int:
        agents = (await said("GET", "/api/fleet/health", desk.keys["acme"]))["agents"]
        return sum(one["totalOutcomes"] for one in agents)

    async def count(said: Said, _: Hub) -> None:
        key, order = desk.keys["acme"], {"agent": "local", "skill": "answer", "message": "go", "wait": 30}
        totals.append(await outcomes(said))
        await said("POST", "/api/dispatch", key, **order)
        totals.append(await outcomes(said))

    desk.run(count)
    desk.execute("UPDATE docs SET body = ?, rev = rev + 1 WHERE kind = 'tail-cursor'", body)
    desk.run(count)
    assert totals == [totals[0] + n for n in (0, 1, 1, 2)]


def test_hub_on_postgresql_starts_with_a_damaged_document_of_every_kind(
    first: Desk, tmp_path: Path, postgres_url: str
) -> None:
    for name in ("agents.yaml", "damaged_agent.py"):
        shutil.copy(first.folder / name, tmp_path)
    (tmp_path / "hub.yaml").write_text(f"settings: {{store: '{postgres_url}'}}\n")

    async def fill() -> None:
        store = store_from_url(postgres_url)
        await store.open()
        for kind in DOCUMENT_KINDS:
            tenant, doc_id = ("default", "ring") if kind == "signing-key" else ("acme", "x")
            await store.docs.put(tenant, kind, doc_id, DAMAGE, 0)
        await store.close()

    async def work(said: Said, _: Hub) -> None:
        made = await said("POST", "/admin/tenants", name="open")
        order = {"agent": "local", "skill": "answer", "message": "go", "wait": 30}
        done = await said("POST", "/api/dispatch", (b"x-api-key", made["token"].encode()), **order)
        assert done["tasks"][0]["state"] == "completed"
        listed = {one["kind"] for one in (await said("GET", "/admin/documents"))["documents"]}
        # What grants nothing and is written all the time may have been replaced already.
        assert listed >= {"api-key", "tenant", "signing-key", "catalogue", "ceremony", "workflow"}

    asyncio.run(fill())
    Desk(tmp_path).run(work)
