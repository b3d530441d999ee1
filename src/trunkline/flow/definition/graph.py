"""The graph of a definition: where each node leads, what a parallel branch holds, and the rules for both."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from trunkline.flow.definition.diagnostics import DIAGNOSTICS_LIMIT, Diagnostic, broken
from trunkline.flow.definition.document import START

# Each branch is walked from its fork to its join: so many steps are a moment's work.
_STEPS_LIMIT = 1_000_000
INTERRUPT_IN_BRANCH = "INTERRUPT_IN_PARALLEL_BRANCH"


class Graph(Struct, frozen=True):
    """Nodes by id with their places in the document, and the targets of each node's edges."""

    nodes: dict[str, dict[str, Any]]
    places: dict[str, int]
    edges: dict[str, list[str]]
    # The nodes that a walk may come to from each: a switch leads where its cases say.
    ways: dict[str, set[str]]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Graph:
        """The graph of a document that fits the schema. Of two nodes with one id, the last one counts."""
        nodes: dict[str, dict[str, Any]] = {node["id"]: node for node in document["nodes"]}
        places: dict[str, int] = {node["id"]: place for place, node in enumerate(document["nodes"])}
        edges: dict[str, list[str]] = {}
        for edge in document["edges"]:
            edges.setdefault(edge["source"], []).append(edge["target"])
        ways = {node_id: _targets(node, edges) & nodes.keys() for node_id, node in nodes.items()}
        return cls(nodes, places, edges, ways)

    def branch(self, parallel: str) -> set[str]:
        """The ids of all nodes in the branches of a parallel node, up to its join, nested ones included."""
        join = set(self.edges.get(parallel, []))
        found: set[str] = set()
        waiting = _entries(self.nodes[parallel]) & self.nodes.keys()
        while waiting:
            node_id = waiting.pop()
            if node_id in join:
                continue
            found.add(node_id)
            waiting |= self.ways[node_id] - found
        return found

    def of_type(self, kind: str) -> list[str]:
        """The ids of the nodes of one type, in the order of the document."""
        return [node_id for node_id, node in self.nodes.items() if node["type"] == kind]


def _targets(node: dict[str, Any], edges: dict[str, list[str]]) -> set[str]:
    config: dict[str, Any] = node.get("config", {})
    match node["type"]:
        case "switch":
            default = {config["default"]} if "default" in config else set[str]()
            return {case["target"] for case in config["cases"]} | default
        case "parallel":
            return _entries(node) | set(edges.get(node["id"], []))
        case _:
            return set(edges.get(node["id"], []))


def _entries(node: dict[str, Any]) -> set[str]:
    return {branch["entry"] for branch in node["config"]["branches"]}


def profile_rules(graph: Graph) -> Iterator[Diagnostic]:
    """An interrupt in a parallel branch would pause a part of a run, which no caller can resume."""
    parallels = len(graph.of_type("parallel"))
    if parallels * sum(1 + len(ways) for ways in graph.ways.values()) > _STEPS_LIMIT:
        text = f"{parallels} parallel nodes are too many in so large a graph"
        yield broken(("nodes",), "profile", "size", text)
        return
    inside = {node_id for parallel in graph.of_type("parallel") for node_id in graph.branch(parallel)}
    for node_id in graph.of_type("interrupt"):
        if node_id in inside:
            yield broken(
                ("nodes", graph.places[node_id]),
                "profile",
                "interrupt-in-parallel-branch",
                f"{INTERRUPT_IN_BRANCH}: interrupt {node_id!r} is in a parallel branch; ask outside",
                code=INTERRUPT_IN_BRANCH,
            )


def find_unknown_nodes(document: dict[str, Any]) -> list[Diagnostic]:
    """Return an error for each edge, case and branch that names a node which does not exist.

    A run may start with such a definition: only one that comes to such a place fails.
    """
    known = {node["id"] for node in document["nodes"]}
    named = [
        (("nodes", place, "config", *path), target)
        for place, node in enumerate(document["nodes"])
        for path, target in _named_targets(node)
    ]
    for place, edge in enumerate(document["edges"]):
        named += [(("edges", place, end), edge[end]) for end in ("source", "target")]
    return [
        broken(path, "graph", "known", f"there is no node {name!r}")
        for path, name in named
        if name not in known and (name != START or path[-1] != "source")
    ]


def _named_targets(node: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
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


def graph_rules(document: dict[str, Any], graph: Graph) -> Iterator[Diagnostic]:
    """Yield the broken rules that a walk relies on: one way in, one way out, one way on from each node.

    A name that no node has explains an edge that is missing, so such names come first.
    """
    if broken_rules := list(islice(_graph_rules(graph), DIAGNOSTICS_LIMIT)):
        yield from find_unknown_nodes(document)
        yield from broken_rules


def _graph_rules(graph: Graph) -> Iterator[Diagnostic]:
    yield from _ends(graph)
    for node_id, node in graph.nodes.items():
        count = len(graph.edges.get(node_id, []))
        if node["type"] == "end" and count:
            yield _graph(
                graph, node_id, "end-is-last", f"the end node {node_id!r} leads on; remove its edges"
            )
        elif node["type"] not in {"end", "switch"} and count != 1:
            yield _graph(
                graph, node_id, "one-successor", f"node {node_id!r} needs exactly one edge, it has {count}"
            )
        if node["type"] == "parallel":
            yield from _parallel(graph, node_id)


def _ends(graph: Graph) -> Iterator[Diagnostic]:
    begins = len(graph.edges.get(START, []))
    if begins != 1:
        yield broken(
            ("edges",), "graph", "one-beginning", f"needs exactly one edge from {START}, it has {begins}"
        )
    for kind in ("start", "end"):
        count = len(graph.of_type(kind))
        if count != 1:
            yield broken(
                ("nodes",), "graph", f"one-{kind}", f"needs exactly one node of type {kind}, it has {count}"
            )


def _parallel(graph: Graph, node_id: str) -> Iterator[Diagnostic]:
    config: dict[str, Any] = graph.nodes[node_id]["config"]
    branches = len(config["branches"])
    if config["join"] == "n_of_m" and config["n"] > branches:
        yield _graph(
            graph,
            node_id,
            "n-of-m",
            f"parallel {node_id!r} waits for {config['n']:g} branches and has {branches}",
        )
    for inner in sorted(graph.branch(node_id) & set(graph.of_type("end"))):
        yield _graph(
            graph,
            node_id,
            "branch-joins",
            f"a branch of {node_id!r} runs into {inner!r}; lead it to the node that follows {node_id!r}",
        )


def _graph(graph: Graph, node_id: str, rule: str, message: str) -> Diagnostic:
    return broken(("nodes", graph.places[node_id]), "graph", rule, message, nodeId=node_id)
