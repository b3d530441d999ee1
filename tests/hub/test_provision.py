"""What a workflow needs and nobody provides, by the configuration of the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.definition.sample import line, node
from trunkline.flow.activities.steps import StepRegistry
from trunkline.flow.operator import read_operator
from trunkline.hub.provision import Provision, find_unprovided

STEPS = "def put(context):\n    return {}\n"
MANIFEST = '{"mcpServers": {"files": {"command": "node"}}, "delegateAgents": {"coder": {"server": "files", "tool": "t"}}}'


def step(name: str) -> dict[str, Any]:
    return node("step", "work", handler=name)


def delegate(agent: str, protocol: str) -> dict[str, Any]:
    return node("agent_delegate", "work", agent_id=agent, protocol=protocol, input_mapping={})


def found(one: dict[str, Any], provision: Provision) -> tuple[list[str], list[str]]:
    """Return the errors and the warnings of a workflow with one node."""
    unprovided = find_unprovided(line(one), provision)
    errors, warnings = [[str(each) for each in some] for some in (unprovided.errors, unprovided.warnings)]
    return errors, warnings


@pytest.fixture
def configured(tmp_path: Path) -> Provision:
    (tmp_path / "unprovided_steps.py").write_text(STEPS)
    (tmp_path / "mcp.json").write_text(MANIFEST)
    variables = {
        "WORKFLOW_ENGINE_STEP_HANDLERS": '{"fixed": {}}',
        "WORKFLOW_ENGINE_LLM_CONFIG": "{}",
        "WORKFLOW_ENGINE_MCP_CONFIG": str(tmp_path / "mcp.json"),
    }
    steps = StepRegistry(modules=["unprovided_steps", "nowhere"])
    return Provision(read_operator(variables, steps=steps), (str(tmp_path),))


@pytest.mark.parametrize(
    ("one", "error"),
    [
        (step("fixed"), ""),
        (step("unprovided_steps:put"), ""),
        (step("nobody"), "/nodes/1/config/handler: no function is registered as 'nobody'"),
        (step("os:system"), "/nodes/1/config/handler: no function is registered as 'os:system'"),
        (step("unprovided_steps:gone"), "module 'unprovided_steps' has no 'gone'"),
        (step("nowhere:put"), "module 'nowhere' not found"),
        (node("step", "work"), "a step names its function in handler"),
        (node("llm_call", "work", model="small"), ""),
        (
            node("llm_call", "work"),
            "/nodes/1/config/model: name a model here or in WORKFLOW_ENGINE_LLM_CONFIG",
        ),
        (node("tool_call", "work", server="files", tool="t"), ""),
        (
            node("tool_call", "work", server="gone", tool="t"),
            "MCP server 'gone' not found; the manifest has files",
        ),
        (delegate("coder", "mcp"), ""),
        (delegate("gone", "mcp"), "agent 'gone' not found among the delegateAgents of the manifest"),
    ],
)
def test_name_that_the_configuration_does_not_have_is_an_error(
    configured: Provision, one: dict[str, Any], error: str
) -> None:
    errors, warnings = found(one, configured)
    assert warnings == []
    assert len(errors) == bool(error)
    assert all(error in each for each in errors)


@pytest.mark.parametrize(
    ("one", "setting"),
    [
        (step("nobody"), "WORKFLOW_ENGINE_STEP_HANDLERS"),
        (node("llm_call", "work", model="small"), "WORKFLOW_ENGINE_LLM_CONFIG"),
        (node("tool_call", "work", server="s", tool="t"), "mcp_manifest"),
        (delegate("coder", "a2a"), "WORKFLOW_ENGINE_A2A_CONFIG"),
        (delegate("coder", "mcp"), "delegateAgents in the manifest of WORKFLOW_ENGINE_MCP_CONFIG"),
        (delegate("coder", "sdk"), "flow_delegates"),
    ],
)
def test_kind_of_node_that_is_not_configured_is_a_warning_with_its_setting(
    one: dict[str, Any], setting: str
) -> None:
    errors, (warning,) = found(one, Provision(read_operator({})))
    assert errors == []
    assert f"set {setting}" in warning
    demo = Provision(read_operator({"WORKFLOW_ENGINE_PROFILE": "demo"}))
    assert found(one, demo) == ([], [])


def test_agent_of_a_hub_takes_delegations_of_any_protocol() -> None:
    hub = Provision(read_operator({}), agents=frozenset({"coder"}))
    for protocol in ("a2a", "mcp", "sdk"):
        assert found(delegate("coder", protocol), hub) == ([], [])
    errors, _ = found(delegate("gone", "a2a"), hub)
    assert errors == ["/nodes/1/config/agent_id: agent 'gone' not found in the files of this hub"]
    misspelt, _ = found(delegate("coderr", "a2a"), hub)
    assert misspelt[0].endswith("agent 'coderr' not found in the files of this hub; did you mean 'coder'?")
    tasks = read_operator({"WORKFLOW_ENGINE_A2A_CONFIG": '{"baseUrl": "http://x"}'})
    assert found(delegate("gone", "a2a"), Provision(tasks, agents=frozenset())) == ([], [])


def test_nested_workflow_that_no_file_has_is_reported() -> None:
    def nested(ref: str, **more: Any) -> tuple[list[str], list[str]]:
        one = node("subworkflow", "work", workflow_ref=ref, input_mapping={}, **more)
        unprovided = find_unprovided(line(one), hub)
        assert unprovided.warnings == []
        return [str(each) for each in unprovided.errors], [str(each) for each in unprovided.doubts]

    hub = Provision(read_operator({}), workflows={"check": "ab12", "broken": ""})
    for ref in ("check", "broken", "https://flows.example/check.json"):
        assert nested(ref) == ([], [])
    # A workflow may be registered later, so this is no error.
    errors, (doubt,) = nested("chekc")
    assert errors == []
    assert "/nodes/1/config/workflow_ref: workflow 'chekc' not found in the files of this hub" in doubt
    assert "did you mean 'check'?" in doubt
    (error,), doubts = nested("check", version_pin="cd34")
    assert doubts == []
    assert error == "/nodes/1/config/version_pin: workflow 'check' has the hash ab12"
    assert nested("check", version_pin="ab12") == ([], [])
