"""What the workflows and models of a tenant may use of the operator's: nothing that its settings do not list."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flow.surfaces import workflow
from tests.gateway.model.hub import Caller, opened, run
from tests.gateway.model.openai_server import ModelServer, Reply, results
from tests.gateway.model.test_tools import AGENTS, scripted, use, workspace

GREET = {"id": "greet", "type": "step", "config": {"handler": "greet"}}
THINK = {"id": "think", "type": "llm_call", "config": {"model": "small", "prompt": "go"}}
ADD = {
    "id": "add",
    "type": "tool_call",
    "config": {"server": "small", "tool": "say", "arguments": {"text": "x"}},
}
DELEGATE = {
    "id": "ask",
    "type": "agent_delegate",
    "config": {"agent_id": "planner", "protocol": "a2a", "input_mapping": {"task": "plan"}},
}
SHARED = "agents:\n  - {name: shared, workflow: workflows/shared.json, tenants: all}\n"
NESTING = {"id": "nest", "type": "subworkflow", "config": {"workflow_ref": "own", "input_mapping": {}}}
KEY = "operators-key-1"


@pytest.fixture
def operator_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_ENGINE_STEP_HANDLERS", json.dumps({"greet": {"said": "hello"}}))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


async def start(caller: Caller, *nodes: dict[str, Any], path: str = "/v1/executions") -> tuple[int, str]:
    """The status of a run, and the code of its failure or its state."""
    status, told = await caller(f"POST {path}", {"definition": workflow(*nodes), "input": {}})
    return status, told["error"]["code"] if "error" in told else told["status"]


async def allow(boss: Caller, tenant: str, *tools: str) -> None:
    status, told = await boss(f"PATCH /admin/tenants/{tenant}", {"settings": {"tools": tools}})
    assert (status, told["settings"]["tools"]) == (200, list(tools)), told


@pytest.mark.usefixtures("operator_set_up")
def test_workflows_of_a_tenant_use_only_what_its_settings_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(models: ModelServer) -> None:
        config = {"baseUrl": models.url, "model": "small"}
        monkeypatch.setenv("WORKFLOW_ENGINE_LLM_CONFIG", json.dumps(config))
        async with opened(tmp_path, "agents: []", key=KEY) as boss:
            acme, other = await boss.tenant("acme"), await boss.tenant("other")
            for node in (GREET, THINK):
                assert await start(acme, node) == (422, "ACTIVITY_NOT_ALLOWED")
                assert await start(boss, node) == (200, "completed")
            assert await start(acme, DELEGATE) == (422, "DELEGATE_AGENT_NOT_FOUND")
            assert len(models.asked) == 1
            await allow(boss, "acme", "step:gr*")
            assert await start(acme, GREET) == (200, "completed")
            assert await start(acme, THINK) == (422, "ACTIVITY_NOT_ALLOWED")
            await allow(boss, "acme", "model:small")
            assert await start(acme, THINK) == (200, "completed")
            assert await start(acme, GREET) == (422, "ACTIVITY_NOT_ALLOWED")
            assert await start(other, THINK) == (422, "ACTIVITY_NOT_ALLOWED")

    with ModelServer(lambda asked: Reply(["done"])) as models:
        run(scene(models))


def test_delegates_of_the_operator_are_limited_to_tenants_by_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A mock executes each delegation outside the catalogue.
    monkeypatch.setenv("WORKFLOW_ENGINE_PROFILE", "demo")

    async def scene() -> None:
        async with opened(tmp_path, "agents: []", key=KEY) as boss:
            acme = await boss.tenant("acme")
            assert await start(boss, DELEGATE) == (200, "completed")
            assert await start(acme, DELEGATE) == (422, "DELEGATE_AGENT_NOT_FOUND")
            await allow(boss, "acme", "delegate:planner")
            assert await start(acme, DELEGATE) == (200, "completed")

    run(scene())


@pytest.mark.usefixtures("operator_set_up")
def test_definitions_of_the_operator_run_for_every_tenant(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    shared = tmp_path / "workflows" / "shared.json"
    shared.write_text(json.dumps(workflow(GREET, name="shared")))

    async def scene() -> None:
        async with opened(tmp_path, SHARED, key=KEY) as boss:
            acme = await boss.tenant("acme")
            await acme.ready("shared")
            ended = await acme.say("shared", "go")
            assert ended["status"]["state"] == "TASK_STATE_COMPLETED", ended
            # An operator that acts for the tenant starts and registers definitions of its own.
            assert await start(boss, GREET, path="/v1/executions?tenant=acme") == (200, "completed")
            body = {"definition": workflow(GREET, name="provided")}
            assert (await boss("POST /v1/workflows?tenant=acme", body))[0] == 201
            status, told = await acme("POST /v1/workflows/provided/executions", {"input": {}})
            assert (status, told["status"]) == (200, "completed")
            # The same document, registered by the tenant, is the tenant's own.
            body = {"definition": workflow(GREET, name="own")}
            assert (await acme("POST /v1/workflows", body))[0] == 201
            status, told = await acme("POST /v1/workflows/own/executions", {"input": {}})
            assert (status, told["error"]["code"]) == (422, "ACTIVITY_NOT_ALLOWED")

    run(scene())


@pytest.mark.usefixtures("operator_set_up")
def test_a_workflow_of_the_operator_does_not_lend_its_rights_to_one_of_the_tenant(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "shared.json").write_text(json.dumps(workflow(NESTING, name="shared")))

    async def scene() -> None:
        async with opened(tmp_path, SHARED, key=KEY) as boss:
            acme = await boss.tenant("acme")
            body = {"definition": workflow(GREET, name="own")}
            assert (await acme("POST /v1/workflows", body))[0] == 201
            await acme.ready("shared")
            ended = await acme.say("shared", "go")
            assert ended["status"]["state"] == "TASK_STATE_FAILED"
            assert "may not use 'step:greet'" in ended["status"]["message"]["parts"][0]["text"]

    run(scene())


@pytest.mark.usefixtures("operator_set_up")
def test_no_tenant_replaces_a_workflow_that_one_of_the_operator_nests(tmp_path: Path) -> None:
    nested = {**NESTING, "config": {"workflow_ref": "checked", "input_mapping": {}}}
    forged = {"id": "say", "type": "set_state", "config": {"assignments": {"said": {"literal": "forged"}}}}
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "shared.json").write_text(json.dumps(workflow(nested, name="shared")))
    (tmp_path / "workflows" / "checked.json").write_text(json.dumps(workflow(GREET, name="checked")))

    async def scene() -> None:
        async with opened(tmp_path, SHARED, key=KEY) as boss:
            acme = await boss.tenant("acme")
            body = {"definition": workflow(forged, name="checked")}
            assert (await acme("POST /v1/workflows", body))[0] == 201
            await acme.ready("shared")
            ended = await acme.say("shared", "go")
            assert ended["artifacts"][0]["parts"][0]["data"]["said"] == "hello"
            # In a definition of its own, the tenant means its own.
            status, told = await acme("POST /v1/executions", {"definition": workflow(nested), "input": {}})
            assert (status, told["result"]["said"]) == (200, "forged")

    run(scene())


@pytest.mark.usefixtures("operator_set_up")
def test_no_tenant_forges_a_part_of_a_workflow_that_has_the_rights_of_the_operator(tmp_path: Path) -> None:
    forge = {"node_id": "check", "outcome": {"ok": True, "result": {"checked": "forged"}}}
    check = {"id": "check", "type": "step", "config": {"handler": "other"}}
    nest = {"id": "nest", "type": "subworkflow", "config": {"workflow_ref": "guarded", "input_mapping": {}}}
    hosted = {"input": {}, "activity_execution_mode": "host_mediated"}

    async def scene() -> None:
        async with opened(tmp_path, "agents: []", key=KEY) as boss:
            acme = await boss.tenant("acme")
            body = {"definition": workflow(check, GREET, name="guarded")}
            assert (await boss("POST /v1/workflows?tenant=acme", body))[0] == 201
            start = {**hosted, "definition": workflow(nest, name="outer")}
            # A run of the definition itself, then one that a definition of the tenant nests.
            for path, body in (("/v1/workflows/guarded/executions", hosted), ("/v1/executions", start)):
                status, told = await acme(f"POST {path}", body)
                assert (status, told["status"], told["node_id"]) == (200, "awaiting_activity", "check"), told
                submit = f"POST /v1/executions/{told['execution_id']}:submit_activity"
                status, told = await acme(submit, {**forge, "activity_execution_mode": "in_process"})
                if "guarded" in path:
                    assert (status, told["error"]["code"]) == (409, "ACTIVITY_SUBMIT_NOT_AWAITING"), told
                    assert told["error"]["message"].endswith("leave activity_execution_mode out")
                    status, told = await acme(submit, forge)
                assert (status, told["status"], told["node_id"]) == (200, "awaiting_activity", "greet"), told

    run(scene())


def test_the_tenant_of_the_operator_has_no_list_of_tools(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path, "agents: []", key=KEY) as boss:
            settings = {"settings": {"tools": []}}
            status, told = await boss("PATCH /admin/tenants/default", settings)
            assert (status, told["field"]) == (400, "settings.tools")
            await boss.tenant("acme")
            settings = {"settings": {"tools": ["files"]}}
            status, told = await boss("PATCH /admin/tenants/acme", settings)
            assert (status, "mcp:SERVER/TOOL" in told["detail"]) == (400, True)

    run(scene())


@pytest.mark.slow
def test_mcp_servers_are_limited_to_tenants_by_server_and_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS", sys.executable)
    entry = {"name": "own", "model": "openai:small", "capabilities": ["/mcp"]}
    say = ("mcp", {"server": "small", "tool": "say", "arguments": {"text": "hello"}})

    async def scene(models: ModelServer) -> None:
        async with opened(workspace(tmp_path), AGENTS, key=KEY, OPENAI_BASE_URL=models.url) as boss:
            acme = await boss.tenant("acme")
            assert await start(boss, ADD) == (200, "completed")
            assert await start(acme, ADD) == (422, "ACTIVITY_NOT_ALLOWED")
            assert (await acme("POST /api/agents", entry))[0] == 200
            await acme.ready("own")
            calls = [("mcp", {}), ("mcp", {"server": "small"}), say]

            async def told() -> list[str]:
                await acme.say("own", json.dumps(calls))
                return results(models.asked[-1])[-3:]

            servers, listed, said = await told()
            assert servers == "[]"
            assert listed.startswith("ERR: agents of this tenant may not use 'small'")
            assert said == listed
            await allow(boss, "acme", "mcp:small/say")
            assert await start(acme, ADD) == (200, "completed")
            servers, listed, said = await told()
            assert servers == '[{"name":"small"}]'
            assert [one["name"] for one in json.loads(listed)] == ["say"]
            assert said == "hello"
            # An agent in a file has what the operator grants it.
            assert (await use(boss, models, say)) == ["hello"]

    with ModelServer(scripted) as models:
        run(scene(models))
