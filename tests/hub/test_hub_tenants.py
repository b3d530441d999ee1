"""Tenants of a hub as a process, over HTTP and by the command line: made, disabled, limited, deleted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import Run, trunkline
from tests.flow.surfaces import ASK, workflow
from tests.harness import V1, message
from tests.hub.test_hub import HubProcess, until
from trunkline.hub.template import write_workspace

__all__ = ["trunkline"]

BOSS = {"X-API-Key": "operators-key-1"}
MOCKS = """
agents:
  - name: slow
    agent: {name: Slow, skills: [{id: think, description: Thinks}]}
    otherwise: {text: Thought., delay: 60}
"""
AGENTS = """
agents:
  - {name: slow, url: "${MOCKS_URL}/slow", skills: [think], tenants: all}
  - {name: ours, url: "${MOCKS_URL}/slow", skills: [ponder]}
  - {name: local, import: "local_agent:agent"}
"""
LOCAL = """
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill
async def answer(turn: Turn) -> str:
    return "here"
"""


FLOW = {
    "document": {
        "schema": "https://agent-workflow.dev/schemas/workflow-definition.json",
        "name": "short",
        "version": "1.0.0",
    },
    "state_schema": {"type": "object", "properties": {}},
    "nodes": [{"id": "start", "type": "start"}, {"id": "end", "type": "end"}],
    "edges": [{"source": "__start__", "target": "start"}, {"source": "start", "target": "end"}],
}


class TenantHub:
    """A hub with an operator, spoken to by hand."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.http = httpx2.Client(timeout=60)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        return self.http.request(method, f"{self.base}{path}", content=content, headers={**kind, **headers})

    def operate(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        return self.ask(method, f"/admin/{path}", body, **BOSS)

    def tenant(self, name: str) -> dict[str, str]:
        """The headers of a new tenant's admin."""
        made = self.operate("POST", "tenants", {"name": name})
        assert made.status_code == 201, made.text
        return {"X-API-Key": made.json()["token"]}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tenants") / "demo"
    write_workspace(folder)
    (folder / "mocks.yaml").write_text(MOCKS)
    (folder / "agents.yaml").write_text(AGENTS)
    (folder / "local_agent.py").write_text(LOCAL)
    (folder / "ceremonies" / "morning.yaml").unlink()
    return folder


@pytest.fixture(scope="module")
def hub(workspace: Path) -> Iterator[TenantHub]:
    env = {"TRUNKLINE_EGRESS_HOSTS": "127.0.0.1"}
    with HubProcess(workspace, "--key", BOSS["X-API-Key"], "--metrics", env=env) as process:
        made = TenantHub(process.base)
        yield made
        made.http.close()


def test_only_operators_have_to_do_with_tenants(hub: TenantHub) -> None:
    key = hub.tenant("Acme")
    listed = hub.operate("GET", "tenants").json()
    assert [one["id"] for one in listed["items"]] == ["acme"] and listed["next"] is None
    assert set(listed["items"][0]) == {"id", "name", "disabled", "createdAt", "quota", "settings", "alerts"}
    for method, path, body in [
        ("GET", "/admin/tenants", None),
        ("POST", "/admin/tenants", {"name": "x"}),
        ("PATCH", "/admin/tenants/acme", {"disabled": False}),
        ("POST", "/admin/tenants/acme:rotate", {}),
        ("DELETE", "/admin/tenants/acme", None),
        ("GET", "/admin/audit", None),
    ]:
        refused = hub.ask(method, path, body, **key)
        assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
        assert hub.ask(method, path, body).status_code == 401
    # They name the agents of all tenants.
    assert [hub.ask("GET", "/metrics", **one).status_code for one in (key, BOSS)] == [403, 200]
    wrong = [
        hub.operate("POST", "tenants", {"name": "Acme"}),
        hub.operate("POST", "tenants", {"name": "x", "more": 1}),
        hub.operate("PATCH", "tenants/nobody", {"disabled": True}),
        hub.operate("PATCH", "tenants/acme", {"quota": {"concurrent_tasks": 0}}),
        hub.operate("PUT", "tenants/acme", {}),
    ]
    assert [one.status_code for one in wrong] == [409, 400, 404, 400, 405]
    assert wrong[1].json()["field"] == "more"


def test_a_disabled_tenant_ends_within_a_second(hub: TenantHub) -> None:
    key = hub.tenant("Shut")
    ends: dict[str, float] = {}
    frames: list[str] = []
    rest = {**key, **V1, "Content-Type": "application/json", "Accept": "text/event-stream"}
    body = json.dumps({"message": message("go", metadata={"skillHint": "think"})}).encode()
    begun = threading.Barrier(3, timeout=60)

    def follow(name: str, method: str, path: str, content: bytes) -> None:
        with httpx2.Client(timeout=60) as client:
            stream = client.stream(method, f"{hub.base}{path}", content=content, headers=rest)
            with stream as response:
                for number, line in enumerate(response.iter_lines()):
                    if not number:
                        begun.wait()
                    if name == "a2a":
                        frames.append(line)
        ends[name] = time.monotonic()

    sent = hub.ask(
        "POST",
        "/message:send",
        json.loads(body) | {"configuration": {"returnImmediately": True}},
        **key,
        **V1,
    )
    task = sent.json()["task"]["id"]
    until(lambda: hub.ask("GET", f"/api/tasks/{task}", **key).json()["state"] == "working")
    readers = [
        threading.Thread(target=follow, args=("a2a", "POST", f"/tasks/{task}:subscribe", b"{}")),
        threading.Thread(target=follow, args=("api", "GET", f"/api/tasks/{task}/events", b"")),
    ]
    for one in readers:
        one.start()
    begun.wait()
    asked = time.monotonic()
    assert hub.operate("PATCH", "tenants/shut", {"disabled": True}).json()["disabled"]
    refused = [
        hub.ask("GET", "/api/tasks", **key),
        hub.ask("GET", "/api/tasks", **{"X-API-Key": "tl_of_nobody_at_all"}),
    ]
    assert [one.status_code for one in refused] == [401, 401]
    assert refused[0].json() == refused[1].json()
    for one in readers:
        one.join(60)
    assert set(ends) == {"a2a", "api"}
    # A second for the streams; the rest for a machine that has much else to do.
    assert max(ends.values()) - asked < 5.0
    shown = f"/api/tasks/{task}?tenant=shut"
    assert until(lambda: (s := hub.ask("GET", shown, **BOSS).json())["state"] == "canceled" and s)
    # Nor does anything begin because an operator asks for it.
    order = {"agent": "local", "message": "go"}
    late = hub.ask("POST", "/api/dispatch?tenant=shut", order, **BOSS)
    assert (late.status_code, late.json()["code"]) == (409, "TENANT_DISABLED")
    assert hub.operate("PATCH", "tenants/shut", {"disabled": False}).status_code == 200
    assert hub.ask("GET", "/api/tasks", **key).status_code == 200


def test_each_tenant_has_agents_and_cards_of_its_own(hub: TenantHub) -> None:
    north, south = hub.tenant("North"), hub.tenant("South")
    url = hub.ask("GET", "/api/agents/slow", **BOSS).json()["url"]

    def add(name: str, about: str, key: dict[str, str]) -> int:
        entry = {"name": name, "url": url, "description": about, "skills": [f"{name}-skill"]}
        return hub.ask("POST", "/api/agents", entry, **key).status_code

    assert [add("mine", "Of the north", north), add("mine", "Of the south", south)] == [200, 200]
    assert add("only", "Of the north", north) == 200
    # Nobody takes the place of an agent that the hub runs itself, though it is another tenant's.
    assert add("local", "Mine now", south) == 409
    # What is found out about an agent changes its card.
    deadline = time.monotonic() + 30
    while any(
        hub.ask("GET", "/api/agents/mine", **key).json()["state"] == "discovering" for key in (north, south)
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    at = "/v1/a2a/agents"
    for path in ("agent-card.json", ".well-known/agent-card.json"):
        cards = [hub.ask("GET", f"{at}/mine/{path}", **key) for key in (north, south)]
        assert [one.json()["description"] for one in cards] == ["Of the north", "Of the south"]
        assert {one.headers["cache-control"] for one in cards} == {"private, max-age=60"}
        assert {"X-API-Key", "Cookie"} <= set(cards[0].headers["vary"].split(", "))
        etag = cards[0].headers["etag"]
        again = [
            hub.ask("GET", f"{at}/mine/{path}", **key, **{"If-None-Match": etag}) for key in (north, south)
        ]
        assert [one.status_code for one in again] == [304, 200]
        # Without a key, and with that of somebody else, it is an agent that there is not.
        for other in ("only", "nobody"):
            unknown = [hub.ask("GET", f"{at}/{other}/{path}", **key) for key in ({}, south)]
            assert [one.status_code for one in unknown] == [401, 404]
    silent = [hub.ask("POST", f"{at}/{name}", "no JSON-RPC", **south) for name in ("only", "nobody", "ours")]
    assert [one.status_code for one in silent] == [404] * 3
    assert len({one.text for one in silent}) == 1
    # The hub itself names nobody to who has not said who it is, and to the others their own.
    for path in ("/.well-known/agent-card.json", "/.well-known/agent.json", "/a2a/agent-card.json"):
        stub = hub.ask("GET", path)
        assert stub.status_code == 200 and stub.json()["capabilities"]["extendedAgentCard"] is True
        for name in ("slow", "ours", "only", "mine", "local"):
            assert name not in stub.text
        own = hub.ask("GET", path, **north)
        assert {one["id"] for one in own.json()["skills"]} == {"think", "mine-skill", "only-skill"}
        assert "only" not in hub.ask("GET", path, **south).text
    assert "only" not in hub.ask("GET", "/", Accept="text/html").text
    extended = hub.ask("GET", "/extendedAgentCard", **north, **V1)
    assert {one["id"] for one in extended.json()["skills"]} == {"think", "mine-skill", "only-skill"}


def test_the_tenant_that_a_request_names_is_that_of_its_key(hub: TenantHub) -> None:
    east = hub.tenant("East")
    hub.tenant("West")
    body = {"message": message("go"), "configuration": {"returnImmediately": True}}
    for base in ("", "/v1/a2a/agents/slow"):
        sent = hub.ask("POST", f"{base}/east/message:send", body, **east, **V1)
        assert sent.status_code == 200, sent.text
        task = sent.json()["task"]["id"]
        paths = [f"{base}/{tenant}/tasks/{task}" for tenant in ("east", "west", "nobody")]
        assert [hub.ask("GET", path, **east, **V1).status_code for path in paths] == [200, 404, 404]
        body["message"] = message("go")
        named = [
            hub.ask("POST", f"{base}/message:send", {**body, "tenant": tenant}, **east, **V1)
            for tenant in ("west", "east")
        ]
        assert [one.status_code for one in named] == [400, 200]
        hub.ask("POST", f"/api/tasks/{task}/cancel", {}, **east)
        body["message"] = message("go")


def test_a_limit_that_is_met_is_told_on_every_way_to_ask_for_work(hub: TenantHub) -> None:
    key = hub.tenant("Noisy")
    # As the file of the hub has it for every tenant, and one's own limits before those.
    quota = {"concurrent_tasks": 1}
    assert hub.operate("PATCH", "tenants/noisy", {"quota": quota}).json()["quota"] == quota
    order = {"skill": "think", "message": "go"}
    ceremony = {"id": "c", "name": "n", "schedule": "0 3 1 1 *", "skill": "think", "overlap": "allow"}
    assert hub.ask("POST", "/api/ceremonies/create", ceremony, **key).status_code == 200
    task = hub.ask("POST", "/api/dispatch", order, **key).json()["tasks"][0]["taskId"]
    sends: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        ("/api/dispatch", order, {}),
        ("/api/a2a/chat", {"agent": "slow", "message": "go"}, {}),
        ("/api/ceremonies/c/run", {}, {}),
        ("/v1/executions", {"definition": FLOW, "input": {}}, {}),
        ("/message:send", {"message": message("go")}, V1),
        ("/v1/a2a/agents/slow/message:send", {"message": message("go")}, V1),
        (
            "/a2a",
            {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("go")}},
            V1,
        ),
        ("/v1/chat/completions", {"model": "slow", "messages": [{"role": "user", "content": "go"}]}, {}),
        ("/v1/executions", {"definition": workflow(ASK), "input": {}}, {}),
    ]
    for path, body, headers in sends:
        refused = hub.ask("POST", path, body, **key, **headers)
        assert (refused.status_code, refused.headers.get("retry-after")) == (429, "1"), (path, refused.text)
        assert "concurrent_tasks" in refused.text
    # Who reads is not charged, and another tenant is not concerned.
    polled = {hub.ask("GET", f"/api/tasks/{task}", **key).status_code for _ in range(50)}
    assert polled == {200}
    quiet = hub.tenant("Quiet")
    assert hub.ask("POST", "/api/dispatch", order, **quiet).status_code == 200
    ran = hub.ask("POST", "/v1/executions", {"definition": FLOW, "input": {}}, **quiet)
    assert (ran.status_code, ran.json()["status"]) == (200, "completed")
    hub.ask("POST", f"/api/tasks/{task}/cancel", {}, **key)
    assert until(lambda: hub.ask("POST", "/api/dispatch", order, **key).status_code == 200)


