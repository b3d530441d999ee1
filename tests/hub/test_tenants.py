"""What the settings of a tenant do, on a hub in this process."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.wire.routes import Ask, ask
from tests.flow.surfaces import workflow
from tests.flow.test_fetched import CHILD, nesting
from tests.gateway.model.hub import Caller, opened, run
from tests.gateway.model.openai_server import ModelServer, Reply
from tests.harness import params
from tests.hub.remote_agents import RemoteAgent, RemoteAgents
from trunkline.config import Issuer
from trunkline.fleet.health import fleet_health
from trunkline.hub.hub import Hub
from trunkline.mock.serve import BackgroundServer

OPERATOR = (b"x-api-key", b"operators-key-1")
AGENTS = "agents:\n  - {name: local, import: 'settings_agent:agent', tenants: all}\n"
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

@agent.skill
async def fail(turn: Turn) -> str:
    raise RuntimeError("no")
"""
LONG = """
@agent.skill
async def last(turn: Turn) -> str:
    import asyncio
    await asyncio.Event().wait()
    return "never"
"""


def test_settings_of_a_tenant_have_their_effects_and_only_there(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "settings_agent.py").write_text(LOCAL)
    (tmp_path / "hub.yaml").write_text("tenant_settings: {kinds: [skill, peer], egress_hosts: [localhost]}\n")
    flags = {"store": "memory:", "keys": (OPERATOR[1].decode(),), "log_level": "error"}
    hub = Hub(tmp_path, {**flags, "drain_limit": 0.2, "cancel_limit": 0.2}, {})

    async def said(verb: str, path: str, key: tuple[bytes, bytes], **body: Any) -> Any:
        sent = msgspec.json.encode(body) if body else b""
        answer = await ask(hub.host, Ask("", verb, path, sent, ((b"a2a-version", b"1.0"),)), key)
        found = msgspec.json.decode(answer.body)
        return found if answer.status < 300 else (answer.status, found.get("field"))

    async def case() -> None:
        keys: dict[str, tuple[bytes, bytes]] = {}
        for name in ("open", "shut"):
            made = await said("POST", "/admin/tenants", OPERATOR, name=name)
            keys[name] = (b"x-api-key", made["token"].encode())
        settings = {
            "kinds": ["peer"],
            "egress_networks": ["127.0.0.2/32"],
            "egress_hosts": [],
            "retention": 0.1,
        }
        changed = await said("PATCH", "/admin/tenants/shut", OPERATOR, settings=settings)
        assert changed["settings"] == settings
        # Kinds: what is not allowed is not there, and cannot be added.
        listed = [(await said("GET", "/api/agents", keys[name]))["items"] for name in ("open", "shut")]
        assert [[one["name"] for one in items] for items in listed] == [["local"], []]
        order = {"agent": "local", "message": "go", "wait": 30}
        task = (await said("POST", "/api/dispatch", keys["open"], **order))["tasks"][0]
        assert task["text"] == "here"
        refused = (await said("POST", "/api/dispatch", keys["shut"], **order))["tasks"][0]
        assert refused["state"] == "rejected"
        flow = {"name": "steps", "workflow": "registered"}
        assert [await said("POST", "/api/agents", key, **flow) for key in keys.values()] == [
            (400, "kind")
        ] * 2
        # Where its agents may be: by its own rule, in the place of that of the others.
        for url, expected in (("http://127.0.0.2:9", [400, 200]), ("http://localhost:9", [200, 400])):
            name = url.partition("//")[2].partition(":")[0]
            found = [await said("POST", "/api/agents", key, name=name, url=url) for key in keys.values()]
            assert [200 if isinstance(one, dict) else one[0] for one in found] == expected, url
            probes = [await said("POST", "/api/a2a/probe", key, url=url) for key in keys.values()]
            told = ["tenant set" in one["error"] for one in probes]
            assert told == [status == 400 for status in expected]
        narrowed = await said(
            "PATCH", "/admin/tenants/shut", OPERATOR, settings={**settings, "egress_networks": []}
        )
        assert narrowed["settings"]["egress_networks"] == []
        again = await said("POST", "/api/a2a/probe", keys["shut"], url="http://127.0.0.2:9")
        assert "tenant set" in again["error"]
        await said("PATCH", "/admin/tenants/shut", OPERATOR, settings={**settings, "kinds": ["skill"]})
        announced = await said("PUT", "/api/announce/late", keys["shut"], url="http://127.0.0.2:9", ttl=60)
        assert announced == (400, "kind")
        assert await hub.host.store.docs.get("shut", "catalogue", "late") is None
        # How long ended work is kept.
        path = f"/api/tasks/{refused['taskId']}"
        while isinstance(await said("GET", path, keys["shut"]), dict):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert isinstance(await said("GET", f"/api/tasks/{task['taskId']}", keys["open"]), dict)

    async def whole() -> None:
        async with asyncio.timeout(60), hub.host.lifespan():
            await case()

    asyncio.run(whole())


