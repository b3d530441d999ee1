"""Submissions of hosts: matching with the activity that a run awaits, and the reply to the run."""

from __future__ import annotations

from typing import Any, cast

from trunkline.errors import FlowRefused
from trunkline.flow.engine.run_messages import Awaited, Mode, RunReply
from trunkline.flow.forms import ActivitySubmission

NOT_AWAITING, SUBMIT_INVALID = "ACTIVITY_SUBMIT_NOT_AWAITING", "SUBMIT_VALIDATION_ERROR"
# An ID in an error is cut to so many characters.
_SHOWN_ID = 512


def check_activity(
    about: Awaited, execution_id: str, node_id: str, activity_id: str, span: dict[str, str] | None
) -> None:
    """Check that a submission is for the open activity.

    Raises:
        FlowRefused: it is for another one, or it may be for an earlier visit to the same delegation.
    """
    if node_id != about.node_id:
        raise FlowRefused(
            "ACTIVITY_SUBMIT_NODE_MISMATCH",
            f"run {execution_id!r} waits for {about.node_id!r}, not for {node_id!r}",
        )
    if span != about.parallel_span:
        raise FlowRefused(
            "ACTIVITY_SUBMIT_PARALLEL_MISMATCH",
            f"{node_id!r} is awaited in {_branch(about.parallel_span)}, not in {_branch(span)}",
        )
    if activity_id and activity_id != about.activity_id:
        text = f"activity {activity_id[:_SHOWN_ID]!r} is not open; the run awaits {about.activity_id!r}"
        raise FlowRefused(NOT_AWAITING, text)
    if not activity_id and about.agent_id and about.visit > 1:
        text = (
            f"activity_id is missing: {about.node_id!r} was submitted before under the same "
            f"delegate_correlation_id; the run now awaits {about.activity_id!r}"
        )
        raise FlowRefused(NOT_AWAITING, text)


def read_outcome(outcome: ActivitySubmission, about: Awaited, mode: Mode) -> tuple[RunReply, dict[str, Any]]:
    """Return the reply to a run that a submission stands for, and its payload.

    Raises:
        FlowRefused: it is for another delegation.
    """
    if not outcome.ok:
        return RunReply(mode, ok=False, error=outcome.error, code=outcome.code), {}
    result: dict[str, Any] = (
        dict(cast("dict[str, Any]", outcome.result)) if isinstance(outcome.result, dict) else {}
    )
    if not about.agent_id:
        return RunReply(mode), result
    inside = result.pop("delegateCorrelationId", None) or result.pop("delegate_correlation_id", None)
    task = result.pop("externalTaskId", None) or result.pop("external_task_id", None)
    given, expected = outcome.delegate_correlation_id or inside, about.delegate_correlation_id
    if given != expected:
        wrong = f", not {given!r}" if given else "; it is missing"
        raise FlowRefused(SUBMIT_INVALID, f"delegate_correlation_id must be {expected!r}{wrong}")
    return RunReply(
        mode, external_task=outcome.external_task_id or (task if isinstance(task, str) else "")
    ), result


def _branch(span: dict[str, str] | None) -> str:
    return "no branch" if span is None else f"the branch {span.get('branchName')!r}"
