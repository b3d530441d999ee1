from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flow.web import WrittenClient
from tests.mcp.test_servers import SMALL
from trunkline.auth.principal import Scope
from trunkline.auth.references import Secrets
from trunkline.errors import Misuse
from trunkline.flow.activities.base import Activity, DelegateOrder
from trunkline.flow.definition.document import Node
from trunkline.flow.operator import FlowExecutors, read_operator

STEP = Activity("e1", Node("a", "step", {"handler": "urn:x"}), {})
TOOL = Activity("e1", Node("b", "tool_call", {"server": "desk", "tool": "t"}), {})


def executors(**variables: str) -> FlowExecutors:
    named = {f"WORKFLOW_ENGINE_{name}": value for name, value in variables.items()}
    return FlowExecutors(read_operator(named), WrittenClient((500, "")), Secrets(named))


def order(protocol: str) -> DelegateOrder:
    return DelegateOrder("e1", Node("d", "agent_delegate", {"agent_id": "x"}), {}, {}, protocol, "c1")


async def test_where_nothing_is_set_up_nothing_is_done_and_the_error_says_what_to_set() -> None:
    both = executors()
    assert set(both.routing.values()) == {"missing"}
    found = await both.activities.execute(TOOL)
    assert found.code == "COMPOSITE_EXECUTOR_NOT_CONFIGURED"
    assert found.error.endswith(
        "; set mcp_manifest (default: the file mcp.json) or WORKFLOW_ENGINE_MCP_CONFIG"
    )
    for protocol, setting in (
        ("a2a", "; set WORKFLOW_ENGINE_A2A_CONFIG or the setting flow_delegates"),
        (
            "mcp",
            "; set delegateAgents in the manifest of WORKFLOW_ENGINE_MCP_CONFIG or the setting flow_delegates",
        ),
        ("sdk", "; set flow_delegates"),
    ):
        found = await both.delegates.delegate(order(protocol))
        assert found.code == "DELEGATE_PROTOCOL_UNSUPPORTED"
        assert found.error.endswith(setting)


@pytest.mark.slow
async def test_a_manifest_that_appears_or_changes_counts_from_the_next_tool_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS", sys.executable)
    file = tmp_path / "mcp.json"
    both = FlowExecutors(read_operator({}, optional_manifest=str(file)), WrittenClient((500, "")))
    call = {"server": "small", "tool": "variable", "arguments": {"name": "WHO"}}
    activity = Activity("e1", Node("b", "tool_call", call), {})

    assert (await both.activities.execute(activity)).code == "COMPOSITE_EXECUTOR_NOT_CONFIGURED"
    for value in ("one", "other"):
        file.write_text(json.dumps({"mcpServers": {"small": SMALL | {"env": {"WHO": value}}}}))
        assert (await both.activities.execute(activity)).output == {"value": value}
    await both.close()

    started = FlowExecutors(read_operator({}, optional_manifest=str(file)), WrittenClient((500, "")))
    assert (await started.activities.execute(activity)).output == {"value": "other"}
    file.write_text(json.dumps({"mcpServers": {"small": SMALL | {"env": {"WHO": "third"}}}}))
    assert (await started.activities.execute(activity)).output == {"value": "third"}
    await started.close()


async def test_an_agent_that_a_catalogue_does_not_list_is_not_found() -> None:
    both = FlowExecutors(read_operator({}), WrittenClient((500, "")), catalogue=True)
    found = await both.delegates.delegate(order("a2a"))
    assert (found.code, "'x'" in found.error) == ("DELEGATE_AGENT_NOT_FOUND", True)
    assert found.error.endswith("; add it, or set WORKFLOW_ENGINE_A2A_CONFIG or the setting flow_delegates")


async def test_where_something_is_set_up_the_rest_is_missing() -> None:
    both = executors(STEP_HANDLERS='{"urn:x": {"n": 1}}')
    assert both.routing["step"] == "production"
    assert both.routing["llm_call"] == both.routing["a2a"] == "missing"
    assert (await both.activities.execute(STEP)).output == {"n": 1}
    assert (await both.activities.execute(TOOL)).code == "COMPOSITE_EXECUTOR_NOT_CONFIGURED"
    assert (await both.delegates.delegate(order("a2a"))).code == "DELEGATE_PROTOCOL_UNSUPPORTED"


async def test_the_demo_profile_has_stubs_beside_what_is_set_up() -> None:
    both = executors(STEP_HANDLERS='{"urn:x": {"n": 1}}', PROFILE="demo")
    assert both.routing["tool_call"] == "stub(demo)"
    assert (await both.activities.execute(STEP)).output == {"n": 1}
    assert (await both.activities.execute(TOOL)).ok
    assert (await both.delegates.delegate(order("a2a"))).ok