def test_kinds_that_a_tenant_may_not_have_are_reached_by_no_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    think = {"id": "think", "type": "llm_call", "config": {"prompt": "go"}}

    async def scene(models: ModelServer) -> None:
        config = {"baseUrl": models.url, "model": "small"}
        monkeypatch.setenv("WORKFLOW_ENGINE_LLM_CONFIG", msgspec.json.encode(config).decode())
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        async with opened(tmp_path, "agents: []", key="operators-key-1") as boss:
            found: dict[str, tuple[int, Any]] = {}
            for name, kinds in {"free": None, "plain": ["flow"], "none": ["peer"]}.items():
                caller = await boss.tenant(name)
                settings = {"kinds": kinds, "tools": ["model:small"]}
                await boss(f"PATCH /admin/tenants/{name}", {"settings": settings})
                order = {"definition": workflow(think), "input": {}}
                found[name] = await caller("POST /v1/executions", order)
            assert found["free"][1]["final_state"] == {"text": "done"}, found
            status, told = found["plain"]
            assert (status, told["error"]["code"]) == (422, "COMPOSITE_EXECUTOR_NOT_CONFIGURED"), told
            assert "the operator sets kinds" in told["error"]["message"]
            status, told = found["none"]
            assert (status, told["error"]["code"]) == (403, "AUTH_FORBIDDEN"), told
            assert len(models.asked) == 1

    with ModelServer(lambda asked: Reply(["done"])) as models:
        run(scene(models))


def test_what_was_taken_is_known_again_at_a_limit_that_is_met(tmp_path: Path) -> None:
    (tmp_path / "settings_agent_5.py").write_text(LOCAL + LONG)

    async def scene() -> None:
        agents = AGENTS.replace("settings_agent", "settings_agent_5")
        async with opened(tmp_path, agents, key="operators-key-1") as boss:
            caller = await boss.tenant("noisy")
            await boss("PATCH /admin/tenants/noisy", {"quota": {"concurrent_tasks": 1}})
            await caller.ready("local")
            place = "POST /v1/a2a/agents/local/message:send"
            named: Any = {"messageId": str(uuid.uuid4()), "metadata": {"skillHint": "last"}}
            body = params("go", wait=False, **named)
            first = (await caller(place, body))[1]["task"]["id"]
            # The same is its task, also where several are meant; anything else is too much.
            status, again = await caller(place, body)
            assert (status, again["task"]["id"]) == (200, first)
            other = params("go", wait=False, **{**named, "messageId": str(uuid.uuid4())})
            assert (await caller(place, other))[0] == 429
            assert (await caller(place, params("else", wait=False, **named)))[0] == 429
            await caller(f"POST /v1/a2a/agents/local/tasks/{first}:cancel", {})
            order = {"skill": "last", "targets": ["all"], "message": "go", "correlationId": "c-1"}
            _, opened_now = await caller("POST /api/dispatch", order)
            status, known = await caller("POST /api/dispatch", order)
            assert status == 200, known
            ids = [[one["taskId"] for one in told["tasks"]] for told in (opened_now, known)]
            assert ids[0] == ids[1] and len(ids[0]) == 1
            assert (await caller("POST /api/dispatch", {**order, "correlationId": "c-2"}))[0] == 429

    run(scene())


