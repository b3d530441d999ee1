"""Workflows on a hub: agents of the catalogue that are workflows, delegates that are agents, and REST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.flow import vectors
from tests.flow.surfaces import ASK, SIGNAL, workflow
from tests.harness import ServerProcess
from trunkline.cli.hub_check import check
from trunkline.errors import Misuse
from trunkline.flow.definition.document import WORKFLOW_KIND
from trunkline.hub.hub import Hub
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient

WAIT_S = 30.0
MODULE = """
from trunkline import Agent, Turn

agent = Agent("Writer", on_crash="resume")

@agent.skill
async def draft(turn: Turn) -> str:
    return "a draft of " + turn.text

counter = Agent("Counter", on_crash="resume")

@counter.skill
async def count(turn: Turn) -> dict[str, float | None]:
    return {turn.text: turn.cost_left}
"""
AGENTS = """
agents:
  - {name: writer, import: "hub_flow_writer:agent"}
  - {name: release, workflow: workflows/release.json, description: Writes and asks.}
"""
COUNTER = """
agents:
  - {name: counter, import: "hub_flow_writer:counter"}
"""
DRAFT: dict[str, Any] = {
    "id": "draft",
    "type": "agent_delegate",
    "config": {"agent_id": "writer", "protocol": "a2a", "input_mapping": {"task": "${ .topic }"}},
}
RELEASE = workflow(DRAFT, ASK, name="Release note")


def workspace(tmp_path: Path, agents: str = AGENTS) -> Path:
    (tmp_path / "hub_flow_writer.py").write_text(MODULE)
    (tmp_path / "agents.yaml").write_text(agents)
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "release.json").write_text(msgspec.json.encode(RELEASE).decode())
    return tmp_path


class Caller:
    def __init__(self, hub: Hub) -> None:
        self._client = InProcessHttpClient(hub.host)
        self.docs = hub.host.store.docs

    async def __call__(self, asked: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        method, path = asked.split(" ")
        sent = None if body is None else msgspec.json.encode(body)
        login = (("x-api-key", key),) if key else ()
        headers = (("content-type", "application/json"), ("a2a-version", "1.0"), *login)
        response = await self._client.open(HttpRequest(method, f"http://localhost{path}", headers, sent))
        told = await response.read(1 << 20)
        await response.close()
        return response.status, msgspec.json.decode(told) if told else {}

    async def until(self, asked: str, is_so: Any) -> Any:
        async with asyncio.timeout(WAIT_S):
            while True:
                _, told = await self(asked)
                if is_so(told):
                    return told
                await asyncio.sleep(0.02)


@asynccontextmanager
async def opened(folder: Path, **flags: Any) -> AsyncGenerator[Caller]:
    hub = Hub(folder, {"store": "memory:", **flags}, {})
    async with hub.host.lifespan():
        caller = Caller(hub)
        yield caller


def run(scene: Any) -> None:
    asyncio.run(asyncio.wait_for(scene, 2 * WAIT_S))


def said(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"messageId": f"m-{len(more)}", "role": "ROLE_USER", "parts": [{"data": data}], **more}
    return {"message": message}


def test_a_workflow_is_an_agent_that_delegates_asks_and_ends(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path)) as ask:
            listed = {one["name"]: one for one in (await ask("GET /api/agents"))[1]["items"]}
            assert (listed["release"]["kind"], listed["release"]["state"]) == ("flow", "ready")
            assert [one["id"] for one in listed["release"]["skills"]] == ["release"]
            _, card = await ask("GET /v1/a2a/agents/release/agent-card.json")
            assert (card["name"], card["description"]) == ("release", "Writes and asks.")
            place = "/v1/a2a/agents/release"
            _, sent = await ask(f"POST {place}/message:send", said({"topic": "tea"}))
            task_id = sent["task"]["id"]
            task = await ask.until(
                f"GET {place}/tasks/{task_id}",
                lambda one: one["status"]["state"] == "TASK_STATE_INPUT_REQUIRED",
            )
            assert "May it go out?" in str(task["status"]["message"])
            # The same question stands in the inbox; the child that drafted is a task of its agent.
            _, inbox = await ask("GET /api/inbox")
            assert [one["taskId"] for one in inbox["items"]] == [task_id]
            _, children = await ask("GET /api/tasks?agent=writer")
            assert [one["state"] for one in children["items"]] == ["completed"]
            status, _ = await ask(f"POST /api/inbox/{task_id}", {"decision": "edit", "data": {"ok": True}})
            assert status == 200
            task = await ask.until(
                f"GET {place}/tasks/{task_id}",
                lambda one: one["status"]["state"] == "TASK_STATE_COMPLETED",
            )
            assert task["artifacts"][0]["parts"][0]["data"]["ok"] is True
            assert "a draft of tea" in str(task["artifacts"][0]["parts"][0]["data"])
            # Whoever knows runs finds it by the id of its task.
            _, told = await ask(f"GET /v1/executions/{task_id}")
            assert told["phase"] == "completed"

    run(scene())


def test_workflows_of_files_are_started_and_nested_by_their_names(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path)) as ask:
            status, told = await ask("GET /v1/workflows/release")
            assert (status, told["definition"]["document"]["name"]) == (200, "Release note")
            status, told = await ask(
                "POST /v1/workflows/release/executions", {"input": {"topic": "tea"}, "execution_id": "r1"}
            )
            assert (status, told["status"], told["node_id"]) == (200, "interrupted", "ask")
            assert "a draft of tea" in str(told["state"])
            nest = {
                "id": "nest",
                "type": "subworkflow",
                "config": {"workflow_ref": "release", "input_mapping": {"topic": {"literal": "milk"}}},
            }
            status, told = await ask(
                "POST /v1/executions", {"definition": workflow(nest), "input": {}, "execution_id": "outer"}
            )
            assert (status, told["status"]) == (200, "interrupted")

    run(scene())


def test_the_example_that_delegates_is_done_by_an_agent_elsewhere(tmp_path: Path) -> None:
    """By A2A itself, over a socket, to an agent in another process."""
    delegating = vectors.example("conformance-agent-delegate-linear")
    (tmp_path / "hub").mkdir()
    code = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with ServerProcess(tmp_path, "tests.flow.coder:agent", store="memory:", env=code) as server:

        async def scene() -> None:
            agents = f"agents:\n  - {{name: coder, url: '{server.base}'}}\n"
            async with opened(workspace(tmp_path / "hub", agents)) as ask:
                await ask.until("GET /api/agents/coder", lambda one: one.get("state") == "ready")
                start = {"definition": delegating, "input": {"task": "add a test"}, "execution_id": "far"}
                status, told = await ask("POST /v1/executions", start)
                assert (status, told["status"], told["result"]) == (
                    200, "completed", {"task": "add a test", "patch": "// add a test"},
                )  # fmt: skip
                _, told = await ask("GET /v1/executions/far")
                assert told["delegate_correlation_id"] == "far:delegate:implement"
                _, told = await ask("GET /v1/executions/far/events")
                (done,) = [row["payload"] for row in told["events"] if row["name"] == "ActivityCompleted"]
                assert done["result"]["patch"] == "// add a test"
                _, children = await ask("GET /api/tasks?agent=coder")
                assert [one["taskId"] for one in children["items"]] == [done["externalTaskId"]]

        run(scene())


def test_a_delegation_to_an_agent_that_is_not_in_the_catalogue_fails(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path)) as ask:
            config = {**DRAFT["config"], "agent_id": "nobody"}
            odd = workflow({**DRAFT, "config": config})
            status, told = await ask("POST /v1/executions", {"definition": odd, "input": {"topic": "tea"}})
            assert (status, told["error"]["code"]) == (422, "DELEGATE_AGENT_NOT_FOUND")
            assert "'nobody'" in told["error"]["message"]
            # One that is disabled takes nothing new, from a run no more than from anybody.
            assert (await ask("POST /api/agents/writer/disable"))[0] == 200
            order = {"definition": workflow(DRAFT), "input": {"topic": "tea"}}
            status, told = await ask("POST /v1/executions", order)
            assert (status, told["error"]["code"]) == (422, "DELEGATE_AGENT_NOT_FOUND")

    run(scene())


def test_a_run_delegates_to_no_agent_that_only_another_tenant_has(tmp_path: Path) -> None:
    agents = AGENTS.replace("}\n  - {name: release", ", tenants: [north]}\n  - {name: release")

    async def scene() -> None:
        async with opened(workspace(tmp_path, agents)) as ask:
            told: list[Any] = []
            for name in ("writer", "nobody"):
                odd = workflow({**DRAFT, "config": {**DRAFT["config"], "agent_id": name}})
                status, answer = await ask(
                    "POST /v1/executions",
                    {"definition": odd, "input": {"topic": "tea"}},
                )
                assert status == 422
                told.append(answer["error"]["message"].replace(name, "NAME"))
                assert answer["error"]["code"] == "DELEGATE_AGENT_NOT_FOUND"
            # Whether anybody has it is nobody else's business.
            assert told[0] == told[1]

    run(scene())


def test_a_run_is_known_to_who_asked_for_it_and_to_admins(tmp_path: Path) -> None:
    boss = "operators-key-1"

    async def scene() -> None:
        async with opened(workspace(tmp_path), keys=(boss,)) as ask:
            scopes = ["tasks:read", "tasks:write"]
            made = [
                await ask("POST /admin/keys", {"owner": name, "scopes": scopes}, boss)
                for name in ("ann", "bob")
            ]
            ann, bob = [told["token"] for _, told in made]
            start = {"definition": workflow(ASK), "input": {"topic": "tea"}, "execution_id": "hers"}
            assert (await ask("POST /v1/executions", start, ann))[1]["status"] == "interrupted"
            _, told = await ask("POST /v1/a2a/agents/release/message:send", said({"topic": "tea"}), ann)
            routes = ("GET {}", "GET {}/events", "GET {}/checkpoint", "POST {}:resume", "POST {}:cancel")
            for one in ("hers", told["task"]["id"]):
                for asked in routes:
                    body = {"resume_payload": {"ok": True}} if asked.startswith("POST") else None
                    refused = await ask(asked.format(f"/v1/executions/{one}"), body, bob)
                    # As if it were not there.
                    assert str(refused).replace(one, "none") == str(
                        await ask(asked.format("/v1/executions/none"), body, bob)
                    )
            again = {**start, "allow_existing_execution_id": True}
            _, told = await ask("POST /v1/executions", again, bob)
            assert told["error"]["code"] == "DUPLICATE_EXECUTION_ID"
            assert (await ask("POST /v1/executions", again, ann))[1]["status"] == "interrupted"
            lists = [await ask("GET /v1/executions", None, key) for key in (ann, bob, boss)]
            assert [len(told["executions"]) for _, told in lists] == [2, 0, 2]
            resumed = await ask("POST /v1/executions/hers:resume", {"resume_payload": {"ok": True}}, boss)
            assert resumed[1]["status"] == "completed"

    run(scene())


def test_what_a_message_to_a_workflow_says_of_runs_is_not_believed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path)) as ask:
            ids: list[str] = []
            for number, told in enumerate((5, {"execution": "other", "definition": "none", "name": "Other"})):
                message = said({"topic": "tea"}, messageId=f"odd-{number}", metadata={"trunkline.flow": told})
                _, answer = await ask("POST /v1/a2a/agents/release/message:send", message)
                ids.append(answer["task"]["id"])
            status, told = await ask("GET /v1/executions")
            assert (status, sorted([one["execution_id"] for one in told["executions"]])) == (200, sorted(ids))
            assert "Other" not in str(told)
            for one in ids:
                assert (await ask(f"GET /v1/executions/{one}"))[1]["phase"] == "interrupted"

    run(scene())


def test_a_chain_of_workflows_and_agents_that_is_a_loop_is_cut(tmp_path: Path) -> None:
    nest = {"id": "nest", "type": "subworkflow", "config": {"workflow_ref": "inner", "input_mapping": {}}}
    call = {**DRAFT, "config": {**DRAFT["config"], "agent_id": "loop"}}

    async def scene() -> None:
        async with opened(workspace(tmp_path, "agents: []")) as ask:
            await ask("POST /v1/workflows", {"definition": workflow(call, name="Inner")})
            await ask("POST /v1/workflows", {"definition": workflow(nest, name="Outer")})
            await ask("POST /api/agents", {"name": "loop", "workflow": "outer"})
            await ask.until("GET /api/agents/loop", lambda one: one.get("state") == "ready")
            _, told = await ask("POST /v1/a2a/agents/loop/message:send", said({"topic": "tea"}))
            task = f"GET /v1/a2a/agents/loop/tasks/{told['task']['id']}"
            ended = await ask.until(task, lambda one: one["status"]["state"] == "TASK_STATE_FAILED")
            assert "hop_limit" in str(ended["status"]["message"])
            assert len((await ask("GET /api/tasks?agent=loop"))[1]["items"]) == 8

    run(scene())


def test_what_a_chain_may_cost_is_shared_by_all_that_a_workflow_has_done(tmp_path: Path) -> None:
    def count(word: str) -> dict[str, Any]:
        asked = {"agent_id": "counter", "protocol": "a2a", "input_mapping": {"task": {"literal": word}}}
        return {"id": word, "type": "agent_delegate", "config": asked}

    nest = {"id": "nest", "type": "subworkflow", "config": {"workflow_ref": "inner", "input_mapping": {}}}

    async def scene() -> None:
        async with opened(workspace(tmp_path, COUNTER)) as ask:
            await ask("POST /v1/workflows", {"definition": workflow(count("third"), name="Inner")})
            whole = workflow(count("first"), ASK, count("second"), nest, count("last"), name="Whole")
            await ask("POST /v1/workflows", {"definition": whole})
            await ask("POST /api/agents", {"name": "whole", "workflow": "whole"})
            await ask.until("GET /api/agents/whole", lambda one: one.get("state") == "ready")
            place = "/v1/a2a/agents/whole"
            given = said({}, metadata={"trunkline.chain": {"cost": 1.6}})
            _, sent = await ask(f"POST {place}/message:send", given)
            task_id = sent["task"]["id"]
            # The run is walked anew when it is answered, and knows what it has given away.
            answer = {"decision": "edit", "data": {"ok": True}}
            assert (await ask(f"POST /api/inbox/{task_id}", answer))[0] == 200
            task = await ask.until(
                f"GET {place}/tasks/{task_id}",
                lambda one: one["status"]["state"] == "TASK_STATE_COMPLETED",
            )
            left = task["artifacts"][0]["parts"][0]["data"]
            found = {name: round(left[name], 6) for name in ("first", "second", "third", "last")}
            # What is nested has its share, and gives a half of that.
            assert found == {"first": 0.8, "second": 0.4, "third": 0.1, "last": 0.1}

    run(scene())


def test_a_registered_workflow_becomes_an_agent_by_its_id(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path, "agents: []")) as ask:
            await ask("POST /v1/workflows", {"definition": workflow(SIGNAL, name="Held back")})
            status, _ = await ask("POST /api/agents", {"name": "held", "workflow": "held-back"})
            assert status == 200
            await ask.until("GET /api/agents/held", lambda one: one.get("state") == "ready")
            status, told = await ask(
                "POST /api/agents", {"name": "file", "workflow": "workflows/release.json"}
            )
            assert (status, told["field"]) == (400, "workflow")
            await ask("POST /api/agents", {"name": "none", "workflow": "nowhere"})
            found = await ask.until("GET /api/agents/none", lambda one: one.get("state") == "invalid")
            assert "nowhere" in found["reason"]

    run(scene())


@pytest.mark.parametrize("gone", ["file", "entry"])
def test_begun_run_outlives_a_restart_without_its_file_or_entry(gone: str, tmp_path: Path) -> None:
    async def scene() -> None:
        folder, store = workspace(tmp_path), f"sqlite:///{tmp_path}/hub.db"
        async with opened(folder, store=store) as ask:
            _, sent = await ask("POST /v1/a2a/agents/release/message:send", said({"topic": "tea"}))
            task = f"GET /api/tasks/{sent['task']['id']}"
            await ask.until(task, lambda one: one["state"] == "input-required")
        if gone == "file":
            (folder / "workflows" / "release.json").unlink()
        else:
            (folder / "agents.yaml").write_text(AGENTS.replace("  - {name: release", "#"))
        async with opened(folder, store=store) as ask:
            answer = {"decision": "edit", "data": {"ok": True}}
            assert (await ask(f"POST /api/inbox/{sent['task']['id']}", answer))[0] == 200
            await ask.until(task, lambda one: one["state"] == "completed")
            _, found = await ask("POST /api/dispatch", {"agent": "release", "message": "tea"})
            assert found["tasks"][0]["state"] == "rejected"

    run(scene())


def test_a_file_that_changes_is_taken_up_and_begun_runs_keep_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.hub.workflow_files.WATCH_S", 0.05)

    async def scene() -> None:
        folder = workspace(tmp_path)
        async with opened(folder) as ask:
            place = "/v1/a2a/agents/release"
            _, sent = await ask(f"POST {place}/message:send", said({"topic": "tea"}))
            begun = sent["task"]["id"]
            await ask.until(
                f"GET {place}/tasks/{begun}",
                lambda one: one["status"]["state"] == "TASK_STATE_INPUT_REQUIRED",
            )
            other = workflow(name="Another one")
            (folder / "workflows" / "release.json").write_text(msgspec.json.encode(other).decode())
            await ask.until("GET /api/agents/release", lambda one: one["skills"][0]["name"] == "Another one")
            await ask(f"POST /api/inbox/{begun}", {"decision": "edit", "data": {"ok": True}})
            task = await ask.until(
                f"GET {place}/tasks/{begun}", lambda one: one["status"]["state"] == "TASK_STATE_COMPLETED"
            )
            assert task["artifacts"][0]["parts"][0]["data"]["ok"] is True
            # Each is in the logs of its runs, and nowhere else.
            assert await ask.docs.list("default", WORKFLOW_KIND) == []

    run(scene())


def test_a_workflow_whose_entry_comes_back_is_ready_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was removed, by a file or the API, and after an agent of the hub had its name for a while."""
    monkeypatch.setattr("trunkline.fleet.catalogue.files.WATCH_S", 0.05)

    async def scene() -> None:
        folder = workspace(tmp_path)
        async with opened(folder) as ask:
            await ask("POST /v1/workflows", {"definition": workflow(SIGNAL, name="Held back")})
            await ask("POST /api/agents", {"name": "held", "workflow": "held-back"})

            async def lists(agents: str, **states: str) -> None:
                (folder / "agents.yaml").write_text(agents)
                for name, state in states.items():
                    await ask.until(
                        f"GET /api/agents/{name}", lambda one, wanted=state: one.get("state", "") == wanted
                    )

            await lists(AGENTS, release="ready", held="ready")
            await lists("agents: []", release="", held="ready")
            await lists(AGENTS, release="ready", held="ready")
            _, told = await ask("GET /api/agents/release")
            assert [one["id"] for one in told["skills"]] == ["release"]
            await ask("DELETE /api/agents/held")
            await ask("POST /api/agents", {"name": "held", "workflow": "held-back"})
            await lists(AGENTS, held="ready")
            await lists(AGENTS + "  - {name: held, import: 'hub_flow_writer:agent'}\n", held="ready")
            await lists(AGENTS, held="ready")
            await ask.until("GET /api/agents/held", lambda one: one["kind"] == "flow")
            await lists(AGENTS, held="ready")

    run(scene())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "invalid JSON"),
        ('{"document": 7}', "release.json"),
        (msgspec.json.encode(workflow(edges=[])).decode(), "release.json, line 1"),
    ],
)
def test_what_is_wrong_with_a_workflow_is_told_by_check(tmp_path: Path, text: str, words: str) -> None:
    folder = workspace(tmp_path)
    (folder / "workflows" / "release.json").write_text(text)
    wrong = check(str(folder))
    assert len(wrong) == 1
    assert words in wrong[0]


def test_an_entry_whose_workflow_is_not_there_is_told_by_check(tmp_path: Path) -> None:
    folder = workspace(tmp_path, 'agents: [{name: a, workflow: "workflows/none.yaml"}]')
    assert "agents.yaml, line 1: a: workflows/none.yaml: there is no such file" in check(str(folder))


def test_a_variable_of_the_environment_that_is_wrong_stops_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKFLOW_ENGINE_A2A_CONFIG", "{}")
    with pytest.raises(Misuse, match="WORKFLOW_ENGINE_A2A_CONFIG"):
        Hub(workspace(tmp_path), {"store": "memory:"}, {})