def test_the_audit_stays_and_holds_no_secret(hub: TenantHub) -> None:
    key = hub.tenant("Gone")
    rotated = hub.operate("POST", "tenants/gone:rotate").json()["token"]
    assert hub.ask("GET", "/api/tasks", **key).status_code == 401
    assert hub.operate("DELETE", "tenants/gone").json()["disabled"]
    assert hub.ask("GET", "/api/tasks", **{"X-API-Key": rotated}).status_code == 401
    refused = hub.operate("POST", "keys", {"owner": "late", "tenant": "gone"})
    assert refused.status_code == 400 and "was deleted" in refused.text
    rows = hub.operate("GET", "audit?tenant=gone").json()["items"]
    assert [one["action"] for one in rows] == ["tenant.deleted", "tenant.rotated", "tenant.created"]
    whole = hub.operate("GET", "audit?limit=200").text
    assert all([secret not in whole for secret in (key["X-API-Key"], rotated, BOSS["X-API-Key"])])


def test_what_operators_do_with_keys_is_in_the_audit(hub: TenantHub) -> None:
    key = hub.tenant("Watched")
    form = {"owner": "eve", "tenant": "watched", "scopes": ["admin"]}
    made = hub.operate("POST", "keys", form).json()
    rotated = hub.operate("POST", f"keys/{made['key']['id']}:rotate", {}).json()
    hub.operate("POST", f"keys/{made['key']['id']}:revoke", {})
    # What the tenant does with its own keys is not the operators'.
    assert hub.ask("POST", "/admin/keys", {"owner": "own"}, **key).status_code == 201
    answer = hub.operate("GET", "audit?tenant=watched")
    rows = answer.json()["items"]
    assert [one["action"] for one in rows] == ["key.revoked", "key.rotated", "key.created", "tenant.created"]
    eve = {"owner": "eve", "scopes": ["admin"]}
    assert [(one["before"], one["after"]) for one in rows[:3]] == [(eve, None), (eve, eve), (None, eve)]
    assert len({one["by"] for one in rows}) == 1
    assert made["token"] not in answer.text and rotated["token"] not in answer.text


