"""Delegates and transports that an operator names by the setting `flow_delegates`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.delegates.test_mock import order
from tests.flow.web import WrittenClient
from trunkline.auth.references import Secrets
from trunkline.config import load
from trunkline.errors import Misuse
from trunkline.flow.delegates.configured import NamedDelegate, load_delegates
from trunkline.flow.operator import FlowExecutors, read_operator

MODULE = """
from trunkline.flow.activities.base import Outcome
from trunkline.flow.delegates.tasks import TaskRecord

def code(order):
    return {"patch": order.input["task"]}

agents = {"coder": code}
number = 7

class Everything:
    async def delegate(self, order):
        return Outcome(ok=True, output={"by": order.protocol})

class Vendor:
    def __init__(self):
        self.keys = []

    async def submit_task(self, *, api_key, agent_id, correlation_id, input):
        self.keys.append(api_key)
        return TaskRecord(correlation_id, "completed", {"key": api_key, "agent": agent_id})

    async def get_task(self, api_key, task_id):
        raise AssertionError("it has ended")

vendor = Vendor()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "named_delegates.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("named_delegates", None)


def executors(*entries: str, **variables: str) -> FlowExecutors:
    named = {f"WORKFLOW_ENGINE_{name}": value for name, value in variables.items()}
    config = read_operator(named, delegates=entries)
    return FlowExecutors(config, WrittenClient((500, "")), Secrets({"KEY": "a vendor's key"}))


async def test_functions_by_agent_id_execute_delegations_of_the_named_protocol() -> None:
    both = executors("mcp=named_delegates:agents")
    found = await both.delegates.delegate(order("mcp"))
    assert (found.output, found.external_task) == ({"patch": "x"}, "mcp-task-e-1-delegate-implement")
    assert (await both.delegates.delegate(order("mcp", "gone"))).code == "DELEGATE_AGENT_NOT_FOUND"
    assert (await both.delegates.delegate(order("sdk"))).code == "DELEGATE_PROTOCOL_UNSUPPORTED"
    assert both.routing["mcp"] == "production"


@pytest.mark.parametrize("protocol", ["a2a", "mcp", "sdk"])
async def test_object_with_delegate_executes_all_delegations_of_a_protocol(protocol: str) -> None:
    both = executors(f"{protocol}=named_delegates:Everything")
    assert (await both.delegates.delegate(order(protocol))).output == {"by": protocol}


@pytest.mark.parametrize(
    ("variables", "key"),
    [({}, ""), ({"A2A_CONFIG": '{"baseUrl": "http://vendor", "apiKeyEnv": "KEY"}'}, "a vendor's key")],
)
@pytest.mark.parametrize("name", ["vendor", "Vendor"])
async def test_transport_replaces_http_and_gets_the_configured_key(
    name: str, variables: dict[str, str], key: str
) -> None:
    both = executors(f"a2a=named_delegates:{name}", **variables)
    found = await both.delegates.delegate(order("a2a"))
    assert (found.ok, found.output) == (True, {"key": key, "agent": "coder"})


@pytest.mark.parametrize("entry", ["", "a2a", "a2a=", "a2a=module", "smtp=m:x", "a2a=:x", "m:x", "sdk=m:x:y"])
def test_entry_of_another_form_is_refused_with_its_text(entry: str) -> None:
    with pytest.raises(Misuse, match="flow_delegates.* is not PROTOCOL=module:object; the protocols are a2a"):
        load({}, {"flow_delegates": [entry]})


def test_protocol_that_is_named_twice_is_refused() -> None:
    with pytest.raises(Misuse, match="sdk is named twice"):
        load({}, {"flow_delegates": ["sdk=a:b", "a2a=a:b", "sdk=c:d"]})


@pytest.mark.parametrize(
    ("protocol", "module", "attribute", "why"),
    [
        ("sdk", "nowhere_at_all", "x", "sdk=nowhere_at_all:x: ModuleNotFoundError"),
        ("sdk", "named_delegates", "gone", "AttributeError"),
        ("sdk", "named_delegates", "number", "int is not a mapping of agent IDs"),
        ("mcp", "named_delegates", "vendor", "Vendor is not a mapping"),
    ],
)
def test_object_that_cannot_execute_delegations_is_refused_at_the_start(
    protocol: str, module: str, attribute: str, why: str
) -> None:
    with pytest.raises(Misuse, match=f"flow_delegates: .*{why}"):
        load_delegates([NamedDelegate(protocol, module, attribute)])
