"""Verdicts on definitions are those of the vectors, of the published schema, and of a second validator."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from tests.flow import vectors
from tests.flow.definition.sample import graph, line, node
from trunkline.flow.definition.read import validate
from trunkline.flow.definition.schema import CONFIGS, DEFINITION_SCHEMA

PUBLISHED = vectors.ROOT / "schemas" / "workflow-definition.json"
SECOND: Any = jsonschema.Draft202012Validator(DEFINITION_SCHEMA)
# One node of each type, with every member that its config knows.
WHOLE = graph(
    [
        node("start", "a", input_schema={}),
        node("step", "b", handler="x", code_ref="y"),
        node("llm_call", "c"),
        {
            **node("tool_call", "d", server="s", tool="t", arguments={}),
            "retry": {
                "max_attempts": 2,
                "initial_interval": "1s",
                "backoff_coefficient": 1.5,
                "max_interval": "2s",
                "non_retryable_errors": ["X"],
            },
            "timeout": "1s",
            "metadata": {"any": 1},
        },
        node("switch", "e", cases=[{"when": ".x", "target": "f"}], default="f"),
        node("interrupt", "f", resume_schema={"type": "object"}, prompt="p", prompt_ref="q", timeout="1s"),
        node("parallel", "g", join="n_of_m", n=1, branches=[{"name": "x", "entry": "h"}], timeout="1s"),
        node("wait", "h", kind="duration", duration_ms=1, duration="1s", until="u", signal="s"),
        node("set_state", "i", assignments={"x": {"jq": "."}, "y": {"literal": None}}),
        node("subworkflow", "j", workflow_ref="w", input_mapping={"x": 1}, version_pin="v"),
        node("agent_delegate", "k", agent_id="a", protocol="a2a", input_mapping={}),
        node("end", "l", output_schema={}, output_mapping="."),
    ],
    ("a", "b"),
)
WHOLE["document"]["description"] = "d"
WHOLE["checkpointing"] = {"strategy": "s", "policy": "p", "n": 1, "interval": 1}


@pytest.mark.parametrize("vector", vectors.vectors("schema"))
def test_schema_vectors(vector: dict[str, Any]) -> None:
    found = validate(vectors.document(vector["definition"]))
    assert (not found) is vector["expect"]["ok"]
    vectors.check_diagnostics(vector, found)


def changed(value: Any, rule: str) -> Any:
    """A document with one thing changed: the path, and what becomes of what stands there."""
    path, _, becomes = rule.partition(" = ")
    made = deepcopy(value)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    inner = made
    for step in steps:
        inner = inner[step]
    if becomes:
        inner[last] = json.loads(becomes)
    else:
        del inner[last]
    return made


@pytest.mark.parametrize(
    "rule",
    [
        "edges = []", "checkpointing = {}", 'checkpointing.strategy = "weekly"', "checkpointing.further = 1",
        "nodes.1.config.handler", "nodes.1.config.code_ref", "nodes.1.config.further = 1", "nodes.0.config",
        "nodes.2.config.further = 1", "nodes.3.retry.initial_interval", "nodes.3.config.arguments",
        "nodes.5.config.prompt", "nodes.5.config.prompt_ref", "nodes.7.config.duration", "nodes.7.config.duration_ms",
        "nodes.8.config.assignments.y.literal = [1]", "nodes.3.metadata = {}", "nodes.3.retry.max_attempts = 2.0",
        "document.description", "state_schema = {\"x\": 1}",
    ],
)  # fmt: skip
def test_what_is_let_pass(rule: str) -> None:
    assert validate(changed(WHOLE, rule)) == []


@pytest.mark.parametrize(
    ("rule", "path", "keyword"),
    [
        ("state_schema = {}", "/state_schema", "minProperties"),
        ("nodes = []", "/nodes", "minItems"),
        ("edges", "", "required"),
        ("further = 1", "", "additionalProperties"),
        ("document.further = 1", "/document", "additionalProperties"),
        ('document.name = ""', "/document/name", "minLength"),
        ("edges.0.further = 1", "/edges/0", "additionalProperties"),
        ("nodes.3.further = 1", "/nodes/3", "additionalProperties"),
        ("nodes.3.config.further = 1", "/nodes/3/config", "additionalProperties"),
        ("nodes.10.config.further = 1", "/nodes/10/config", "additionalProperties"),
        ("nodes.3.retry.further = 1", "/nodes/3/retry", "additionalProperties"),
        ("nodes.3.retry.max_attempts", "/nodes/3/retry", "required"),
        ("nodes.3.retry.max_attempts = 0", "/nodes/3/retry/max_attempts", "minimum"),
        ("nodes.3.timeout = 5", "/nodes/3/timeout", "type"),
        ('nodes.3.type = "unknown"', "/nodes/3", "oneOf"),
        ("nodes.1.config = {}", "/nodes/1/config", "anyOf"),
        ("nodes.2.config", "/nodes/2", "required"),
        ("nodes.4.config.cases = []", "/nodes/4/config/cases", "minItems"),
        ("nodes.5.config.resume_schema = {}", "/nodes/5/config/resume_schema", "minProperties"),
        ("nodes.6.config.n", "/nodes/6/config", "required"),
        ('nodes.6.config.join = "most"', "/nodes/6/config/join", "enum"),
        ('nodes.7.config = {"kind": "until"}', "/nodes/7/config", "required"),
        ('nodes.7.config = {"kind": "signal"}', "/nodes/7/config", "required"),
        ('nodes.7.config = {"kind": "duration"}', "/nodes/7/config", "anyOf"),
        ('nodes.8.config.assignments.x = {"jq": ".", "literal": 1}', "/nodes/8/config/assignments/x", "oneOf"),
        ("nodes.8.config.assignments.x = 3", "/nodes/8/config/assignments/x", "oneOf"),
        ("nodes.8.config.assignments = {}", "/nodes/8/config/assignments", "minProperties"),
        ("nodes.9.config.input_mapping", "/nodes/9/config", "required"),
        ('nodes.10.config.protocol = "smtp"', "/nodes/10/config/protocol", "enum"),
    ],
)  # fmt: skip
def test_what_is_refused(rule: str, path: str, keyword: str) -> None:
    found = validate(changed(WHOLE, rule))
    assert (path, keyword) in [(one.instance_path, one.keyword) for one in found]


SPARE = st.sampled_from([None, True, 0, 1, 1.5, "", "x", "start", "wait", [], [1], {}, {"jq": "."}, {"a": 1}])
FURTHER = st.sampled_from(["further", "type", "timeout", "n", "jq", "config"])


def is_object(value: object) -> bool:
    return isinstance(value, dict)


@st.composite
def mutations(draw: st.DrawFn) -> Any:
    """A valid document in which some members are gone, replaced, or new."""
    made = deepcopy(draw(st.sampled_from([WHOLE, line()])))
    for _ in range(draw(st.integers(1, 3))):
        inner: Any = made
        while True:
            keys: list[Any] = list(inner) if is_object(inner) else list(range(len(inner)))
            key = draw(st.sampled_from(keys)) if keys else None
            if key is not None and type(inner[key]) in {dict, list} and draw(st.integers(0, 3)):
                inner = inner[key]
                continue
            break
        match draw(st.sampled_from(["drop", "replace", "add"])):
            case "drop" if key is not None:
                del inner[key]
            case "replace" if key is not None:
                inner[key] = deepcopy(draw(SPARE))
            case _ if is_object(inner):
                inner[draw(FURTHER)] = deepcopy(draw(SPARE))
            case _:
                inner.append(deepcopy(draw(SPARE)))
    return made


@given(mutations())
def test_a_second_validator_agrees(document: Any) -> None:
    fits = Draft202012Validator(DEFINITION_SCHEMA).is_valid(document)
    assert SECOND.is_valid(document) is fits
    if fits:
        return
    found = {(one.instance_path, one.keyword) for one in validate(document)}
    for error in SECOND.iter_errors(document):
        place = "".join(f"/{step}" for step in error.absolute_path)
        assert (place, error.validator) in found or error.validator in {"if", "allOf"}


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no schema at {PUBLISHED}: set TRUNKLINE_VECTORS")
@given(mutations())
def test_the_published_schema_agrees(document: Any) -> None:
    published = Draft202012Validator(json.loads(PUBLISHED.read_text()))
    assert Draft202012Validator(DEFINITION_SCHEMA).is_valid(document) is published.is_valid(document)


def test_every_type_has_a_config() -> None:
    assert {one["type"] for one in WHOLE["nodes"]} == CONFIGS.keys()
    assert validate(WHOLE) == []


@pytest.mark.parametrize(
    ("rule", "suggestion"),
    [
        ("stateschema = 1", "'stateschema' is not known here; did you mean 'state_schema'?"),
        ("nodes.3.confg = 1", "'confg' is not known here; did you mean 'config'?"),
        (
            "nodes.5.config.resume_shema = 1",
            "'resume_shema' is not known here; did you mean 'resume_schema'?",
        ),
        ("edges.0.sorce = 1", "'sorce' is not known here; did you mean 'source'?"),
        ("nodes.3.retry.max_attempt = 1", "'max_attempt' is not known here; did you mean 'max_attempts'?"),
        ("document.zzz = 1", "'zzz' is not known here"),
    ],
)
def test_unknown_member_suggests_the_most_similar_one(rule: str, suggestion: str) -> None:
    found = [one.message for one in validate(changed(WHOLE, rule)) if "is not known here" in one.message]
    assert f"must NOT have additional properties: {suggestion}" in found