def test_the_same_by_the_command_line(hub: TenantHub, workspace: Path, trunkline: Run) -> None:
    def asked(*words: str) -> Any:
        code, out, said = trunkline("tenant", *words, "--store", str(workspace), "--json")
        assert code == 0, said
        return json.loads(out)

    made = asked("create", "Typed")
    key = {"X-API-Key": made["token"]}
    assert hub.ask("GET", "/api/tasks", **key).status_code == 200
    assert asked("disable", "typed")["disabled"]
    assert hub.ask("GET", "/api/tasks", **key).status_code == 401
    assert not asked("enable", "typed")["disabled"]
    limited = asked("limit", "typed", "--concurrent-tasks", "3", "--cost-per-day", "1.5")
    assert limited["quota"] == {"concurrent_tasks": 3, "cost_per_day": 1.5}
    assert asked("limit", "typed", "--none")["quota"] == {}
    settings = asked("set", "typed", "--kind", "peer", "--egress-network", "10.0.0.0/8", "--retention", "1d")
    assert settings["settings"] == {"egress_networks": ["10.0.0.0/8"], "retention": "1d", "kinds": ["peer"]}
    told = asked("alert", "typed", "--failure-rate-1h", "0.2", "--daily-cost-usd", "0", "--cooldown", "5m")
    assert told["alerts"] == {"failure_rate_1h": 0.2, "daily_cost_usd": 0.0, "cooldown": "5m"}
    listed = trunkline("tenant", "list", "--store", str(workspace))[1]
    assert "alerts.daily_cost_usd 0.0" in listed
    assert asked("alert", "typed", "--none")["alerts"] == {}
    assert trunkline("tenant", "alert", "typed", "--store", str(workspace))[0] == 2
    again = asked("rotate", "typed")["token"]
    assert hub.ask("GET", "/api/tasks", **key).status_code == 401
    assert hub.ask("GET", "/api/tasks", **{"X-API-Key": again}).status_code == 200
    assert "typed" in [one["id"] for one in asked("list")]
    assert asked("delete", "typed")["disabled"]
    assert asked("audit", "--limit", "2")[0]["action"] == "tenant.deleted"
    told = trunkline("tenant", "create", "Spoken", "--store", str(workspace))[1]
    assert "tl_" in told and "shown this once" in told
    assert trunkline("tenant", "limit", "spoken", "--store", str(workspace))[0] == 2
    assert "spoken" in trunkline("tenant", "list", "--store", str(workspace))[1]
    assert trunkline("tenant", "rotate", "no/such", "--store", str(workspace))[0] == 2
