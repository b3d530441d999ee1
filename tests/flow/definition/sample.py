"""Definitions of ours that tests read and break."""

from __future__ import annotations

from typing import Any


def node(kind: str, node_id: str, /, **config: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "type": kind,
        **({"config": config} if config or kind not in {"start", "end"} else {}),
    }


def line(*nodes: dict[str, Any], **properties: Any) -> dict[str, Any]:
    """A definition whose nodes follow each other, between a start and an end."""
    chain = [node("start", "begin"), *nodes, node("end", "done")]
    return graph(chain, *[(a["id"], b["id"]) for a, b in zip(chain, chain[1:], strict=False)], **properties)


def graph(nodes: list[dict[str, Any]], *edges: tuple[str, str], **properties: Any) -> dict[str, Any]:
    """A definition with these nodes and edges, and the edge to the first of the nodes."""
    return {
        "document": {
            "schema": "https://agent-workflow.dev/schemas/workflow-definition.json",
            "name": "sample",
            "version": "1.2.0",
        },
        "state_schema": {"type": "object", "properties": properties},
        "nodes": nodes,
        "edges": [{"source": a, "target": b} for a, b in [("__start__", nodes[0]["id"]), *edges]],
    }
