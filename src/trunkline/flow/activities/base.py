"""What the engine asks of whoever does the work of a node: protocols, orders and outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from msgspec import Struct, UnsetType

from trunkline.errors import Misuse
from trunkline.flow.definition.checks import SchemaCheck
from trunkline.flow.definition.document import Node


class Outcome(Struct, frozen=True):
    """How an activity or a delegation ended; a failure has an error and mostly a code."""

    ok: bool
    output: dict[str, Any] = {}
    error: str = ""
    code: str = ""
    # Of delegations alone: the id that the engine gave, and the one that the other side knows it by.
    correlation: str = ""
    external_task: str = ""


async def check_small(check: SchemaCheck, value: object) -> str | None:
    """Return where a value does not fit a schema, without workers.

    Raises:
        Misuse: the check needs a worker.
    """
    fault = check.find_fault(value)
    if isinstance(fault, UnsetType):
        raise Misuse("the schema is too large to be checked outside of a run")
    return fault


class CallMeter(Protocol):
    """The meter of the model calls of one run."""

    def refusal(self) -> Outcome | None:
        """Return the outcome of a call that a spent quota or budget refuses, or None."""
        ...

    async def count(self, model: str, input_tokens: int, output_tokens: int) -> None:
        """Record a call that was answered."""
        ...

    def calling(self, model: str, input_tokens: int) -> AbstractContextManager[None]:
        """Return a context for the call itself: if it is cancelled, it is recorded with these tokens."""
        ...


class Unmetered:
    """The meter of a call outside of a run."""

    def refusal(self) -> Outcome | None:
        """Return None."""

    async def count(self, model: str, input_tokens: int, output_tokens: int) -> None:
        """Record nothing."""

    def calling(self, model: str, input_tokens: int) -> AbstractContextManager[None]:
        """Return a context without effect."""
        del model, input_tokens
        return nullcontext()


class Activity(Struct, frozen=True):
    """A `step`, `llm_call` or `tool_call` that is to be done now."""

    execution_id: str
    node: Node
    state: dict[str, Any]
    timeout_ms: int | None = None
    attempt: int = 1
    tenant: str = ""
    # Whether the operator provided the definition.
    by_operator: bool = False
    # Returns where a value does not fit a schema, or None.
    check: Callable[[SchemaCheck, object], Awaitable[str | None]] = check_small
    meter: CallMeter = Unmetered()


async def _keep_nothing(external_task: str) -> None:
    del external_task


def _note_nothing() -> None:
    pass


class DelegateOrder(Struct, frozen=True):
    """A delegation to perform now with a plain call: one attempt of one visit to an `agent_delegate` node."""

    execution_id: str
    node: Node
    state: dict[str, Any]
    input: dict[str, Any]
    protocol: str
    correlation: str
    timeout_ms: int | None = None
    attempt: int = 1
    tenant: str = ""
    # How often the run has come to the node, including this time.
    visit: int = 1
    # The ID of the external task, if an earlier process submitted this attempt before it crashed.
    external_task: str = ""
    # Records the ID of the external task in the run's log; returns when it is durable.
    record: Callable[[str], Awaitable[None]] = _keep_nothing
    # Whether the operator provided the definition.
    by_operator: bool = False
    # Notes that only a remote system works on it, so that no further crash counts against the run.
    note_remote: Callable[[], None] = _note_nothing

    @property
    def submission(self) -> str:
        """The idempotency key of this attempt: the correlation ID; from the second on with a suffix."""
        if self.visit == self.attempt == 1:
            return self.correlation
        return f"{self.correlation}:{self.visit}.{self.attempt}"


class ActivityExecutor(Protocol):
    """Whoever does steps, model calls or tool calls."""

    async def execute(self, activity: Activity) -> Outcome:
        """Do an activity; a failure is an outcome, what is raised ends the run without another attempt."""
        ...


class DelegateExecutor(Protocol):
    """Whoever does delegations that are plain calls."""

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """Have it done; a failure is an outcome, what is raised ends the run without another attempt."""
        ...


class AgentDelegates(Protocol):
    """The agents whose work is a child task of the run."""

    def agent(self, tenant: str, agent_id: str) -> str | None:
        """The agent of the child task, or None where the tenant has none: then it is a plain call."""
        ...


def failed(code: str, error: str) -> Outcome:
    """The outcome of work that was not done."""
    return Outcome(ok=False, error=error, code=code)


def output_of(value: object) -> dict[str, Any]:
    """What a node gives, as an object: any other value stands under `value`."""
    return value if isinstance(value, dict) else {"value": value}  # pyright: ignore[reportUnknownVariableType]
