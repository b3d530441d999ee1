"""Definitions are read whole, and what is wrong with one is said with its place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.definition.sample import graph, line, node
from trunkline.errors import FlowInvalid
from trunkline.flow.definition.document import Checkpointing, Retry
from trunkline.flow.definition.read import read_definition, validate


def tool(node_id: str, **members: Any) -> dict[str, Any]:
    return {**node("tool_call", node_id, server="s", tool="t"), **members}


def fork(*entries: str, join: str = "all", **config: Any) -> dict[str, Any]:
    branches = [{"name": entry, "entry": entry} for entry in entries]
    return node("parallel", "fork", join=join, branches=branches, **config)


def forked(*branches: dict[str, Any], **config: Any) -> dict[str, Any]:
    """A definition with one node in each branch, and a join before the end."""
    names = [branch["id"] for branch in branches]
    nodes = [node("start", "begin"), fork(*names, **config), *branches, tool("joined"), node("end", "done")]
    edges = [("begin", "fork"), ("fork", "joined"), ("joined", "done"), *[(name, "joined") for name in names]]
    return graph(nodes, *edges)


def rules(document: object) -> list[tuple[str, str]]:
    """The places and rules that reading a document names."""
    with pytest.raises(FlowInvalid) as caught:
        read_definition(document)
    assert caught.value.code == "VALIDATION_ERROR"
    return [(one.instance_path, one.schema_path) for one in caught.value.diagnostics]


def test_a_definition_is_read() -> None:
    retry = {"max_attempts": 3, "initial_interval": "100ms", "backoff_coefficient": 2, "max_interval": "1s"}
    document = line(
        tool("work", retry={**retry, "non_retryable_errors": ["TIMEOUT"]}, timeout="30s"),
        log={"type": "array", "reducer": "append"},
    )
    document["checkpointing"] = {"policy": "interval", "interval": 2}
    read = read_definition(document)
    assert (read.name, read.version, read.first) == ("sample", "1.2.0", "begin")
    assert read.next == {"begin": "work", "work": "done"}
    assert read.reducers == {"log": "append"}
    assert read.checkpoint == Checkpointing("every_n_nodes", 2)
    work = read.nodes["work"]
    assert work.timeout_ms == 30_000
    assert work.config == {"server": "s", "tool": "t"}
    assert work.retry == Retry(3, 100, 2, 1000, frozenset({"TIMEOUT"}))
    assert read.nodes["begin"].config == {}
    assert read.document == document
    assert len(read.hash) == 64


def test_pauses_grow_up_to_the_longest() -> None:
    retry = Retry(max_attempts=7, initial_ms=100, coefficient=2, longest_ms=1000, final=frozenset({"NO"}))
    assert [retry.backoff_ms(n) for n in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]
    assert retry.again(6, "")
    assert not retry.again(7, "")
    assert not retry.again(1, "NO")
    assert Retry(9, 1, 1e300).backoff_ms(9) > 0, "however large, it is a number of milliseconds"
    assert Retry(9, 100, -3).backoff_ms(2) == 0


def test_a_signature_is_left_out() -> None:
    document = line(tool("work"))
    signed = {**document, "document": {**document["document"], "signature": {"alg": "EdDSA", "value": "x"}}}
    assert validate(signed) == []
    assert read_definition(signed) == read_definition(document)
    assert read_definition({**document, "signature": {}}).hash == read_definition(document).hash


@pytest.mark.parametrize("document", [None, 3, "text", [], {}, {"nodes": 1}, {"nodes": [1, {"type": [1]}]}])
def test_anything_may_be_given(document: object) -> None:
    assert validate(document)
    with pytest.raises(FlowInvalid):
        read_definition(document)


def test_a_node_of_no_type_is_told_so_once() -> None:
    document = line(node("teleport", "away", to="x"))
    found = validate(document)
    assert ("/nodes/1", "oneOf") in [(one.instance_path, one.keyword) for one in found]
    assert ("/nodes/1/type", "const") in [(one.instance_path, one.keyword) for one in found]
    with pytest.raises(
        FlowInvalid, match=r"^/nodes/1/type: must be one of start, end, step.*agent_delegate$"
    ):
        read_definition(document)


def test_misspelt_member_is_reported_once_with_the_name_that_was_meant() -> None:
    document = line(node("teleport", "away"))
    document["nodes"][1]["type"] = "interupt"
    document["state_shcema"] = document.pop("state_schema")
    with pytest.raises(FlowInvalid) as refused:
        read_definition(document)
    text = str(refused.value)
    assert text.count("state_schema") == 1 and text.endswith("not known here; did you mean 'state_schema'?")
    assert "agent_delegate; did you mean 'interrupt'?; /: must NOT" in text
    # The complete list for programs stays as the schema gives it.
    assert any(one.params == {"missingProperty": "state_schema"} for one in validate(document))


def test_a_wrong_member_is_told_by_the_rules_of_its_own_type() -> None:
    document = line(node("agent_delegate", "ask", agent_id="a", protocol="smtp", input_mapping={}))
    found = [one for one in validate(document) if one.instance_path == "/nodes/1/config/protocol"]
    assert [(one.keyword, one.params) for one in found] == [
        ("enum", {"allowedValues": ["a2a", "mcp", "sdk"]})
    ]
    with pytest.raises(FlowInvalid, match=r"^/nodes/1/config/protocol: must be equal to one of the[^;]*$"):
        read_definition(document)


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        (graph([node("start", "a"), node("end", "b")]), ("/nodes/0", "#/graph/one-successor")),
        (graph([node("end", "b")]), ("/nodes", "#/graph/one-start")),
        (graph([node("start", "a")], ("a", "a")), ("/nodes", "#/graph/one-end")),
        ({**line(), "edges": []}, ("/edges", "#/graph/one-beginning")),
        (
            graph([node("start", "a"), node("end", "b")], ("a", "b"), ("b", "a")),
            ("/nodes/1", "#/graph/end-is-last"),
        ),
        (
            graph([node("start", "a"), tool("c"), node("end", "b")], ("a", "b"), ("c", "b"), ("c", "a")),
            ("/nodes/1", "#/graph/one-successor"),
        ),
        (forked(tool("x"), join="n_of_m", n=2), ("/nodes/1", "#/graph/n-of-m")),
        (
            graph([node("start", "a"), fork("b"), node("end", "b")], ("a", "fork"), ("fork", "a")),
            ("/nodes/1", "#/graph/branch-joins"),
        ),
        (line(tool("w", timeout="1d")), ("/nodes/1/timeout", "#/duration/form")),
        (
            line(tool("w", retry={"max_attempts": 2, "max_interval": "1.5s"})),
            ("/nodes/1/retry/max_interval", "#/duration/form"),
        ),
        (line(node("wait", "w", kind="duration", duration="PT1S")), ("/nodes/1/config/duration", "#/duration/form")),
        (line(a={"reducer": "custom"}), ("/state_schema/properties/a/reducer", "#/reducer/known")),
        (line(a={"type": "nothing"}), ("/state_schema", "#/schema/compiles")),
        (
            line(node("interrupt", "ask", prompt="?", resume_schema={"required": 1})),
            ("/nodes/1/config/resume_schema", "#/schema/compiles"),
        ),
        ({**line(), "checkpointing": {"strategy": "weekly"}}, ("/checkpointing/strategy", "#/checkpointing/strategy")),
        ({**line(), "checkpointing": {"strategy": "every_n_nodes"}}, ("/checkpointing/n", "#/checkpointing/n")),
    ],
)  # fmt: skip
def test_rules_of_a_run(broken: dict[str, Any], where: tuple[str, str]) -> None:
    assert validate(broken) == [], "the schema has nothing against it"
    assert where in rules(broken)


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object(), {1: 2}])
def test_what_is_no_json_is_no_definition(value: object) -> None:
    document = {**line(), "checkpointing": {"further": value}}
    assert rules(document) == [("", "#/json/text")]
    assert [one.keyword for one in validate(document)] == ["json"]


@pytest.mark.parametrize("strategy", ["", "after_each_node", "disabled", "off", "none"])
def test_names_of_checkpoint_policies(strategy: str) -> None:
    read = read_definition({**line(), "checkpointing": {"strategy": strategy, "further": 1}})
    assert read.checkpoint.strategy == (
        strategy if "_" in strategy else "disabled" if strategy else "after_each_node"
    )


def test_what_branches_may_hold() -> None:
    delegate = node("agent_delegate", "ask", agent_id="a", protocol="a2a", input_mapping={})
    child = node("subworkflow", "sub", workflow_ref="w", input_mapping={})
    read_definition(forked(delegate, child, tool("x"), join="n_of_m", n=3))


def test_an_interrupt_in_a_branch() -> None:
    ask = node("interrupt", "ask", prompt="?", resume_schema={"type": "object"})
    found = validate(forked(tool("x"), ask))
    assert [(one.instance_path, one.keyword, one.schema_path) for one in found] == [
        ("/nodes/3", "profile", "#/profile/interrupt-in-parallel-branch")
    ]
    assert found[0].params["code"] == "INTERRUPT_IN_PARALLEL_BRANCH"
    assert "INTERRUPT_IN_PARALLEL_BRANCH" in found[0].message


@pytest.mark.parametrize("way", ["case", "default", "nested"])
def test_an_interrupt_is_found_behind_switches_and_forks(way: str) -> None:
    ask = node("interrupt", "ask", prompt="?", resume_schema={"type": "object"})
    cases = [{"when": ".x", "target": "ask" if way == "case" else "joined"}]
    match way:
        case "nested":
            inner = {**fork("ask"), "id": "inner"}
        case _:
            inner = node("switch", "inner", cases=cases, default="ask" if way == "default" else "joined")
    nodes = [node("start", "begin"), fork("inner"), inner, ask, tool("joined"), node("end", "done")]
    edges = [("begin", "fork"), ("fork", "joined"), ("joined", "done"), ("ask", "joined")]
    document = graph(nodes, *edges, *([("inner", "joined")] if way == "nested" else []))
    assert [one.instance_path for one in validate(document)] == ["/nodes/3"]


def test_an_interrupt_after_the_join_is_fine() -> None:
    ask = node("interrupt", "joined", prompt="?", resume_schema={"type": "object"})
    document = forked(tool("x"))
    document["nodes"][3] = ask
    read_definition(document)


def test_a_loop_through_a_switch_is_fine() -> None:
    turn = node("switch", "turn", cases=[{"when": ".n < 3", "target": "work"}], default="done")
    nodes = [node("start", "begin"), tool("work"), turn, node("end", "done")]
    read_definition(graph(nodes, ("begin", "work"), ("work", "turn"), ("turn", "work"), ("turn", "done")))


def test_a_graph_that_would_take_long_to_look_through_is_refused() -> None:
    forks = [{**fork(f"f{n + 1}", f"f{n + 2}"), "id": f"f{n}"} for n in range(2000)]
    document = graph([node("start", "begin"), *forks, tool("f2000"), tool("f2001"), node("end", "done")])
    assert [(one.instance_path, one.schema_path) for one in validate(document)] == [
        ("/nodes", "#/profile/size")
    ]


def test_of_very_many_wrong_nodes_the_first_are_told() -> None:
    nodes = [node("start", "begin"), *[node("teleport", f"n{n}") for n in range(20_000)], node("end", "done")]
    document = graph(nodes, *[("", "")] * 20_000)
    found = {one.instance_path for one in validate(document)}
    assert {"/nodes/1", "/nodes/25", "/nodes/25/type"} <= found
    assert found.isdisjoint({"/nodes/0", "/nodes/26", "/nodes/20001"})
    assert {one.instance_path for one in validate({**document, "nodes": nodes[:1]})} == {
        path for n in range(1, 26) for path in (f"/edges/{n}/source", f"/edges/{n}/target")
    }


def test_a_wrong_node_of_very_many_members_is_named() -> None:
    huge = node("switch", "turn", cases=[{}] * 50_000)
    found = validate(line(node("teleport", "away"), huge))
    assert [one.keyword for one in found if one.instance_path == "/nodes/2"] == ["size"]
    assert any(one.instance_path == "/nodes/1/type" for one in found), "the small one is explained"
    with pytest.raises(FlowInvalid):
        read_definition(line(huge))


def test_a_schema_that_is_too_large_is_refused() -> None:
    properties = {f"p{number}": {"type": "string", "pattern": "^a+$"} for number in range(8000)}
    wide = {**line(tool("work")), "state_schema": {"type": "object", "properties": properties}}
    assert rules(wide) == [("/state_schema", "#/schema/compiles")]