def test_a_tenant_has_limits_of_alerts_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fleet_health, "ALERT_EVERY_S", 0.05)
    (tmp_path / "settings_agent_2.py").write_text(LOCAL)
    (tmp_path / "hub.yaml").write_text("alerts: {orphaned_skills: 5}\n")

    async def scene() -> None:
        agents = AGENTS.replace("settings_agent", "settings_agent_2")
        async with opened(tmp_path, agents, key="operators-key-1") as boss:
            strict, calm = await boss.tenant("strict"), await boss.tenant("calm")
            limits = {"failure_rate_1h": 0, "orphaned_skills": 0}
            status, changed = await boss("PATCH /admin/tenants/strict", {"alerts": limits})
            assert (status, changed["alerts"]) == (200, limits)
            patched = await boss("PATCH /admin/tenants/calm", {"alerts": {"failure_rate_1h": 1}})
            assert patched[1]["alerts"] == {"failure_rate_1h": 1}
            for caller in (strict, calm):
                await caller.ready("local")
                order = {"agent": "local", "skill": "fail", "message": "go", "wait": 30}
                task = (await caller("POST /api/dispatch", order))[1]["tasks"][0]
                assert task["state"] == "failed"
                fine = {"agent": "local", "skill": "answer", "message": "go", "wait": 30}
                assert (await caller("POST /api/dispatch", fine))[1]["tasks"][0]["text"] == "here"
            await strict.until("GET /api/fleet/health", lambda one: len(one["alerts"]) == 2)
            # What is no limit is told with its member, and changes nothing.
            status, wrong = await boss("PATCH /admin/tenants/calm", {"alerts": {"cooldown": "soon"}})
            assert (status, "cooldown" in wrong["detail"]) == (400, True)
            assert (await calm("GET /api/fleet/health"))[1]["alerts"] == []
            async with asyncio.timeout(20):
                while caplog.text.count("fleet.alert") < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            # Without limits of its own it has those of the hub again, at once.
            await boss("PATCH /admin/tenants/calm", {"alerts": None})
            alerts = (await calm("GET /api/fleet/health"))[1]["alerts"]
            assert [(one["kind"], one["limit"]) for one in alerts] == []
            await boss("PATCH /admin/tenants/calm", {"alerts": {"failure_rate_1h": 0.1, "cooldown": 1}})
            alerts = (await calm("GET /api/fleet/health"))[1]["alerts"]
            assert [(one["kind"], one["limit"]) for one in alerts] == [("failure-rate", 0.1)]

    run(scene())
    said = [one.getMessage() for one in caplog.records if one.getMessage().startswith("fleet.alert")]
    assert {"kind=failure-rate" in one for one in said if "tenant=strict" in one} == {True, False}
    assert not [one for one in said if "tenant=calm" in one and "limit=0.1" not in one]


class WebServer:
    """Has a workflow for who asks, and counts what is posted to it, by path."""

    def __init__(self) -> None:
        self.posts: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = msgspec.json.encode(CHILD) if scope["method"] == "GET" else b""
        self.posts[scope["path"]] += scope["method"] == "POST"
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _reason(answer: Any) -> str:
    return "PUSH_URL_REFUSED" if "PUSH_URL_REFUSED" in str(answer) else str(answer)


async def named(caller: Caller, url: str, who: str) -> list[str]:
    """What becomes of an address as a webhook of a task, set and inline, a report and a workflow."""
    inline = params("go")
    inline["configuration"]["taskPushNotificationConfig"] = {"url": f"{url}/{who}/inline"}
    status, sent = await caller("POST /v1/a2a/agents/local/message:send", inline)
    told = ["taken" if status == 200 else _reason(sent)]
    task = (await caller.say("local", "go"))["id"]
    config = {"url": f"{url}/{who}/set"}
    status, answer = await caller(f"POST /v1/a2a/agents/local/tasks/{task}/pushNotificationConfigs", config)
    told.append("taken" if status == 200 else _reason(answer))
    ceremony = {
        "id": "daily", "name": "Daily", "schedule": "0 9 * * *", "skill": "answer", "message": "go",
        "notifyWebhook": f"{url}/{who}/report",
    }  # fmt: skip
    status, answer = await caller("POST /api/ceremonies/create", ceremony)
    told.append("taken" if status == 200 else answer["field"])
    run_of = {"definition": nesting(f"{url}/child.json"), "input": {}, "execution_id": f"{who}-1"}
    _, begun = await caller("POST /v1/executions", run_of)
    told.append("taken" if "afar" in str(begun) else "refused")
    return told


