"""Calling a tool: the work is waited for, and whatever comes of it is an outcome that a model can act on.

An error is an outcome too, with advice in words: a model that is shown an exception can only give up.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec import json

from trunkline.bridge.arguments import ToolArguments
from trunkline.bridge.outcome import Handle, ToolOutcome
from trunkline.bridge.tool import Tool
from trunkline.client.result import Result, text_of
from trunkline.errors import (
    Forbidden,
    InvalidParams,
    Misuse,
    Refused,
    TaskNotFound,
    TimedOut,
    TooManyRequests,
    TrunklineError,
    Unauthenticated,
    Unavailable,
    Uncertain,
    Unreachable,
)
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.types import INTERRUPTED, TERMINAL, Part, TaskState

log = logging.getLogger("trunkline.bridge")
_FAILED = {
    TaskState.FAILED: "The agent failed",
    TaskState.REJECTED: "The agent declined the task",
    TaskState.CANCELED: "The task was canceled",
}


# What a model can do about an error; the first class that fits counts.
_ADVICE: tuple[tuple[type[TrunklineError] | tuple[type[TrunklineError], ...], str], ...] = (
    (InvalidParams, "Correct the arguments and call again."),
    (
        (Unauthenticated, Forbidden),
        "The agent does not let this caller in. Calling again does not help; tell the user.",
    ),
    (
        TooManyRequests,
        "The agent is busy. Call again in {error.retry_after_s:g} seconds at the earliest.",
    ),
    (Unavailable, "The agent cannot take work now. Call again later, or go on without it."),
    (TaskNotFound, "The agent does not know this task. Call again without the task id to start anew."),
    (Refused, "The agent does not take this request as it is. Change it, or go on without this tool."),
    (
        Uncertain,
        "The agent may be doing the work, but its answer was lost. "
        "Do not call again, as that may do it twice; tell the user.",
    ),
    (
        TimedOut,
        "The agent took too long and may still be at work. Go on without it, or ask for less; "
        "the same call again may do the work twice.",
    ),
    (Unreachable, "The agent was not reached. Call again later, or go on without it."),
    (TrunklineError, "The agent's answer cannot be used. Go on without this tool."),
)


class ToolClient(Protocol):
    """What a tool needs of a client; `trunkline.Client` is one."""

    async def card(self, *, refresh: bool = False) -> PeerCard:
        """The card of the agent."""
        ...

    async def send(
        self, content: Sequence[str | Part], *, skill: str = "", task_id: str = "", context_id: str = ""
    ) -> Result:
        """Send a message and wait until the task rests."""
        ...

    async def wait(self, task_id: str) -> Result:
        """Wait until a task rests."""
        ...


async def call_tool(tool: Tool, peer: ToolClient, asked: ToolArguments, context_id: str = "") -> ToolOutcome:
    """Ask the agent and wait for what comes of it. Only mistakes in code are raised."""
    try:
        if asked.task_id and not asked.parts:
            result = await peer.wait(asked.task_id)
        else:
            result = await peer.send(
                asked.parts, skill=tool.skill, task_id=asked.task_id, context_id=context_id
            )
    except Misuse:
        raise
    except TrunklineError as error:
        return failed(tool.name, error)
    return outcome_of(tool, result)


def outcome_of(tool: Tool, result: Result) -> ToolOutcome:
    """The outcome of a tool call by the agent's answer."""
    state = result.state
    if state in _FAILED:
        said = text_of(result.task.status.message) if result.task is not None else ""
        text = f"{_FAILED[state]}: {said or result.text or 'it gives no reason'}"
        log.info("tool.failed tool=%s task=%a state=%s", tool.name, result.task_id, state.value)
        return ToolOutcome(tool=tool.name, text=text, is_error=True, result=result)
    if state in INTERRUPTED:
        return _asking(tool, result)
    advice = ""
    if state not in TERMINAL:
        advice = (
            f"The agent has not finished. To wait for it, call {tool.name} again with "
            f'{tool.inputs.task_id}="{result.task_id}" and nothing else.'
        )
    return ToolOutcome(tool=tool.name, text=result.text, result=result, advice=advice)


def _asking(tool: Tool, result: Result) -> ToolOutcome:
    login = result.state is TaskState.AUTH_REQUIRED
    asked = result.question
    question = asked.text or ("It wants a login." if login else "It wants more input.")
    if asked.choices:
        question += f" (one of: {', '.join(asked.choices)})"
    elif asked.schema is not None:
        question += f" (JSON that fits the schema {json.encode(asked.schema).decode()})"
    inputs = tool.inputs
    advice = (
        f"The agent waits for an answer. Call {tool.name} with "
        f'{inputs.task_id}="{result.task_id}" and the answer as {inputs.answer}; '
        "ask the user if you do not know it."
    )
    if login:
        advice = f"Only the user can do this. When it is done: {advice}"
    return ToolOutcome(
        tool=tool.name,
        text=question,
        result=result,
        question=question,
        handle=Handle(tool.name, result.task_id, result.context_id),
        advice=advice,
    )


def failed(tool: str, error: TrunklineError) -> ToolOutcome:
    """An error as an outcome: what happened, and what a model can do about it."""
    log.warning("tool.error tool=%s error=%s", tool, type(error).__name__)
    advice = next(text for kinds, text in _ADVICE if isinstance(error, kinds))
    return ToolOutcome(tool=tool, text=str(error), is_error=True, advice=advice.format(error=error))