async def test_a_manifest_and_endpoints_are_used(tmp_path: Path) -> None:
    """A reference to a secret is resolved when it is needed (D18)."""
    manifest = tmp_path / "mcp.json"
    manifest.write_text(
        json.dumps(
            {
                "mcpServers": {"desk": {"command": "curl"}},
                "delegateAgents": {"x": {"server": "none", "tool": "t"}},
            }
        )
    )
    config = tmp_path / "a2a.json"
    config.write_text(json.dumps({"baseUrl": "http://a", "apiKeySecretRef": "env:NOT_SET"}))
    both = executors(
        MCP_CONFIG=str(manifest), A2A_CONFIG=str(config), LLM_CONFIG='{"model": "m", "apiKeyEnv": "NOT_SET"}'
    )
    assert [name for name, how in both.routing.items() if how == "production"] == [
        "llm_call", "tool_call", "a2a", "mcp",
    ]  # fmt: skip
    assert (await both.activities.execute(TOOL)).code == "MCP_COMMAND_NOT_ALLOWED"
    assert (await both.delegates.delegate(order("mcp"))).code == "DELEGATE_AGENT_NOT_FOUND"
    assert (await both.delegates.delegate(order("a2a"))).code == "A2A_CREDENTIALS_MISSING"
    asked = Activity("e1", Node("c", "llm_call", {}), {})
    missing = await both.activities.execute(asked)
    assert (missing.code, "set OPENAI_API_KEY" in missing.error) == ("LLM_CREDENTIALS_MISSING", True)
    await both.close()


def test_members_of_other_engines_are_ignored() -> None:
    assert executors(LLM_CONFIG='{"model": "m", "provider": "openai"}').routing["llm_call"] == "production"


def test_a_token_that_is_listed_twice_has_the_scopes_of_both() -> None:
    text = (
        '[{"token": "t-secret-1", "scopes": ["start"]}, {"token": "t-secret-2", "scopes": ["read_history"]},'
        ' {"token": "t-secret-1", "scopes": ["read_history"]}]'
    )
    found = read_operator({"WORKFLOW_ENGINE_AUTH_TOKENS": text}).tokens
    assert [one.reveal() for one, _ in found] == ["t-secret-1", "t-secret-2"]
    assert [whose.scopes for _, whose in found] == [{Scope.START, Scope.HISTORY}, {Scope.HISTORY}]


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"A2A_CONFIG": "{}"}, "baseUrl is missing"),
        ({"A2A_CONFIG": '{"baseUrl": 7}'}, "baseUrl is a text"),
        ({"A2A_CONFIG": '{"baseUrl": "http://a", "pollIntervalMs": "x"}'}, "pollIntervalMs is a number"),
        (
            {"A2A_CONFIG": '{"baseUrl": "http://a", "apiKeyEnv": "A", "apiKeySecretRef": "env:A"}'},
            "not both",
        ),
        ({"A2A_CONFIG": '{"basUrl": "http://a"}'}, "unknown member 'basUrl'; did you mean 'baseUrl'"),
        ({"LLM_CONFIG": '{"timeoutMS": 5}'}, "unknown member 'timeoutMS'; did you mean 'timeoutMs'"),
        ({"LLM_CONFIG": "{"}, "LLM_CONFIG is not JSON"),
        ({"LLM_CONFIG": "/no/such/file"}, "LLM_CONFIG"),
        ({"STEP_HANDLERS": '{"urn:x": 7}'}, "'urn:x' is an object"),
        ({"PROFILE": "production"}, "PROFILE"),
        ({"DEFINITION_SIGNING_MODE": "never"}, "DEFINITION_SIGNING_MODE"),
        ({"SIGNING_PUBLIC_KEYS": '{"a": "b"}'}, "SIGNING_PUBLIC_KEYS"),
        ({"AUTH_TOKENS": "[{}]"}, "list of objects with token and scopes"),
        ({"AUTH_TOKENS": '[{"token": "t-secret", "scopes": ["odd"]}]'}, "no scope 'odd'"),
        ({"AUTH_TOKENS": '[{"token": "", "scopes": ["start"]}]'}, "AUTH_TOKENS"),
        ({"MCP_CONFIG": "/no/such/mcp.json"}, "no such manifest"),
    ],
)
def test_a_wrong_value_stops_the_start_with_its_name(variables: dict[str, Any], text: str) -> None:
    with pytest.raises(Misuse, match=text):
        executors(**variables)
