"""Workflow documents of a few nodes, for tests: a chain of nodes between a start and an end."""

from __future__ import annotations

from typing import Any

SCHEMA = "https://agent-workflow.dev/schemas/workflow-definition.json"
DELEGATE: dict[str, Any] = {
    "id": "implement",
    "type": "agent_delegate",
    "config": {"agent_id": "coder", "protocol": "a2a", "input_mapping": {"task": "${ .task }"}},
}


def tool(node_id: str, **more: Any) -> dict[str, Any]:
    """A tool call."""
    return {
        "id": node_id,
        "type": "tool_call",
        "config": {"server": "s", "tool": "t", "arguments": {}},
        **more,
    }


def fork(node_id: str, join: str, *entries: str, n: int | None = None) -> dict[str, Any]:
    """A parallel node whose branches are named after their first nodes."""
    branches = [{"name": entry, "entry": entry} for entry in entries]
    count = {} if n is None else {"n": n}
    return {"id": node_id, "type": "parallel", "config": {"join": join, "branches": branches, **count}}


def flow_document(
    *nodes: dict[str, Any],
    edges: list[tuple[str, str]] | None = None,
    properties: dict[str, Any] | None = None,
    output: str = ".",
    **more: Any,
) -> dict[str, Any]:
    """A definition: the nodes one after the other, or by the edges that are given."""
    chain = ["start", *[node["id"] for node in nodes], "end"]
    pairs = edges or list(zip(chain, chain[1:], strict=False))
    return {
        "document": {"schema": SCHEMA, "name": "sample", "version": "1.0.0"},
        "state_schema": {"type": "object", "properties": properties or {}},
        "nodes": [
            {"id": "start", "type": "start"},
            *nodes,
            {"id": "end", "type": "end", "config": {"output_mapping": output}},
        ],
        "edges": [
            {"source": "__start__", "target": "start"},
            *[{"source": source, "target": target} for source, target in pairs],
        ],
        **more,
    }
