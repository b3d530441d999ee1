"""Reading a definition: a document in, all that is wrong with it or a `Definition` out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice
from typing import Any, cast

import msgspec
from jsonschema_rs import Draft202012Validator

from trunkline.errors import FlowInvalid
from trunkline.flow.definition.canonical import canonical, without_signature
from trunkline.flow.definition.checks import SchemaCheck, plain_schema, schema_fault
from trunkline.flow.definition.diagnostics import (
    DIAGNOSTICS_LIMIT,
    Diagnostic,
    broken,
    schema_errors,
    told,
)
from trunkline.flow.definition.document import START, Checkpointing, Definition, Node, Reducer, Retry
from trunkline.flow.definition.duration import duration_ms
from trunkline.flow.definition.graph import Graph, graph_rules, profile_rules
from trunkline.flow.definition.schema import DEFINITION_SCHEMA

_STRATEGIES: dict[str, str] = {
    "": "after_each_node",
    "after_each_node": "after_each_node",
    "every_n_nodes": "every_n_nodes",
    "interval": "every_n_nodes",
    "disabled": "disabled",
    "off": "disabled",
    "none": "disabled",
}
_REDUCERS = ("overwrite", "append", "merge")
# Members of a node's config that are schemas.
_SCHEMAS = {
    "start": ("input_schema",),
    "end": ("output_schema",),
    "interrupt": ("resume_schema",),
    "llm_call": ("output_schema",),
}
_QUOTED = 3
# How many wrong nodes, and how many wrong edges, are told in one answer.
_SAMPLED = 25
# How many members those may have all together for each to be explained.
_EXPLAINED = 5000


def validate(document: object) -> list[Diagnostic]:
    """What is wrong with a document by the schema and the profile; an empty list where nothing is."""
    plain = _unsigned(document)
    return _text(plain)[1] or _schema_and_profile(plain)


def read_definition(document: object) -> Definition:
    """The definition that a document holds; a signature is neither needed nor looked at.

    Raises:
        FlowInvalid: it breaks a rule; all that is wrong is in `diagnostics`.
    """
    plain = _unsigned(document)
    text, found = _text(plain)
    found = found or _schema_and_profile(plain)
    if not found:
        checked = cast("dict[str, Any]", plain)
        graph = Graph.of(checked)
        found = list(islice(_run_rules(checked, graph), DIAGNOSTICS_LIMIT))
        if not found:
            return _definition(checked, graph, text)
    helpful = told(document, found) or found
    more = f", and {len(helpful) - _QUOTED} more" if len(helpful) > _QUOTED else ""
    raise FlowInvalid("; ".join(str(one) for one in helpful[:_QUOTED]) + more, found)


def _unsigned(document: object) -> object:
    return without_signature(cast("dict[str, Any]", document)) if isinstance(document, dict) else document


def _text(document: object) -> tuple[bytes, list[Diagnostic]]:
    """The canonical text of a document; what is wrong where it has none."""
    try:
        return canonical(document), []
    except ValueError as error:
        return b"", [broken((), "json", "text", f"the document has no canonical JSON text: {error}")]


def _schema_and_profile(document: object) -> list[Diagnostic]:
    if not _validator().is_valid(document):
        sample, unexplained = _sampled(document)
        errors = schema_errors(_validator().iter_errors(sample))
        return list(islice(chain(errors, unexplained), DIAGNOSTICS_LIMIT))
    return list(islice(profile_rules(Graph.of(cast("dict[str, Any]", document))), DIAGNOSTICS_LIMIT))


def _sampled(document: object) -> tuple[object, list[Diagnostic]]:
    """The document with the first of its wrong nodes and edges alone, and diagnostics of some left out.

    The validator finds all errors before it tells the first, and each wrong member breaks dozens of rules.
    """
    if not isinstance(document, dict):
        return document, []
    made = dict(cast("dict[str, Any]", document))
    unexplained: list[Diagnostic] = []
    for name, (check, right) in _items().items():
        items = made.get(name)
        if not isinstance(items, list):
            continue
        kept = made[name] = list(cast("list[Any]", items))
        wrong = [place for place, one in enumerate(kept) if not check.is_valid(one)]
        left = _EXPLAINED
        for number, place in enumerate(wrong):
            left -= (weight := _members(kept[place]))
            if number >= _SAMPLED or left < 0:
                kept[place] = right
            if number < _SAMPLED and left < 0:
                text = f"fits no type of node, and its {weight} members are too many to say why"
                unexplained.append(broken((name, place), "size", "explained", text))
    return made, unexplained


def _members(value: Any, depth: int = 3) -> int:
    """How many members a value has, down to those of its lists."""
    if not depth or not isinstance(value, dict | list):
        return 1
    inner: Any = value.values() if isinstance(value, dict) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return 1 + sum(_members(one, depth - 1) for one in inner)


@cache
def _items() -> dict[str, tuple[Draft202012Validator, dict[str, str]]]:
    """The validator of an item of each list, and an item that is right."""
    right = {"nodes": {"id": "right", "type": "start"}, "edges": {"source": "right", "target": "right"}}
    members: dict[str, Any] = DEFINITION_SCHEMA["properties"]
    shared = {"$defs": DEFINITION_SCHEMA["$defs"]}
    return {
        name: (Draft202012Validator({**shared, **members[name]["items"]}), one) for name, one in right.items()
    }


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(DEFINITION_SCHEMA)


def _run_rules(document: dict[str, Any], graph: Graph) -> Iterator[Diagnostic]:
    """What a schema cannot say and a run needs."""
    yield from graph_rules(document, graph)
    yield from _reducer_rules(document["state_schema"])
    for place, node in enumerate(document["nodes"]):
        yield from _duration_rules(place, node)
    yield from _schema_rules(document)
    policy = _policy(document)
    strategy = _STRATEGIES.get(policy[0])
    if strategy is None:
        names = ", ".join(name for name in _STRATEGIES if name)
        yield broken(
            ("checkpointing", "strategy"), "checkpointing", "strategy", f"{policy[0]!r} is none of {names}"
        )
    elif strategy == "every_n_nodes" and policy[1] is None:
        yield broken(("checkpointing", "n"), "checkpointing", "n", f"{policy[0]!r} needs a number n")


def _reducer_rules(state_schema: dict[str, Any]) -> Iterator[Diagnostic]:
    for name, reducer in _reducers(state_schema).items():
        if reducer not in _REDUCERS:
            yield broken(
                ("state_schema", "properties", name, "reducer"),
                "reducer",
                "known",
                f"reducer {reducer!r} is none of {', '.join(_REDUCERS)}",
            )


def _duration_rules(place: int, node: dict[str, Any]) -> Iterator[Diagnostic]:
    retry: dict[str, Any] = node.get("retry", {})
    config: dict[str, Any] = node.get("config", {})
    written: list[tuple[tuple[str, ...], Any]] = [
        (("timeout",), node.get("timeout")),
        (("retry", "initial_interval"), retry.get("initial_interval")),
        (("retry", "max_interval"), retry.get("max_interval")),
    ]
    if node["type"] in {"interrupt", "parallel"}:
        written.append((("config", "timeout"), config.get("timeout")))
    if node["type"] == "wait" and config["kind"] == "duration" and "duration_ms" not in config:
        written.append((("config", "duration"), config["duration"]))
    for path, text in written:
        if text is not None and duration_ms(text) is None:
            yield broken(
                ("nodes", place, *path),
                "duration",
                "form",
                f"{text!r} is no duration; write a whole number with ms, s, m or h, such as 30s",
            )


def _schema_rules(document: dict[str, Any]) -> Iterator[Diagnostic]:
    """Yield an error for each schema that is too large, or is small and does not compile."""
    for place, schema in schemas_of(document):
        try:
            SchemaCheck(schema)
        except ValueError as error:
            yield schema_fault(place, str(error))


def schemas_of(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pointer of each schema that a run checks values against, and the schema."""
    yield "/state_schema", plain_schema(document["state_schema"])
    for place, node in enumerate(document["nodes"]):
        config: dict[str, Any] = node.get("config", {})
        for name in _SCHEMAS.get(node["type"], ()):
            if name in config:
                yield f"/nodes/{place}/config/{name}", config[name]


