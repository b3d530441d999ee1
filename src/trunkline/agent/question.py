"""What a skill may ask: the kind of answer that it wants, and how long it waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from trunkline.agent.validation import is_number, read_metadata, read_text
from trunkline.clock import now_ms
from trunkline.errors import Misuse
from trunkline.wire.json_schema import read_schema
from trunkline.wire.question import Question
from trunkline.wire.spellings import timestamp
from trunkline.wire.types import Metadata

LONGEST_S = 366 * 24 * 3600
_CHOICES_LIMIT = 100


def typed_question(text: str, choices: Sequence[str], schema: Metadata | None, deadline: int) -> Question:
    """A question with the answer that it wants.

    Raises:
        Misuse: it cannot be answered, or no answer could be checked.
    """
    if choices and schema is not None:
        raise Misuse("a question takes choices= or schema=, not both")
    if isinstance(choices, str) or len(set(choices)) != len(choices) or len(choices) > _CHOICES_LIMIT:
        raise Misuse(f"choices is a list of at most {_CHOICES_LIMIT} different texts")
    known = [read_text("a choice", choice) for choice in choices]
    if any(not choice or choice != choice.strip() for choice in known):
        raise Misuse("a choice is a text that is not empty, without space around it")
    wanted = read_metadata("schema", schema)
    if wanted is not None:
        read_schema(wanted)
    until = timestamp(deadline) if deadline else ""
    return Question(text, schema=wanted, choices=known, deadline=until)


def moment_of(deadline: float | datetime | None) -> int:
    """The moment that a deadline means, in milliseconds since the epoch; 0 for none.

    Raises:
        Misuse: it is no time to wait, or a time without a zone.
    """
    if deadline is None:
        return 0
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise Misuse("deadline is a datetime without a zone; give it one, as in datetime.now(UTC)")
        return round(deadline.timestamp() * 1000)
    if not is_number(cast("object", deadline)):
        raise Misuse(f"deadline is seconds or a datetime, not {type(deadline).__name__}")
    if not 0 <= deadline <= LONGEST_S:
        raise Misuse(f"deadline is 0 to {LONGEST_S} seconds or a datetime, not {deadline!r}")
    return now_ms() + round(deadline * 1000)
