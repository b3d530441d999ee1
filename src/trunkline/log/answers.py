"""Whether a message answers what a task asks: only the open question, and only as it wants to be answered."""

from __future__ import annotations

from trunkline import errors
from trunkline.log.fold import State
from trunkline.wire.question import (
    QUESTION_CLOSED,
    QUESTION_KEY,
    answered_question,
    read_answer,
    read_question,
)
from trunkline.wire.types import Message, TaskState


def check_answer(state: State, message: Message, by: str) -> None:
    """A message may name the question that it answers: an older one must not be taken for the open one.

    Whoever is there to answer (`by`) says nothing else.

    Raises:
        InvalidParams: another question is open, or none, or the answer does not fit it.
    """
    named, question = answered_question(message), state.question
    asks = question is not None and named in ("", question.message_id)
    if (named and not asks) or (by and not (asks and state.state is TaskState.INPUT_REQUIRED)):
        asked = f"the question {named!r}" if named else "anything"
        raise errors.InvalidParams(
            f"task {state.task_id} does not ask {asked} now; get the task to see what it asks",
            field=f"message.metadata.{QUESTION_KEY}",
            conflict=QUESTION_CLOSED,
        )
    if question is not None:
        read_answer(read_question(question), message)
