"""Questions and their answers on the wire. Pure.

The metadata of a question's message names it, and the same metadata on an answer says which one it answers.
What kind of answer is wanted stands in a data part beside the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, cast

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from trunkline.errors import InvalidParams, Misuse, ParseError
from trunkline.wire.decode import DECODE_ERRORS, check_structure
from trunkline.wire.error_reader import as_list, as_object
from trunkline.wire.json_schema import mismatch, read_schema
from trunkline.wire.types import Message, Metadata, Part

QUESTION_KEY = "trunkline.question"
# The reason of a refusal: what a message answers is not asked, or not any more.
QUESTION_CLOSED = "QUESTION_CLOSED"
QUESTION_TYPE = "application/vnd.trunkline.question+json"
# Who may answer: anybody who may answer tasks of the tenant, or anybody except the requesting principal.
AnsweredBy = Literal["", "others"]
OTHERS: Final = "others"


class Question(str):
    """The words of a question; beside them its id, what its answer must be, and until when it is open.

    `choices` are the texts of which the answer is one, `schema` is the JSON Schema that it fits, `deadline` a
    time as in `2026-01-31T12:00:00Z`. Each is empty where the agent says nothing of it.
    """

    __slots__ = ("choices", "deadline", "id", "schema")

    def __new__(
        cls,
        text: str,
        *,
        id: str = "",
        schema: Metadata | None = None,
        choices: Sequence[str] = (),
        deadline: str = "",
    ) -> Question:
        """Put a question together."""
        made = str.__new__(cls, text)
        made.id, made.schema, made.choices, made.deadline = id, schema, tuple(choices), deadline
        return made

    id: str
    schema: Metadata | None
    choices: tuple[str, ...]
    deadline: str

    @property
    def text(self) -> str:
        """The words alone."""
        return str.__str__(self)

    def part(self) -> Part | None:
        """The data part that says which answer is wanted, if anything is."""
        told = {"schema": self.schema, "choices": list(self.choices), "deadline": self.deadline}
        body = {name: value for name, value in told.items() if value}
        # Named twice, as 0.3 has no media type for data.
        return (
            Part(data=body, media_type=QUESTION_TYPE, metadata={"mimeType": QUESTION_TYPE}) if body else None
        )


class Rejection(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of who was asked and declines: data `{"rejected": true, "text": "…"}`."""

    rejected: bool
    text: str = ""


def question_metadata(question_id: str, answered_by: AnsweredBy = "") -> Metadata:
    """Return the metadata that names the question which a message asks or answers."""
    restricted = {"answeredBy": answered_by} if answered_by else {}
    return {QUESTION_KEY: {"id": question_id, **restricted}}


def is_for_others(question: Message) -> bool:
    """Return whether the principal that requested the task may not answer a question."""
    named: object = (question.metadata or {}).get(QUESTION_KEY)
    return isinstance(named, dict) and cast("Metadata", named).get("answeredBy") == OTHERS


def asked_of_others(question: Message) -> Message:
    """Return a question that the principal which requested the task may not answer."""
    metadata = {**(question.metadata or {}), **question_metadata(question.message_id, OTHERS)}
    return replace(question, metadata=metadata)


def answered_question(message: Message) -> str:
    """The id of the question that a message names; empty if it names none."""
    named: object = (message.metadata or {}).get(QUESTION_KEY)
    if isinstance(named, dict):
        named = cast("Metadata", named).get("id")
    return named if isinstance(named, str) else ""


def is_question_part(part: Part) -> bool:
    """Whether a part says which answer is wanted, and is no content."""
    return part.data is not UNSET and QUESTION_TYPE in (
        part.media_type,
        (part.metadata or {}).get("mimeType"),
    )


def read_question(message: Message) -> Question:
    """The question that a message asks, of whichever agent; what cannot be read of it is left out."""
    text = "".join([part.text for part in message.parts if part.text is not None])
    body = as_object(next((part.data for part in message.parts if is_question_part(part)), None))
    schema, deadline = body.get("schema"), body.get("deadline")
    return Question(
        text,
        id=answered_question(message),
        schema=cast("Metadata", schema) if isinstance(schema, dict) else None,
        choices=[one for one in as_list(body.get("choices")) if isinstance(one, str)],
        deadline=deadline if isinstance(deadline, str) else "",
    )


def read_answer(question: Question, message: Message) -> object:
    """What a message answers: the choice, the data that fits the schema, a rejection, else the text.

    Raises:
        InvalidParams: it is none of the choices, or does not fit.
    """
    data = [(place, part.data) for place, part in enumerate(message.parts) if part.data is not UNSET]
    place, given = data[0] if data else (0, message.text)
    field = f"message.parts[{place}].{'data' if data else 'text'}"
    # The word of who was asked, whatever the schema would let pass.
    if (rejection := _rejection(given)) is not None:
        return rejection
    found = _fitting(question, given, field, is_text=not data)
    return found if question.schema or question.choices else message.text


def _fitting(question: Question, given: object, field: str, *, is_text: bool) -> object:
    if question.choices:
        chosen = given.strip() if isinstance(given, str) else given
        if chosen not in question.choices:
            raise InvalidParams(f"the answer must be one of {', '.join(question.choices)}", field=field)
        return chosen
    if question.schema is None:
        return given
    try:
        schema = read_schema(question.schema)
    except Misuse:
        # Of a skill that wrote its question by hand: it has to check the answer itself.
        return given
    values = [given]
    if is_text and isinstance(given, str):
        # Many callers can only send text, so the data may be written as such.
        try:
            check_structure(body := given.encode())
            values.insert(0, msgspec.json.decode(body))
        except (*DECODE_ERRORS, ParseError):
            pass
    faults: list[tuple[str, str]] = []
    for value in values:
        if (fault := mismatch(schema, value)) is None:
            return value
        faults.append(fault)
    path, why = faults[0]
    raise InvalidParams(f"the answer does not fit: {path.lstrip('.') or 'it'} {why}", field=field + path)


def _rejection(given: object) -> Rejection | None:
    try:
        found = msgspec.convert(given, Rejection)
    except msgspec.ValidationError:
        return None
    return found if found.rejected else None
