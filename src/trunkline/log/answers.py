"""Which answers the open question of a task accepts, and from whom. Pure."""

from __future__ import annotations

from typing import cast

from trunkline import errors
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.wire.question import (
    QUESTION_CLOSED,
    QUESTION_KEY,
    answered_question,
    is_for_others,
    read_answer,
    read_question,
)
from trunkline.wire.types import Message, Metadata


def check_answerer(state: State, by: str) -> None:
    """Check that the open question may be answered by a principal.

    Raises:
        Forbidden: only others than the requesting principal may answer it.
    """
    if state.question is None or not is_for_others(state.question):
        return
    told = (state.metadata or {}).get(ev.DISPATCH_KEY)
    requested_by = cast("Metadata", told).get(ev.REQUESTED_BY) if isinstance(told, dict) else None
    if by in ("", state.principal, requested_by):
        raise errors.Forbidden(
            f"{by or state.principal!r} requested task {state.task_id} and may not answer its question; "
            "answer with a key of another owner that has the scope answer"
        )


def check_answer(state: State, message: Message, by: str) -> None:
    """Check that a message answers the open question, if it names one or comes from somebody else (`by`).

    Raises:
        InvalidParams: another question is open, or none, or the answer does not fit it.
    """
    named, question = answered_question(message), state.question
    asks = question is not None and named in ("", question.message_id)
    if (named or by) and not asks:
        asked = f"the question {named!r}" if named else "anything"
        raise errors.InvalidParams(
            f"task {state.task_id} does not ask {asked} now; get the task to see what it asks",
            field=f"message.metadata.{QUESTION_KEY}",
            conflict=QUESTION_CLOSED,
        )
    if question is not None:
        read_answer(read_question(question), message)
