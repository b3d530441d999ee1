"""What callers are told of runs: where one stands, and how it ended. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from trunkline.flow.engine.run_messages import Awaited, RunQuestion, asked_in
from trunkline.flow.engine.view import RunView
from trunkline.wire.types import Message, Metadata

COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
ENDS = {"ExecutionCompleted": COMPLETED, "ExecutionFailed": FAILED, "ExecutionCancelled": CANCELLED}
PHASES = {
    "interrupt": "interrupted",
    "agent": "interrupted",
    "signal": "awaiting_signal",
    "activity": "awaiting_activity",
}
REDACTED = "[REDACTED]"
_SECRET = frozenset({"apikey", "token", "password", "secret"})


class RunResult(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run as the call that moved it returns it; `status` is `running` if the wait was too short."""

    execution_id: str
    status: str
    final_state: dict[str, Any] | None = None
    result: Any | UnsetType = UNSET
    error: str = ""
    code: str = ""
    reason: str = ""
    node_id: str | None = None
    activity_id: str = ""
    state: dict[str, Any] | None = None
    parallel_span: dict[str, str] | None = None
    agent_id: str = ""
    protocol: str = ""
    delegate_input: dict[str, Any] | None = None
    delegate_correlation_id: str = ""
    question: RunQuestion | None = None
    signal_name: str = ""
    timeout_ms: int | None = None


class RunStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The status of a run: its phase, its node, its result, and what it waits for."""

    execution_id: str
    phase: str
    current_node_id: str | None = None
    activity_id: str = ""
    result: Any | UnsetType = UNSET
    last_error: str = ""
    parallel_span: dict[str, str] | None = None
    signal_name: str = ""
    delegate_correlation_id: str = ""
    agent_id: str = ""
    protocol: str = ""
    delegate_input: dict[str, Any] | None = None
    question: RunQuestion | None = None
    child_execution_id: str = ""
    parent_execution_id: str = ""


class ListedRun(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run in a list."""

    execution_id: str
    phase: str
    definition_name: str = ""
    updated_at: str = ""


class RunPage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Runs, newest first; `next_cursor` leads to those that follow."""

    executions: list[ListedRun]
    next_cursor: str = ""


def phase_of(view: RunView, about: Awaited | None) -> str:
    """The phase of a run: how it ended, what it waits for, or that it runs."""
    if view.ended is not None:
        return ENDS[view.ended.name]
    return "running" if about is None else PHASES[about.awaits]


def asked_question(about: Awaited | None, message: Message | None) -> RunQuestion | None:
    """Return the question that a run asks, or None if it awaits no answer of a person."""
    if about is None or message is None or about.awaits not in ("interrupt", "agent"):
        return None
    return asked_in(message)


def run_result(view: RunView, about: Awaited | None, asked: RunQuestion | None = None) -> RunResult:
    """Return a run as the call that moved it reports it."""
    phase = phase_of(view, about)
    result = RunResult(execution_id=view.execution_id, status=phase)
    if view.ended is not None:
        return _ended(view, phase)
    if about is None:
        return result
    return RunResult(
        execution_id=view.execution_id,
        status=phase,
        node_id=about.node_id or view.node,
        activity_id=about.activity_id,
        state=view.state,
        parallel_span=about.parallel_span,
        agent_id=about.agent_id,
        protocol=about.protocol,
        delegate_input=about.delegate_input,
        delegate_correlation_id=about.delegate_correlation_id,
        question=asked,
        signal_name=about.signal_name,
        timeout_ms=about.timeout_ms,
    )


def _ended(view: RunView, phase: str) -> RunResult:
    told: Metadata = view.ended.payload if view.ended is not None else {}
    run, final = view.execution_id, view.state
    if phase == COMPLETED:
        return RunResult(execution_id=run, status=phase, final_state=final, result=told.get("result"))
    if phase == CANCELLED:
        return RunResult(execution_id=run, status=phase, final_state=final, reason=told.get("reason", ""))
    failure: Metadata = {} if view.failure is None else view.failure.payload
    error, code = told.get("error", ""), told.get("code") or failure.get("code", "")
    if failure.get("reason") == "output_mapping_jq_failed":
        error = f"output_mapping of {failure.get('nodeId')!r} failed: {error}"
    return RunResult(execution_id=run, status=phase, final_state=final, error=error, code=code)


def run_status(view: RunView, about: Awaited | None, asked: RunQuestion | None = None) -> RunStatus:
    """Return the status of a run: its phase, node and result, and the activity, signal or answer awaited."""
    phase = phase_of(view, about)
    ended: Metadata = {} if view.ended is None else view.ended.payload
    error = {FAILED: ended.get("error", ""), CANCELLED: ended.get("reason", "")}.get(phase, "")
    pending = about if about is not None and about.agent_id else None
    nested = view.nested or {}
    parent, _, own = view.execution_id.rpartition(":sub:")
    child = nested.get("childExecutionId", view.execution_id if own and parent else "")
    return RunStatus(
        execution_id=view.execution_id,
        phase=phase,
        current_node_id=None if phase == COMPLETED else (about.node_id if about else "") or view.node,
        activity_id="" if about is None else about.activity_id,
        result=ended.get("result", UNSET) if phase == COMPLETED else UNSET,
        last_error=error,
        parallel_span=None if about is None else about.parallel_span,
        signal_name="" if about is None else about.signal_name,
        delegate_correlation_id=(view.delegated or {}).get("delegateCorrelationId", ""),
        agent_id="" if pending is None else pending.agent_id,
        protocol="" if pending is None else pending.protocol,
        delegate_input=None if pending is None else pending.delegate_input,
        question=asked,
        child_execution_id=child,
        parent_execution_id=nested.get("parentExecutionId", parent),
    )


def redacted(value: Any) -> Any:
    """A value as it may be shown: what stands under the name of a secret does not."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: REDACTED if name.lower() in _SECRET else redacted(one) for name, one in members.items()}
    if isinstance(value, list):
        return [redacted(one) for one in cast("list[Any]", value)]
    return value


def moment_text(at: int) -> str:
    """A moment as rows and lists show it."""
    told = datetime.fromtimestamp(at / 1000, UTC)
    return f"{told:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"


def read_moment(text: str) -> int:
    """The milliseconds of a moment.

    Raises:
        ValueError: it is none.
    """
    found = datetime.fromisoformat(text)
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
