"""What a skill says, checked before it is recorded.

Structs check nothing when they are made. What a log takes and cannot be read from it again would cost
the whole task, so it is refused at the call of the skill, with the argument and its type.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar, cast

import msgspec

from trunkline.clock import now_ms
from trunkline.errors import Misuse, Unanswered
from trunkline.log.events import Event
from trunkline.wire.decode import MAX_DEPTH, depth
from trunkline.wire.json_schema import read_schema
from trunkline.wire.question import Question, Rejection, read_answer
from trunkline.wire.spellings import timestamp
from trunkline.wire.types import Artifact, Message, Metadata, Part

Built = TypeVar("Built", bound=Part | Artifact | Message | Event)
# Part, artifact and event around data that is as deep as it may be.
_ENVELOPE = 8
_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
Content = TypeVar("Content", Part, Artifact, Message)
LONGEST_S = 366 * 24 * 3600
_CHOICES_LIMIT = 100


def read_text(argument: str, value: object) -> str:
    """Text as JSON can hold it; of a subclass, its plain text.

    Raises:
        Misuse: it is none, or has half of a surrogate pair.
    """
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise Misuse(f"{argument} is text, not {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Misuse(f"{argument} cannot be written as UTF-8: {error.reason}") from None
    # The encoder knows `str` alone, and templates and frameworks give subclasses of it.
    return value if type(value) is str else str.__str__(value)


def read_flag(argument: str, value: object) -> bool:
    """A truth value.

    Raises:
        Misuse: it is none, even if Python would take it for one.
    """
    if not isinstance(value, bool):
        raise Misuse(f"{argument} is True or False, not {type(value).__name__}")
    return value


def is_number(value: object) -> bool:
    """Whether it can be counted with; to Python a truth value is a number too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_metadata(argument: str, value: object) -> Metadata | None:
    """A copy of metadata as JSON has it, or nothing.

    Raises:
        Misuse: it is no dict, is not JSON or is nested too deep.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Misuse(f"{argument} is a dict, not {type(value).__name__}")
    return cast("Metadata", read_json(argument, cast("object", value)))


def read_json(argument: str, value: object) -> object:
    """A copy of data as JSON has it.

    Raises:
        Misuse: it is not JSON or is nested too deep.
    """
    return msgspec.json.decode(encode_json(argument, value))


def encode_json(argument: str, value: object) -> bytes:
    """Data as JSON.

    Raises:
        Misuse: it cannot be, or is nested deeper than a caller's may be.
    """
    try:
        body = msgspec.json.encode(value, enc_hook=_dump)
    except _ERRORS as error:
        raise Misuse(f"{argument} is not JSON: {error} ({type(value).__name__})") from error
    if depth(body) > MAX_DEPTH:
        raise Misuse(f"{argument} is nested deeper than {MAX_DEPTH} levels")
    return body


def _dump(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def read_back(what: str, value: Built) -> Built:
    """A copy of a struct that an author filled, as it will be read from the log.

    Raises:
        Misuse: it could not be; `what` begins the sentence that says so.
    """
    kind = type(value)
    try:
        body = msgspec.json.encode(value)
        read = msgspec.json.decode(body, type=kind)
    except _ERRORS as error:
        raise Misuse(f"{what} a {kind.__name__} that does not fit: {error}") from error
    if depth(body) > MAX_DEPTH + _ENVELOPE:
        raise Misuse(f"{what} a {kind.__name__} that is nested deeper than {MAX_DEPTH} levels")
    return read


def read_content(what: str, value: Content) -> Content:
    """The same for what has parts: there is at least one, each with one kind of content.

    Raises:
        Misuse: it could not be read back, or would say nothing.
    """
    read = read_back(what, value)
    parts = (read,) if isinstance(read, Part) else read.parts
    for part in parts:
        given = (part.text, part.raw, part.url, None if part.data is msgspec.UNSET else part)
        if sum(one is not None for one in given) != 1:
            raise Misuse(f"{what} a Part without exactly one of text, raw, url or data")
    if not parts:
        raise Misuse(f"{what} a {type(value).__name__} without parts")
    return read


def read_parts(argument: str, content: object) -> tuple[Part, ...]:
    """The parts of a message: one for text, or those that an author built.

    Raises:
        Misuse: it is something else.
    """
    if isinstance(content, str):
        return (Part(text=read_text(argument, content)),)
    several = cast("Sequence[object]", content if isinstance(content, list | tuple) else (content,))
    for one in several:
        if not isinstance(one, Part):
            listed = "a list with a " if several is content else ""
            raise Misuse(f"{argument} is text or parts, not {listed}{type(one).__name__}")
    if not several:
        raise Misuse(f"{argument} is text or parts, not an empty list")
    return tuple([read_content(f"{argument} is", cast("Part", one)) for one in several])


def read_part(
    text: str | None, data: object, file: bytes | str | None, filename: str, media_type: str
) -> Part:
    """The part of an artifact, of exactly one of text, data and file.

    Raises:
        Misuse: there are none or several, or one is of another type.
    """
    given = (text is not None) + (data is not msgspec.UNSET) + (file is not None)
    if given != 1:
        raise Misuse("an artifact takes exactly one of text=, data= or file=")
    filename, media_type = read_text("filename", filename), read_text("media_type", media_type)
    if text is not None:
        return Part(text=read_text("text", text), media_type=media_type)
    if isinstance(file, bytes):
        return Part(raw=base64.b64encode(file).decode(), filename=filename, media_type=media_type)
    if isinstance(file, str):
        return Part(url=read_text("file", file), filename=filename, media_type=media_type)
    if file is not None:
        raise Misuse(f"file is bytes or a URL, not {type(file).__name__}")
    return Part(data=read_json("data", data), filename=filename, media_type=media_type)


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


def given_answer(question: Question, message: Message) -> object:
    """What a message answers.

    Raises:
        Unanswered: who was asked declines.
    """
    answer = read_answer(question, message)
    if isinstance(answer, Rejection):
        raise Unanswered(answer.text or "The question was declined.", rejected=True)
    return answer


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
