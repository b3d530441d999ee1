from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.flow.documents import flow_document
from tests.flow.web import Answer, WrittenClient
from tests.flow.workbench import CALLER
from trunkline.auth.references import KeyReference, Secrets
from trunkline.flow.activities.base import DelegateOrder
from trunkline.flow.definition.document import Node
from trunkline.flow.delegates.tasks import HttpTasks, TaskRecord, TasksConfig, TasksDelegate
from trunkline.flow.local import LocalFlows

URL = "http://agents.test/api/"
KEY = KeyReference(env="A2A_KEY")


def order(protocol: str = "a2a", **config: Any) -> DelegateOrder:
    node = Node("implement", "agent_delegate", {"agent_id": "coder", **config})
    return DelegateOrder("e1", node, {}, {"task": "x"}, protocol, "e1:delegate:implement")


def delegate(client: WrittenClient, **changes: Any) -> TasksDelegate:
    config = replace(TasksConfig(URL, KEY, poll_ms=1, timeout_ms=20), **changes)
    return TasksDelegate(config, HttpTasks(config.url, client), Secrets({"A2A_KEY": "k1"}))


def task(status: object, **more: Any) -> Answer:
    return 200, {"id": "t 1", "status": status, **more}


async def test_a_task_is_submitted_and_looked_at_until_it_has_ended() -> None:
    client = WrittenClient(
        (201, {"id": "t 1", "status": "submitted"}), task("working"), task("completed", output={"patch": "p"})
    )
    outcome = await delegate(client, timeout_ms=30_000).delegate(order())
    assert (outcome.ok, outcome.output) == (True, {"patch": "p"})
    assert (outcome.correlation, outcome.external_task) == ("e1:delegate:implement", "t 1")
    assert [(one.method, one.url) for one in client.asked] == [
        ("POST", "http://agents.test/api/tasks"),
        ("GET", "http://agents.test/api/tasks/t%201"),
        ("GET", "http://agents.test/api/tasks/t%201"),
    ]
    assert client.body(0) == {
        "agent_id": "coder",
        "correlation_id": "e1:delegate:implement",
        "input": {"task": "x"},
    }
    assert [client.header(n, "authorization") for n in range(3)] == ["Bearer k1"] * 3


async def test_what_has_ended_at_once_is_not_looked_at() -> None:
    client = WrittenClient(task("completed"))
    outcome = await delegate(client).delegate(order())
    assert outcome.output == {"delegate_status": "completed"}
    assert len(client.asked) == 1


@pytest.mark.parametrize(
    ("answers", "code", "text"),
    [
        ([task("submitted"), task("failed", error="it broke")], "A2A_TASK_FAILED", "it broke"),
        ([task("failed")], "A2A_TASK_FAILED", "t 1"),
        ([task("input-required")], "A2A_PROVIDER_ERROR", "host_mediated"),
        ([task("working")], "A2A_PROVIDER_ERROR", "20 ms (last status: working)"),
        ([(503, "busy" * 500)], "A2A_PROVIDER_ERROR", "submit failed with HTTP 503: busy"),
        ([task("working"), (404, "gone")], "A2A_PROVIDER_ERROR", "poll failed with HTTP 404: gone"),
        ([(200, "<html>")], "A2A_PROVIDER_ERROR", "not JSON"),
        ([(200, {"status": "working"})], "A2A_PROVIDER_ERROR", "no id"),
        ([task("canceled")], "A2A_PROVIDER_ERROR", "canceled"),
        ([task(7)], "A2A_PROVIDER_ERROR", "status"),
        ([None], "A2A_PROVIDER_ERROR", "nobody answers"),
    ],
)
async def test_each_failure_has_its_code(answers: list[Answer | None], code: str, text: str) -> None:
    outcome = await delegate(WrittenClient(*answers)).delegate(order())
    assert (outcome.ok, outcome.code) == (False, code)
    assert text in outcome.error
    assert len(outcome.error) < 700
    assert "k1" not in outcome.error