def test_whatever_a_tenant_names_obeys_its_egress_rule(tmp_path: Path) -> None:
    web = WebServer()
    (tmp_path / "settings_agent.py").write_text(LOCAL)
    (tmp_path / "hub.yaml").write_text("settings: {egress_hosts: [127.0.0.1]}\n")

    async def whole(url: str) -> None:
        async with opened(tmp_path, AGENTS, dev=False, key=OPERATOR[1].decode()) as boss:
            await boss.ready("local")
            callers = {name: await boss.tenant(name) for name in ("plain", "shut")}
            shut = {"settings": {"egress_hosts": [], "egress_networks": []}}
            assert (await boss("PATCH /admin/tenants/shut", shut))[0] == 200
            assert await named(callers["plain"], url, "plain") == ["taken"] * 4
            refused = ["PUSH_URL_REFUSED", "PUSH_URL_REFUSED", "notifyWebhook", "refused"]
            assert await named(callers["shut"], url, "shut") == refused
            async with asyncio.timeout(30):
                while not web.posts["/plain/inline"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            # What was named before its rule became narrower is not posted either.
            plain, held = callers["plain"], params("go", metadata={"skillHint": "hold"})
            held["configuration"]["taskPushNotificationConfig"] = {"url": f"{url}/plain/held"}
            _, sent = await plain("POST /v1/a2a/agents/local/message:send", held)
            task = sent["task"]["id"]
            async with asyncio.timeout(30):
                while not web.posts["/plain/held"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            before = web.posts["/plain/held"]
            assert (await boss("PATCH /admin/tenants/plain", shut))[0] == 200
            await plain("POST /v1/a2a/agents/local/message:send", params("yes", taskId=task))
            failed = await boss.until(
                "GET /api/deliveries?tenant=plain",
                lambda told: any(one["attempts"] and one["state"] != "done" for one in told["items"]),
            )
            assert "refused" in str(failed) and web.posts["/plain/held"] == before
            assert not [path for path in web.posts if path.startswith("/shut")]

    with BackgroundServer(web) as url:
        run(whole(url))


@pytest.mark.parametrize("hosts", [["127.0.0.1"], []], ids=["like-everybody", "wider"])
def test_agents_of_a_tenant_are_called_by_its_own_rule_and_no_longer_when_it_narrows(
    tmp_path: Path, hosts: list[str]
) -> None:
    far = RemoteAgent("far")
    (tmp_path / "settings_agent.py").write_text(LOCAL)
    (tmp_path / "hub.yaml").write_text(f"settings: {{egress_hosts: {hosts}, poll_interval: 1}}\n")

    async def whole(url: str) -> None:
        async with opened(tmp_path, AGENTS, dev=False, key=OPERATOR[1].decode()) as boss:
            north = await boss.tenant("north")
            if not hosts:
                own = {"settings": {"egress_hosts": ["127.0.0.1"]}}
                assert (await boss("PATCH /admin/tenants/north", own))[0] == 200
            assert (await north("POST /api/agents", {"name": "far", "url": f"{url}/far"}))[0] == 200
            await north.until("GET /api/agents/far", lambda one: one["state"] == "ready")
            assert (await north.say("far", "quick"))["status"]["state"] == "TASK_STATE_COMPLETED"
            long = params("long")
            long["configuration"]["returnImmediately"] = True
            _, sent = await north("POST /v1/a2a/agents/far/message:send", long)
            shut = {"settings": {"egress_hosts": [], "egress_networks": []}}
            assert (await boss("PATCH /admin/tenants/north", shut))[0] == 200
            task = f"GET /v1/a2a/agents/far/tasks/{sent['task']['id']}"
            ended = await north.until(task, lambda one: one["status"]["state"] == "TASK_STATE_FAILED")
            assert "may not call" in str(ended["status"]["message"])
            before = far.calls.total()
            assert "may not call" in str((await north.say("far", "quick again"))["status"])
            await north("POST /api/agents/far/refresh")
            assert (await north("GET /api/agents/far"))[1]["state"] == "unreachable"
            assert far.calls.total() == before

    with BackgroundServer(RemoteAgents(far)) as url:
        run(whole(url))


def test_two_tenants_have_agents_of_one_name_and_of_different_kinds(tmp_path: Path) -> None:
    (tmp_path / "settings_agent.py").write_text(LOCAL)
    (tmp_path / "hub.yaml").write_text("settings: {egress_hosts: ['127.0.0.1'], poll_interval: 1}\n")

    async def whole(url: str) -> None:
        async with opened(tmp_path, AGENTS, dev=False, key=OPERATOR[1].decode()) as boss:
            north, south = await boss.tenant("north"), await boss.tenant("south")
            await north("POST /v1/workflows", {"definition": CHILD})
            flow, peer = (north, {"workflow": "afar"}), (south, {"url": f"{url}/far"})
            # Whoever comes first.
            for name, order in (("one", (flow, peer)), ("two", (peer, flow))):
                for tenant, entry in order:
                    assert (await tenant("POST /api/agents", {"name": name, **entry}))[0] == 200
                    assert (await tenant.ready(name))["state"] == "ready"
                done = [await tenant.say(name, "quick") for tenant in (north, south)]
                assert [one["status"]["state"] for one in done] == ["TASK_STATE_COMPLETED"] * 2
                assert ["result" in str(one["artifacts"]) for one in done] == [True, False]

    with BackgroundServer(RemoteAgents(RemoteAgent("far"))) as url:
        run(whole(url))


def test_who_has_nothing_left_is_refused_before_its_message_is_read_and_may_answer(tmp_path: Path) -> None:
    (tmp_path / "settings_agent.py").write_text(LOCAL)
    at = "/v1/a2a/agents/local"

    async def whole() -> None:
        async with opened(tmp_path, AGENTS, dev=False, key=OPERATOR[1].decode()) as boss:
            await boss.ready("local")
            noisy, quiet = await boss.tenant("noisy"), await boss.tenant("quiet")
            quota = {"quota": {"requests_per_minute": 1}}
            assert (await boss("PATCH /admin/tenants/noisy", quota))[0] == 200
            held = params("go", metadata={"skillHint": "hold"})
            _, sent = await noisy(f"POST {at}/message:send", held)
            assert (await noisy(f"POST {at}/message:send", params("go")))[0] == 429
            # What is wrong with a message nobody finds out any more; who reads is served as before.
            for method in ("SendMessage", "SendStreamingMessage"):
                wrong = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"message": 3}}
                status, told = await noisy(f"POST {at}", wrong)
                assert (status, told["id"]) == (429, 7) and "requests_per_minute" in str(told)
                assert (await quiet(f"POST {at}", wrong))[0] == 200
            assert (await noisy(f"POST {at}/message:send", {"message": 3}))[0] == 429
            assert (await noisy(f"GET {at}/tasks"))[0] == 200
            status, told = await noisy(f"POST {at}/message:send", params("yes", taskId=sent["task"]["id"]))
            assert (status, told["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")
            # With more allowed it is let in at once.
            quota = {"quota": {"requests_per_minute": 2}}
            assert (await boss("PATCH /admin/tenants/noisy", quota))[0] == 200
            assert (await noisy(f"POST {at}/message:send", params("go")))[0] == 200

    run(whole())


def test_a_tenant_of_an_issuer_is_a_second_tenant(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "settings_agent.py").write_text(LOCAL)

    async def shown(tenant: str) -> tuple[list[str], int]:
        issuer = Issuer(issuer="https://login.example", audience="hub", tenant=tenant)
        hub = Hub(tmp_path, {"store": "memory:", "issuers": (issuer,), "log_level": "error"}, {})
        async with hub.host.lifespan():
            whole, one = [
                await ask(hub.host, Ask("", "GET", path))
                for path in ("/.well-known/agent-card.json", "/v1/a2a/agents/local/agent-card.json")
            ]
            return [each["id"] for each in msgspec.json.decode(whole.body)["skills"]], one.status

    assert asyncio.run(shown("default")) == (["answer", "hold", "fail"], 200)
    assert asyncio.run(shown("builds")) == (["route"], 401)


def test_no_tenant_learns_names_or_faults_of_the_agents_of_the_default_tenant(tmp_path: Path) -> None:
    (tmp_path / "settings_agent_7.py").write_text(LOCAL)
    (tmp_path / "hub.yaml").write_text("helm: scribe\n")
    agents = (
        "agents:\n"
        "  - {name: scribe, import: 'settings_agent_7:agent'}\n"
        "  - {name: shouter, import: 'settings_agent_7:agnt', tenants: all}\n"
    )

    async def scene() -> None:
        async with opened(tmp_path, agents, key="operators-key-1") as boss:
            north = await boss.tenant("north")
            fault = await boss.until("GET /api/agents/shouter", lambda one: one["state"] == "invalid")
            assert "agnt" in fault["reason"] and "agnt" in str(fault["log"])
            order = {"message": "go", "wait": 30}
            for method, body in (
                ("POST /api/dispatch", order),
                ("POST /api/dispatch", {**order, "agent": "shouter"}),
                ("POST /api/agents/shouter/enable", {}),
                ("GET /api/agents", None),
                ("GET /api/agents/shouter", None),
                ("GET /api/route", None),
            ):
                _, answer = await north(method, body)
                assert "scribe" not in str(answer) and "agnt" not in str(answer), method
            # An operator sees the reason also in the tenant.
            _, shown = await boss("GET /api/agents/shouter?tenant=north")
            assert "agnt" in shown["reason"]

    run(scene())
