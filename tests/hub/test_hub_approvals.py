"""Approvals that the requester cannot give itself, and runs whose mode stays as it was at their start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.surfaces import ASK, workflow
from tests.gateway.model.hub import Caller, opened, run
from trunkline.flow.engine.run_messages import FLOW_KEY

KEY = "operators-key-1"
CHECK = {"id": "check", "type": "step", "config": {"handler": "check"}}
OF_OTHERS = {**ASK, "config": {**ASK["config"], "answered_by": "others"}}
MODULE = """
from trunkline import Agent, Turn

agent = Agent("Clerk", on_crash="resume")

@agent.skill
async def pay(turn: Turn) -> str:
    return await turn.ask("Pay?", answered_by="others")

plain = Agent("Plain", on_crash="resume")

@plain.skill
async def order(turn: Turn) -> str:
    return await turn.ask("Order?")

boss = Agent("Boss", on_crash="resume")

@boss.skill
async def command(turn: Turn) -> str:
    return (await turn.call("plain", turn.text)).text

asker = Agent("Asker", on_crash="resume")

@asker.skill
async def pass_on(turn: Turn) -> str:
    return (await turn.call("gate", turn.text)).text
"""


async def key_of(boss: Caller, owner: str, *scopes: str) -> Caller:
    body = {"owner": owner, "scopes": scopes or ("tasks:read", "tasks:write", "answer")}
    status, made = await boss("POST /admin/keys", body)
    assert status in (200, 201), made
    return Caller(boss.hub, made["token"])


async def asked(caller: Caller, agent: str) -> tuple[str, str]:
    """A task of an agent that asks, with the question."""
    message = {"messageId": f"m-{agent}", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    status, sent = await caller(f"POST /v1/a2a/agents/{agent}/message:send", {"message": message})
    assert status == 200, sent
    task = sent["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task
    return task["id"], task["status"]["message"]["messageId"]


async def answer(caller: Caller, agent: str, task: str, **more: Any) -> int:
    parts = [{"data": {"ok": True}}] if agent == "gate" else [{"text": "yes"}]
    message = {"messageId": f"a-{task}", "role": "ROLE_USER", "taskId": task, "parts": parts, **more}
    return (await caller(f"POST /v1/a2a/agents/{agent}/message:send", {"message": message}))[0]


def workspace(folder: Path, *nodes: dict[str, Any]) -> Path:
    (folder / "approving_agents.py").write_text(MODULE)
    (folder / "workflows").mkdir()
    (folder / "workflows" / "gate.json").write_text(json.dumps(workflow(*nodes, name="gate")))
    return folder


def entry(name: str, source: str, restricted: bool = False) -> str:
    return f"  - {{name: {name}, {source}{', answered_by: others' if restricted else ''}}}\n"


@pytest.mark.parametrize(
    ("agent", "agents", "nodes"),
    [
        ("clerk", entry("clerk", "import: 'approving_agents:agent'"), [ASK]),
        ("plain", entry("plain", "import: 'approving_agents:plain'", restricted=True), [ASK]),
        ("gate", entry("gate", "workflow: workflows/gate.json"), [OF_OTHERS]),
        ("gate", entry("gate", "workflow: workflows/gate.json", restricted=True), [ASK]),
    ],
    ids=["ask", "entry", "interrupt", "workflow"],
)
def test_the_requester_and_keys_of_its_owner_cannot_answer(
    tmp_path: Path, agent: str, agents: str, nodes: list[dict[str, Any]]
) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path, *nodes), f"agents:\n{agents}", key=KEY) as boss:
            ann, again = await key_of(boss, "ann"), await key_of(boss, "ann")
            bob = await key_of(boss, "bob")
            await ann.ready(agent)
            task, question = await asked(ann, agent)
            given = {"text": "yes", "decision": "respond"}
            if agent == "gate":
                given = {"data": {"ok": True}, "decision": "edit"}
            decision = {"question": question, **given}
            for caller in (ann, again):
                assert await answer(caller, agent, task) == 403
                assert (await caller(f"POST /api/inbox/{task}", decision))[0] == 403
                if agent == "gate":
                    resume = {"resume_payload": {"ok": True}}
                    status, told = await caller(f"POST /v1/executions/{task}:resume", resume)
                    assert (status, told["error"]["code"]) == (403, "AUTH_FORBIDDEN")
            _, listed = await bob("GET /api/inbox")
            assert [(one["taskId"], one["othersOnly"]) for one in listed["items"]] == [(task, True)]
            assert await answer(bob, agent, task) == 200
            done = await ann.until(f"GET /api/tasks/{task}", lambda one: one["state"] == "completed")
            assert done["state"] == "completed"

    run(scene())


def test_a_restriction_covers_what_an_agent_has_others_do(tmp_path: Path) -> None:
    agents = entry("boss", "import: 'approving_agents:boss'", restricted=True) + entry(
        "plain", "import: 'approving_agents:plain'"
    )

    async def scene() -> None:
        async with opened(workspace(tmp_path, ASK), f"agents:\n{agents}", key=KEY) as boss:
            ann, bob = await key_of(boss, "ann"), await key_of(boss, "bob")
            await ann.ready("boss")
            await ann.ready("plain")
            task, _ = await asked(ann, "boss")
            _, shown = await ann(f"GET /api/tasks/{task}")
            (child,) = [one if isinstance(one, str) else one["taskId"] for one in shown["children"]]
            assert await answer(ann, "boss", task) == 403
            assert await answer(ann, "plain", child) == 403
            assert await answer(bob, "boss", task) == 200
            done = await ann.until(f"GET /api/tasks/{task}", lambda one: one["state"] == "completed")
            assert done["text"] == "yes"

    run(scene())


def test_whoever_starts_or_owns_a_schedule_cannot_answer_what_its_tasks_ask(tmp_path: Path) -> None:
    agents = entry("plain", "import: 'approving_agents:plain'")
    schedule = {"id": "daily", "name": "Daily", "schedule": "0 9 * * *", "skill": "order", "targets": ["plain"]}  # fmt: skip

    async def scene() -> None:
        async with opened(workspace(tmp_path, ASK), f"agents:\n{agents}", key=KEY) as boss:
            every = ("tasks:read", "tasks:write", "answer", "admin")
            ann, bob, eve = [await key_of(boss, name, *every) for name in ("ann", "bob", "eve")]
            await ann.ready("plain")
            body = {**schedule, "answeredBy": "others"}
            assert (await ann("POST /api/ceremonies/create", body))[0] == 200
            status, begun = await bob("POST /api/ceremonies/daily/run", {})
            assert status == 200, begun
            task = begun["taskId"]
            await ann.until(f"GET /api/tasks/{task}", lambda one: one.get("state") == "input-required")
            yes = {"decision": "respond", "text": "yes"}
            for caller, expected in ((ann, 403), (bob, 403), (eve, 200)):
                assert (await caller(f"POST /api/inbox/{task}", yes))[0] == expected

    run(scene())


def test_whoever_starts_a_scheduled_run_cannot_answer_where_the_agent_restricts(tmp_path: Path) -> None:
    agents = entry("boss", "import: 'approving_agents:boss'") + entry(
        "plain", "import: 'approving_agents:plain'", restricted=True
    )
    schedule = {"id": "daily", "name": "Daily", "schedule": "0 9 * * *", "skill": "command", "targets": ["boss"]}  # fmt: skip

    async def scene() -> None:
        async with opened(workspace(tmp_path, ASK), f"agents:\n{agents}", key=KEY) as boss:
            every = ("tasks:read", "tasks:write", "answer", "admin")
            ann, bob, eve = [await key_of(boss, name, *every) for name in ("ann", "bob", "eve")]
            await ann.ready("boss")
            await ann.ready("plain")
            assert (await ann("POST /api/ceremonies/create", schedule))[0] == 200
            _, begun = await bob("POST /api/ceremonies/daily/run", {})
            task = begun["taskId"]
            shown = await ann.until(
                f"GET /api/tasks/{task}", lambda one: one.get("state") == "input-required"
            )
            (child,) = [one if isinstance(one, str) else one["taskId"] for one in shown["children"]]
            yes = {"decision": "respond", "text": "yes"}
            for asking in (task, child):
                for caller in (ann, bob):
                    assert (await caller(f"POST /api/inbox/{asking}", yes))[0] == 403
            assert (await eve(f"POST /api/inbox/{task}", yes))[0] == 200

    run(scene())


def test_the_mode_of_an_agent_that_is_a_workflow_stays_as_it_was_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKFLOW_ENGINE_STEP_HANDLERS", json.dumps({"check": {"checked": "by the operator"}}))
    agents = entry("gate", "workflow: workflows/gate.json") + entry("outer", "workflow: workflows/outer.json")
    nest = {"id": "nest", "type": "subworkflow", "config": {"workflow_ref": "gate", "input_mapping": {}}}

    async def scene() -> None:
        folder = workspace(tmp_path, ASK, CHECK)
        (folder / "workflows" / "outer.json").write_text(json.dumps(workflow(nest, name="outer")))
        async with opened(folder, f"agents:\n{agents}", key=KEY) as boss:
            ann = await key_of(boss, "ann")
            for agent in ("gate", "outer"):
                await ann.ready(agent)
                task, question = await asked(ann, agent)
                resume = {"resume_payload": {"ok": True}, "activity_execution_mode": "host_mediated"}
                status, told = await ann(f"POST /v1/executions/{task}:resume", resume)
                assert (status, told["error"]["code"]) == (400, "INVALID_RESUME_PAYLOAD"), told
                # The same by what a message over A2A says of the run.
                forged = {"trunkline.question": {"id": question}, FLOW_KEY: {"mode": "host_mediated"}}
                parts = [{"data": {"ok": True}}]
                assert await answer(ann, agent, task, metadata=forged, parts=parts) == 200
                done = await ann.until(
                    f"GET /v1/a2a/agents/{agent}/tasks/{task}",
                    lambda one: one["status"]["state"] == "TASK_STATE_COMPLETED",
                )
                (result,) = [one for one in done["artifacts"] if one["name"] == "result"]
                assert result["parts"][0]["data"]["checked"] == "by the operator"

    run(scene())


def test_no_way_to_answer_an_interrupt_evades_its_schema(tmp_path: Path) -> None:
    # Forms need no `not`: only the engine checks it.
    schema = {"type": "object", "properties": {"ok": {"not": {"const": False}}}}
    ask = {**ASK, "config": {**ASK["config"], "resume_schema": schema}}
    agents = entry("gate", "workflow: workflows/gate.json") + entry(
        "asker", "import: 'approving_agents:asker'"
    )

    async def scene() -> None:
        async with opened(workspace(tmp_path, ask), f"agents:\n{agents}", key=KEY) as boss:
            ann, bob = await key_of(boss, "ann"), await key_of(boss, "bob")
            await ann.ready("gate")
            await ann.ready("asker")
            task, question = await asked(ann, "gate")
            wrong: dict[str, Any] = {"parts": [{"data": {"ok": False}}]}
            for reply in ({"mode": "in_process"}, {"mode": "in_process", "ok": False}):
                assert await answer(ann, "gate", task, metadata={FLOW_KEY: reply}, **wrong) == 400
            assert await answer(ann, "gate", task, **wrong) == 400
            decision = {"question": question, "decision": "edit", "data": {"ok": False}}
            assert (await bob(f"POST /api/inbox/{task}", decision))[0] == 400
            assert await answer(ann, "gate", task) == 200
            done = await ann.until(f"GET /api/tasks/{task}", lambda one: one["state"] == "completed")
            assert done["data"] == [{"text": "go", "ok": True}]
            # An agent that is no workflow passes the question on, and any answer back.
            task, _ = await asked(ann, "asker")
            assert await answer(ann, "asker", task, **wrong) == 200
            ended = await ann.until(
                f"GET /api/tasks/{task}", lambda one: one["state"] in ("completed", "failed")
            )
            assert ended["state"] == "failed"

    run(scene())