@pytest.mark.parametrize(
    "answer",
    [
        (401, "no such key: Bearer key-of-operator"),
        task("failed", error="no such key: Bearer key-of-operator"),
        task("completed", output={"authorization": "Bearer key-of-operator"}),
    ],
)
async def test_nothing_that_the_task_api_answers_repeats_the_key(answer: Answer) -> None:
    made = TasksDelegate(
        TasksConfig(URL, KEY), HttpTasks(URL, WrittenClient(answer)), Secrets({"A2A_KEY": "key-of-operator"})
    )
    outcome = await made.delegate(order())
    assert "Bearer ***" in f"{outcome.error}{outcome.output}"


async def test_error_of_a_task_is_an_excerpt() -> None:
    outcome = await delegate(WrittenClient(task("failed", error="x" * 5000))).delegate(order())
    assert outcome.error == "x" * 500


@pytest.mark.parametrize("passing", [None, (503, "restarting"), (429, "slow down"), (500, "broke")])
async def test_passing_failure_neither_ends_a_delegation_nor_submits_another_task(
    passing: Answer | None,
) -> None:
    client = WrittenClient(passing, task("submitted"), passing, passing, task("completed", output={"a": 1}))
    outcome = await delegate(client, timeout_ms=30_000).delegate(order())
    assert (outcome.ok, outcome.output) == (True, {"a": 1})
    assert [one.method for one in client.asked] == ["POST", "POST", "GET", "GET", "GET"]
    # Whether the first one has arrived or not, it is one task.
    assert client.body(0) == client.body(1)


async def test_vendor_whose_connection_breaks_is_asked_again() -> None:
    class Vendor:
        def __init__(self) -> None:
            self.errors: list[Exception] = [ConnectionResetError(), TimeoutError()]

        async def submit_task(self, **given: Any) -> TaskRecord:
            return TaskRecord("v1", "working")

        async def get_task(self, api_key: str, task_id: str) -> TaskRecord:
            if self.errors:
                raise self.errors.pop()
            return TaskRecord("v1", "completed")

    made = TasksDelegate(TasksConfig(URL, KEY, poll_ms=1), Vendor(), Secrets({"A2A_KEY": "k1"}))
    assert (await made.delegate(order())).ok


@pytest.mark.parametrize(
    ("asked", "changes", "code"),
    [
        (order("mcp"), {}, "DELEGATE_PROTOCOL_UNSUPPORTED"),
        (order(), {"url": " "}, "A2A_CONFIG_INVALID"),
        (order(), {"key": KeyReference(env="A2A_KEY", ref="env:A2A_KEY")}, "A2A_CONFIG_INVALID"),
        (order(), {"key": KeyReference(env="NONE")}, "A2A_CREDENTIALS_MISSING"),
        (order(), {"key": KeyReference(ref="vault:x")}, "A2A_CREDENTIALS_MISSING"),
        (order(), {"key": KeyReference()}, "A2A_CREDENTIALS_MISSING"),
        (order(agent_id=" "), {}, "A2A_CONFIG_INVALID"),
    ],
)
async def test_nothing_is_sent_where_something_is_missing(
    asked: DelegateOrder, changes: dict[str, Any], code: str
) -> None:
    client = WrittenClient(task("completed"))
    assert (await delegate(client, **changes).delegate(asked)).code == code
    assert client.asked == []


async def test_a_transport_of_a_vendor_replaces_http() -> None:
    class Vendor:
        async def submit_task(self, **given: Any) -> TaskRecord:
            assert given == {
                "api_key": "k1",
                "agent_id": "coder",
                "correlation_id": "e1:delegate:implement",
                "input": {"task": "x"},
            }
            return TaskRecord("v1", "working")

        async def get_task(self, api_key: str, task_id: str) -> TaskRecord:
            if task_id != "v1":
                raise KeyError(task_id)
            return TaskRecord("v1", "completed", {"done": True})

    made = TasksDelegate(TasksConfig(URL, KEY), Vendor(), Secrets({"A2A_KEY": "k1"}))
    outcome = await made.delegate(order())
    assert (outcome.output, outcome.external_task) == ({"done": True}, "v1")


