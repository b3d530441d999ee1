"""What a walk needs before it can go on. Pure data: whoever drives the walk sees to it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from trunkline.flow.definition.document import Node

Span = dict[str, str]


class Evaluate(Struct, frozen=True):
    """The value of a filter; nothing else of the walk goes on before it is there."""

    program: str
    root: dict[str, Any]


class CheckState(Struct, frozen=True):
    """Where the state does not fit its schema, or None; nothing else of the walk goes on before that."""

    state: dict[str, Any]


class RecordRows(Struct, frozen=True):
    """A turn for other runs, with the rows recorded once there are many; nothing else of the walk goes on.

    A way that needs nothing may lead round in a circle.
    """


class Perform(Struct, frozen=True):
    """An attempt at a `step`, `llm_call` or `tool_call`."""

    node: Node
    visit: int
    attempt: int
    state: dict[str, Any]
    span: Span | None


class Delegate(Struct, frozen=True):
    """An attempt at an `agent_delegate`; `until` is when it is given up, 0 for never.

    `calls` is how many children the run was to have before it.
    """

    node: Node
    visit: int
    attempt: int
    state: dict[str, Any]
    input: dict[str, Any]
    correlation: str
    until: int
    span: Span | None
    calls: int = 0


class Nest(Struct, frozen=True):
    """A run of another workflow, under its own execution id; `calls` as with `Delegate`."""

    node: Node
    child: str
    input: dict[str, Any]
    calls: int = 0


class Sleep(Struct, frozen=True):
    """A moment to come; `fires` if a row tells of it, as with a timer and not with a pause before a retry.

    `length_ms` is how long the whole pause is; None if the node names a date.
    """

    node: Node
    due: int
    length_ms: int | None
    fires: bool


class Ask(Struct, frozen=True):
    """A word from outside: the answer to an interrupt, or a signal."""

    node: Node
    visit: int
    awaits: Literal["interrupt", "signal"]
    span: Span | None


Effect = Evaluate | CheckState | RecordRows | Perform | Delegate | Nest | Sleep | Ask


# What no row tells of: it is seen to at once, and again whenever the walk comes by.
UNRECORDED = (Evaluate, CheckState, RecordRows)


class Done(Struct, frozen=True):
    """How an activity, a delegation or a nested run ended; `by_host` if its result was submitted."""

    ok: bool
    output: dict[str, Any] = {}
    error: str = ""
    code: str = ""
    external_task: str = ""
    by_host: bool = False
    # Of a nested run alone: what it gave, where that is not its state.
    result: Any = None
