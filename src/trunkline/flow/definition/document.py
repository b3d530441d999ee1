"""A workflow definition as the engine walks it: nodes by id, the way from each to the next, policies."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from trunkline.flow.definition.canonical import definition_hash
from trunkline.store.documents import DocumentKind

# Follows the hash in the document of a workflow ID that an operator registered for another tenant.
BY_OPERATOR = " operator"
_HASH = re.compile(f"[0-9a-f]{{64}}(?:{BY_OPERATOR})?")


def _decode_definition(hash: str, body: bytes) -> dict[str, Any]:
    document = msgspec.json.decode(body, type=dict[str, Any])
    if definition_hash(document) != hash:
        raise ValueError("its content does not have its hash")
    return document


def _decode_hash(_workflow_id: str, body: bytes) -> str:
    if not _HASH.fullmatch(text := body.decode()):
        raise ValueError("it holds no hash")
    return text


# The documents of a store that hold a registered definition by its hash, and the hash by its ID.
WORKFLOW_KIND, WORKFLOW_ID_KIND = "workflow", "workflow.id"
WORKFLOWS: DocumentKind[dict[str, Any]] = DocumentKind(WORKFLOW_KIND, _decode_definition)
WORKFLOW_IDS: DocumentKind[str] = DocumentKind(WORKFLOW_ID_KIND, _decode_hash)

START = "__start__"

NodeType = Literal[
    "start", "end", "step", "llm_call", "tool_call", "switch", "interrupt", "parallel", "wait", "set_state",
    "subworkflow", "agent_delegate",
]  # fmt: skip
Reducer = Literal["overwrite", "append", "merge"]


class Retry(Struct, frozen=True):
    """How often and after which pauses an activity is tried again."""

    max_attempts: int
    initial_ms: int = 0
    coefficient: float = 1.0
    longest_ms: int | None = None
    # Codes of failures that another attempt would not cure.
    final: frozenset[str] = frozenset()

    def again(self, attempt: int, code: str) -> bool:
        """Whether there is another attempt after this one, which failed with a code."""
        return attempt < self.max_attempts and code not in self.final

    def backoff_ms(self, attempt: int) -> int:
        """How long to wait after an attempt, the first of which is 1, before the next one."""
        longest = LONGEST_MS if self.longest_ms is None else min(self.longest_ms, LONGEST_MS)
        try:
            pause = self.initial_ms * self.coefficient ** (attempt - 1)
        except OverflowError:
            return longest
        return int(max(0, min(pause, longest)))


# No pause and no wait is longer: a thousand years, which every clock can still add to a moment.
LONGEST_MS = 1000 * 366 * 24 * 3_600_000


class Node(Struct, frozen=True):
    """One node. Its `config` is as in the document and fits the schema of its type."""

    id: str
    type: NodeType
    config: dict[str, Any]
    retry: Retry | None = None
    timeout_ms: int | None = None


class Checkpointing(Struct, frozen=True):
    """When a checkpoint is written: at every boundary, at every n-th, or never."""

    strategy: Literal["after_each_node", "every_n_nodes", "disabled"] = "after_each_node"
    n: int = 1


class Definition(Struct, frozen=True):
    """A definition that every rule has been checked for."""

    name: str
    version: str
    nodes: dict[str, Node]
    # The one static successor of each node that has one. What a switch leads to is in its config.
    next: dict[str, str]
    # Where the walk begins.
    first: str
    state_schema: dict[str, Any]
    reducers: dict[str, Reducer]
    checkpoint: Checkpointing
    # As it was given, without a signature; this is what the hash is of.
    document: dict[str, Any]
    hash: str