async def test_whatever_a_transport_raises_is_the_providers_error() -> None:
    class Broken:
        async def submit_task(self, **given: Any) -> TaskRecord:
            raise KeyError("odd")

        async def get_task(self, api_key: str, task_id: str) -> TaskRecord:
            raise AssertionError

    made = TasksDelegate(TasksConfig(URL, KEY), Broken(), Secrets({"A2A_KEY": "k1"}))
    assert (await made.delegate(order())).code == "A2A_PROVIDER_ERROR"


class TaskApi:
    """A task API in memory: a repeated correlation id returns its first task, or is refused for another input."""

    def __init__(self, *failing: int) -> None:
        self.submitted: list[str] = []
        self._inputs: dict[str, dict[str, Any]] = {}
        self._failing = failing

    async def submit_task(
        self, *, api_key: str, agent_id: str, correlation_id: str, input: dict[str, Any]
    ) -> TaskRecord:
        self.submitted.append(correlation_id)
        if self._inputs.setdefault(correlation_id, input) != input:
            raise ValueError("DUPLICATE_ID")
        number = list(self._inputs).index(correlation_id) + 1
        if number in self._failing:
            return TaskRecord(f"t{number}", "failed", error="it broke")
        return TaskRecord(f"t{number}", "completed", {"answers": [number]})

    async def get_task(self, api_key: str, task_id: str) -> TaskRecord:
        raise AssertionError("every task of this API ends at once")


def over_the_api(api: TaskApi) -> TasksDelegate:
    return TasksDelegate(TasksConfig(URL, KEY), api, Secrets({"A2A_KEY": "k1"}))


def implement(mapping: dict[str, Any], **more: Any) -> dict[str, Any]:
    config = {"agent_id": "coder", "protocol": "a2a", "input_mapping": mapping}
    return {"id": "implement", "type": "agent_delegate", "config": config, **more}


async def test_each_attempt_is_a_task_of_its_own() -> None:
    api = TaskApi(1, 2)
    async with LocalFlows(delegates=over_the_api(api)) as flows:
        document = flow_document(implement({"task": "x"}, retry={"max_attempts": 3}))
        result = await (await flows.start(document, {}, execution_id="e")).wait()
        rows = await flows.port.rows(CALLER, "e")
    assert (result.status, result.final_state) == ("completed", {"answers": [3]})
    correlation = "e:delegate:implement"
    assert api.submitted == [correlation, f"{correlation}:1.2", f"{correlation}:1.3"]
    told = [row.payload["delegateCorrelationId"] for row in rows if "delegateCorrelationId" in row.payload]
    assert set(told) == {correlation}


@pytest.mark.parametrize("mapping", [{"task": "x"}, {"round": "${ .answers | length }"}])
async def test_each_round_of_a_loop_is_a_task_of_its_own(mapping: dict[str, Any]) -> None:
    again = {"when": ".answers | length < 3", "target": "implement"}
    switch = {"id": "enough", "type": "switch", "config": {"cases": [again], "default": "end"}}
    document = flow_document(
        implement(mapping),
        switch,
        edges=[("start", "implement"), ("implement", "enough"), ("enough", "end")],
        properties={"answers": {"type": "array", "reducer": "append"}},
    )
    api = TaskApi()
    async with LocalFlows(delegates=over_the_api(api)) as flows:
        result = await (await flows.start(document, {"answers": []}, execution_id="e")).wait()
    assert (result.status, result.final_state) == ("completed", {"answers": [1, 2, 3]})
    correlation = "e:delegate:implement"
    assert api.submitted == [correlation, f"{correlation}:2.1", f"{correlation}:3.1"]
