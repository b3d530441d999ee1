"""What is legal in a definition and most likely a mistake, or has no effect here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from trunkline.flow.definition.diagnostics import Diagnostic, broken
from trunkline.flow.definition.document import START
from trunkline.flow.definition.graph import Graph

# Types of nodes that are tried again, and that have a timeout.
_TRIED = {"step", "llm_call", "tool_call", "agent_delegate"}


def warnings(document: dict[str, Any]) -> list[Diagnostic]:
    """What a reader should know of a definition that breaks no rule."""
    graph = Graph.of(document)
    return [*_names(document, graph), *_unreached(graph), *_idle(document)]


def _names(document: dict[str, Any], graph: Graph) -> Iterator[Diagnostic]:
    counted = Counter(node["id"] for node in document["nodes"])
    for place, node in enumerate(document["nodes"]):
        if counted[node["id"]] > 1 and graph.places[node["id"]] != place:
            text = f"another node {node['id']!r} follows; it alone counts"
            yield _warned(("nodes", place, "id"), "unique", text)
        for path, target in _targets(node):
            if target not in graph.nodes:
                yield _unknown(("nodes", place, "config", *path), target)
        if node["type"] == "switch" and "default" not in node["config"]:
            text = "without a default the run fails where no case fits"
            yield _warned(("nodes", place, "config"), "default", text)
    for place, edge in enumerate(document["edges"]):
        if edge["target"] not in graph.nodes:
            yield _unknown(("edges", place, "target"), edge["target"])
        if edge["source"] not in graph.nodes and edge["source"] != START:
            text = f"there is no node {edge['source']!r}; this edge leads from nowhere"
            yield _warned(("edges", place, "source"), "known", text)


def _targets(node: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    config: dict[str, Any] = node.get("config", {})
    match node["type"]:
        case "switch":
            for number, case in enumerate(config["cases"]):
                yield ("cases", number, "target"), case["target"]
            if "default" in config:
                yield ("default",), config["default"]
        case "parallel":
            for number, branch in enumerate(config["branches"]):
                yield ("branches", number, "entry"), branch["entry"]
        case _:
            pass


def _unreached(graph: Graph) -> Iterator[Diagnostic]:
    waiting = {*graph.edges.get(START, [])} & graph.nodes.keys()
    reached: set[str] = set()
    while waiting:
        node_id = waiting.pop()
        reached.add(node_id)
        waiting |= graph.ways[node_id] - reached
    for node_id, place in graph.places.items():
        if node_id not in reached:
            yield _warned(("nodes", place), "reached", f"no way leads to node {node_id!r}")


def _idle(document: dict[str, Any]) -> Iterator[Diagnostic]:
    """Members that are kept and shown, and change nothing."""
    for place, node in enumerate(document["nodes"]):
        config: dict[str, Any] = node.get("config", {})
        names = () if node["type"] in _TRIED else ("retry", "timeout")
        inert: list[tuple[str, ...]] = [(name,) for name in names if name in node]
        if node["type"] in {"interrupt", "parallel"} and "timeout" in config:
            inert.append(("config", "timeout"))
        for name in {"start": ("input_schema",), "end": ("output_schema",)}.get(node["type"], ()):
            if name in config:
                text = f"nothing is checked against {name}; state_schema is what counts"
                yield _warned(("nodes", place, "config", name), "effect", text)
        for path in inert:
            text = f"a {path[-1]} has no effect on a node of type {node['type']}"
            yield _warned(("nodes", place, *path), "effect", text)


def _unknown(path: tuple[str | int, ...], target: str) -> Diagnostic:
    return _warned(path, "known", f"there is no node {target!r}; a run that comes here fails")


def _warned(path: tuple[str | int, ...], rule: str, message: str) -> Diagnostic:
    return broken(path, "warning", rule, message)
