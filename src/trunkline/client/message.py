"""What callers say, as the requests that transports take. Pure but for the ids it draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from trunkline.clock import new_id
from trunkline.errors import Misuse
from trunkline.wire.question import question_metadata
from trunkline.wire.types import Correlation, Message, Metadata, Part, PushConfig, Role, SendRequest

Content = str | Part | Message | Sequence[str | Part] | Mapping[str, Any]
# What a message is made on that is not given whole.
_BLANK = Message("", role=Role.USER)
_UNCORRELATED = Correlation()


class Sending(TypedDict, total=False):
    """The options of a message beside its content."""

    skill: str
    task_id: str
    # The id of the question that is answered.
    question: str
    context_id: str
    message_id: str
    metadata: Metadata | None
    push: PushConfig | Mapping[str, str] | None
    output_modes: Sequence[str]
    history_length: int | None
    extensions: Sequence[str]
    correlation_id: str
    parent_id: str
    # The W3C trace context that the work is part of.
    traceparent: str
    timeout_s: float | None


def parts_of(content: Content) -> tuple[Part, ...]:
    """The parts of a message; a mapping is one data part.

    Raises:
        Misuse: it is nothing that can be said.
    """
    if isinstance(content, str):
        return (Part(text=content),)
    if isinstance(content, Part):
        return (content,)
    if isinstance(content, Message):
        return content.parts
    if isinstance(content, Mapping):
        return (Part(data=dict(content)),)
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
        return tuple([_part(one, place) for place, one in enumerate(content)])
    raise Misuse(
        f"content is {type(content).__name__}; say it as text, a Part, a Message, a list of these, a mapping"
    )


def _part(one: object, place: int) -> Part:
    if isinstance(one, str):
        return Part(text=one)
    if isinstance(one, Part):
        return one
    raise Misuse(f"content[{place}] is {type(one).__name__}; an item is text or a Part")


def compose(content: Content, said: Sending, *, wait: bool = True) -> SendRequest:
    """The request that says this.

    The metadata of the message name the skill as agents in the field read it: `skillHint` and `skillId`.
    A complete `Message` keeps its own members, unless an option in `said` replaces them.

    Raises:
        Misuse: the content has an unsupported type, or no parts.
    """
    whole = content if isinstance(content, Message) else _BLANK
    parts = whole.parts or parts_of(content)
    if not parts:
        raise Misuse("content is empty; a message has at least one part")
    told = said.get
    skill = told("skill")
    named: Metadata | None = {"skillHint": skill, "skillId": skill} if skill else None
    if question := told("question"):
        named = {**(named or {}), **question_metadata(question)}
    message = Message(
        told("message_id") or whole.message_id or new_id(),
        told("context_id") or whole.context_id,
        told("task_id") or whole.task_id,
        whole.role or Role.USER,
        parts,
        whole.metadata if named is None else {**(whole.metadata or {}), **named},
        tuple(told("extensions", ())) or whole.extensions,
        whole.reference_task_ids,
        whole.extra,
    )
    modes, length = tuple(told("output_modes", ())), told("history_length")
    given = told("push")
    push = None if given is None else push_config(given)
    correlation = Correlation(told("correlation_id", ""), told("parent_id", ""))
    return SendRequest(
        message,
        modes,
        length,
        wait,
        push,
        told("metadata"),
        correlation=None if correlation == _UNCORRELATED else correlation,
    )


def push_config(given: PushConfig | Mapping[str, str]) -> PushConfig:
    """A push config, or the members of one.

    Raises:
        Misuse: a member is not known or not text, or there is no `url`.
    """
    if isinstance(given, PushConfig):
        return given
    try:
        return PushConfig(**msgspec.convert(given, dict[str, str]))
    except (TypeError, msgspec.ValidationError) as error:
        known = ", ".join(PushConfig.__struct_fields__)
        raise Misuse(f"push: {error}; it is a PushConfig, or a dict with texts of {known}") from None