def _reducers(state_schema: dict[str, Any]) -> dict[str, Any]:
    properties: Any = state_schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    members = cast("dict[str, Any]", properties)
    return {
        name: one["reducer"] for name, one in members.items() if isinstance(one, dict) and "reducer" in one
    }


def _policy(document: dict[str, Any]) -> tuple[str, int | None]:
    """The name of the checkpoint policy and its number, by either of the names that each has."""
    written: dict[str, Any] = document.get("checkpointing", {})
    number = written.get("n", written.get("interval"))
    return written.get("strategy", written.get("policy", "")), None if number is None else int(number)


def _definition(document: dict[str, Any], graph: Graph, text: bytes) -> Definition:
    name, number = _policy(document)
    return Definition(
        name=document["document"]["name"],
        version=document["document"]["version"],
        nodes={node_id: _node(node) for node_id, node in graph.nodes.items()},
        next={
            source: targets[0]
            for source, targets in graph.edges.items()
            if source in graph.nodes and graph.nodes[source]["type"] != "switch"
        },
        first=graph.edges[START][0],
        state_schema=document["state_schema"],
        reducers=cast("dict[str, Reducer]", _reducers(document["state_schema"])),
        checkpoint=msgspec.convert({"strategy": _STRATEGIES[name], "n": number or 1}, Checkpointing),
        document=document,
        hash=hashlib.sha256(text).hexdigest(),
    )


def _node(node: dict[str, Any]) -> Node:
    retry: dict[str, Any] | None = node.get("retry")
    return Node(
        id=node["id"],
        type=node["type"],
        config=node.get("config", {}),
        retry=None if retry is None else _retry(retry),
        timeout_ms=duration_ms(node["timeout"]) if "timeout" in node else None,
    )


def _retry(retry: dict[str, Any]) -> Retry:
    return Retry(
        max_attempts=int(retry["max_attempts"]),
        initial_ms=duration_ms(retry.get("initial_interval", "0")) or 0,
        coefficient=retry.get("backoff_coefficient", 1.0),
        longest_ms=duration_ms(retry["max_interval"]) if "max_interval" in retry else None,
        final=frozenset(retry.get("non_retryable_errors", ())),
    )
