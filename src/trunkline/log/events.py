"""Every kind of event a task's log can hold: the dictionary of the system.

Events are immutable and stored as JSON text. `Recorded` is an event with its place.
May import wire types; touches nothing.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from trunkline.wire.types import Artifact, Message, Metadata, TaskState


class Event(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=str.lower, gc=False):
    """Base of all kinds; `kind` is the class name in lower case."""


class Submitted(Event, frozen=True):
    """A new task: who asked for what. `node` is the first claim, in the same event."""

    message: Message
    context_id: str
    owner: str
    node: str
    skill: str = ""
    output_modes: tuple[str, ...] = ()
    metadata: Metadata | None = None


class Claimed(Event, frozen=True):
    """A node takes the task over; events of earlier owners are refused from here on."""

    node: str


class Said(Event, frozen=True):
    """The caller's further message on an open task."""

    message: Message


class Status(Event, frozen=True):
    """The task is now in this state."""

    state: TaskState
    message: Message | None = None
    metadata: Metadata | None = None


class Delta(Event, frozen=True):
    """Text added to the answer that a skill writes piece by piece."""

    artifact_id: str
    text: str
    append: bool = True
    last: bool = False


class Chunk(Event, frozen=True):
    """An artifact, or parts appended to one. `closes` ends an answer begun by deltas."""

    artifact: Artifact
    append: bool = False
    last: bool = False
    closes: bool = False


class Replied(Event, frozen=True):
    """The skill answered with a message instead of a result; this ends the task."""

    message: Message


class CancelRequested(Event, frozen=True):
    """Somebody asked the running executor to stop."""

    by: str


AnyEvent = Submitted | Claimed | Said | Status | Delta | Chunk | Replied | CancelRequested


class Recorded(Struct, frozen=True, gc=False):
    """An event at its place in the log; `at` is milliseconds since the epoch."""

    seq: int
    at: int
    event: AnyEvent


_decoder = msgspec.json.Decoder(AnyEvent)
encode = msgspec.json.Encoder().encode


def decode(body: bytes | str) -> AnyEvent:
    """The event in a stored body."""
    return _decoder.decode(body)
