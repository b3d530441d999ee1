"""The script of a mock: who it says it is, which message gets which reply, and what goes wrong.

Frozen structs, to be written in Python or as YAML (`mock.script` reads it). Unknown members are refused.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from trunkline.mock.faults import MockFault
from trunkline.mock.quirks import Quirks
from trunkline.wire.types import Metadata

State = Literal[
    "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required"
]
Binding = Literal["JSONRPC", "HTTP+JSON"]
Version = Literal["1.0", "0.3"]


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all that is written by hand: a misspelled member is an error, not a surprise."""


class ScriptedFile(Strict, frozen=True):
    """A file: its content as text or base64, or where it is."""

    name: str = ""
    media_type: str = ""
    text: str | None = None
    base64: str | None = None
    url: str | None = None


class Piece(Strict, frozen=True):
    """One part: a text, a value or a file."""

    text: str | None = None
    data: Any | UnsetType = UNSET
    file: ScriptedFile | None = None
    media_type: str = ""
    metadata: Metadata | None = None


Content = str | tuple[Piece, ...]


class Made(Strict, frozen=True):
    """An artifact; its content is one text, value or file, or several `parts`."""

    id: str = ""
    name: str = ""
    description: str = ""
    text: str | None = None
    data: Any | UnsetType = UNSET
    file: ScriptedFile | None = None
    parts: tuple[Piece, ...] = ()
    metadata: Metadata | None = None


class Step(Strict, frozen=True):
    """One event of a reply told step by step: a state with what is said, or an artifact, after a delay."""

    delay: float = 0
    state: State | None = None
    say: Content | None = None
    artifact: Made | None = None
    append: bool = False
    last: bool = True
    metadata: Metadata | None = None


class Failure(Strict, frozen=True):
    """An error of the protocol instead of a task."""

    code: int
    message: str = "the mock was told to refuse this"
    data: Any | UnsetType = UNSET


class Reply(Strict, frozen=True):
    """What a message is answered with. One with nothing set is a task that completes without a word."""

    # What is made: one artifact each.
    text: str | None = None
    data: Any | UnsetType = UNSET
    file: ScriptedFile | None = None
    echo: bool = False
    artifacts: tuple[Made, ...] = ()
    # One artifact in chunks.
    stream: tuple[str | Piece, ...] = ()
    # Statuses on the way, and what is said with the last one.
    progress: tuple[str, ...] = ()
    say: Content | None = None
    # How it ends; each with its word. `hold` never does.
    ask: Content | None = None
    need_auth: Content | None = None
    fail: Content | None = None
    reject: Content | None = None
    cancel: Content | None = None
    hold: bool = False
    # Instead of a task.
    message: Content | None = None
    error: Failure | None = None
    # Instead of all of the above.
    steps: tuple[Step, ...] = ()
    # Seconds before the first event, and between two.
    delay: float = 0
    pause: float = 0
    # The answer to a send is the task as submitted, even to who would wait.
    receipt: bool = False
    metadata: Metadata | None = None
    # What the next message to this task gets; without it the rules are asked.
    then: Reply | str | None = None


class When(Strict, frozen=True):
    """Which messages are meant: all that is set must hold. Empty means any."""

    skill: str = ""
    text: str | None = None
    # Whatever the case.
    contains: str = ""
    regex: str = ""
    # A data part has at least these members.
    data: Any | UnsetType = UNSET
    # The n-th message of its conversation.
    turn: int | None = None


class Rule(Strict, frozen=True):
    """A message and its reply. The first rule that fits is taken; one with `times` only so often."""

    name: str = ""
    when: When = When()
    reply: Reply | str = Reply()
    times: int | None = None
    faults: tuple[MockFault, ...] = ()


class Ability(Strict, frozen=True):
    """A skill on the card."""

    id: str
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class Extra(Strict, frozen=True):
    """A protocol extension on the card."""

    uri: str
    description: str = ""
    required: bool = False
    params: Metadata | None = None


class Entry(Strict, frozen=True):
    """What callers must show: this bearer token, or this key in a header."""

    bearer: str = ""
    api_key: str = ""
    header: str = "X-API-Key"

    def __repr__(self) -> str:
        return f"Entry(header={self.header!r}, ***)"


class Persona(Strict, frozen=True):
    """The agent that the mock plays, as its card tells."""

    name: str = "mock"
    description: str = "A mock agent"
    version: str = "1.0.0"
    skills: tuple[Ability, ...] = (Ability(id="mock", description="Answers by its script"),)
    input_modes: tuple[str, ...] = ("text/plain",)
    output_modes: tuple[str, ...] = ("text/plain",)
    streaming: bool = True
    push: bool = False
    extended_card: bool = False
    versions: tuple[Version, ...] = ("1.0", "0.3")
    bindings: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")
    extensions: tuple[Extra | str, ...] = ()
    auth: Entry | None = None
    # Where it says it is; where it was asked, unless told.
    url: str = ""
    # Members of the card that are laid over all the others; null leaves one out.
    card: Metadata = {}


class Expect(Strict, frozen=True):
    """What must have happened in the end: messages that came, replies given, a rule that was hit."""

    when: When = When()
    rule: str = ""
    # What the text of a reply holds.
    replied: str = ""
    count: int | None = None
    at_least: int = 1


class Scenario(Strict, frozen=True):
    """One mock agent."""

    name: str = ""
    agent: Persona = Persona()
    rules: tuple[Rule, ...] = ()
    otherwise: Reply | str | None = None
    # It knows a message that comes twice, and says so on its card.
    deduplicates: bool = False
    dialect: str | Quirks = Quirks()
    # Before every reply.
    delay: float = 0
    faults: tuple[MockFault, ...] = ()
    seed: int = 0
    expect: tuple[Expect, ...] = ()
