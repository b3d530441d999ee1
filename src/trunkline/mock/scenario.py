"""The scenario of a mock: who it says it is, which message gets which reply, and what goes wrong.

Frozen structs, to be written in Python or as YAML (`mock.script` reads it). Unknown members are refused.
Below them: which rule a message fits.
"""

from __future__ import annotations

import re
from typing import Any, Literal, cast

from msgspec import UNSET, Struct, UnsetType

from trunkline.client.result import text_of
from trunkline.errors import Misuse
from trunkline.mock.faults import Faults
from trunkline.mock.quirks import Quirks
from trunkline.wire.types import Message, Metadata

State = Literal[
    "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required"
]
Binding = Literal["JSONRPC", "HTTP+JSON"]
Version = Literal["1.0", "0.3"]
# Where callers put the skill that they mean.
_HINTS = ("skillId", "skillHint", "skill")


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all structs that authors write: a misspelled member is an error, not a surprise."""


class ScriptedFile(Strict, frozen=True):
    """A file of a reply: its content as text or base64, or where it is."""

    name: str = ""
    media_type: str = ""
    text: str | None = None
    base64: str | None = None
    url: str | None = None


class ScriptedPart(Strict, frozen=True):
    """One part of a reply: a text, a value or a file."""

    text: str | None = None
    data: Any | UnsetType = UNSET
    file: ScriptedFile | None = None
    media_type: str = ""
    metadata: Metadata | None = None


Content = str | tuple[ScriptedPart, ...]


class ScriptedArtifact(Strict, frozen=True):
    """An artifact of a reply; its content is one text, value or file, or several `parts`."""

    id: str = ""
    name: str = ""
    description: str = ""
    text: str | None = None
    data: Any | UnsetType = UNSET
    file: ScriptedFile | None = None
    parts: tuple[ScriptedPart, ...] = ()
    metadata: Metadata | None = None


class ScriptedStep(Strict, frozen=True):
    """One event of a reply written step by step: a state with its message, or an artifact, after a delay."""

    delay: float = 0
    state: State | None = None
    say: Content | None = None
    artifact: ScriptedArtifact | None = None
    append: bool = False
    last: bool = True
    metadata: Metadata | None = None


class Failure(Strict, frozen=True):
    """An error of the protocol instead of a task."""

    code: int
    message: str = "the mock was told to refuse this"
    data: Any | UnsetType = UNSET


class Reply(Strict, frozen=True):
    """The answer to a message. One with nothing set is a task that completes without a word."""

    # The results: one artifact each.
    text: str | None = None
    data: Any | UnsetType = UNSET
    file: ScriptedFile | None = None
    echo: bool = False
    artifacts: tuple[ScriptedArtifact, ...] = ()
    # One artifact in chunks.
    stream: tuple[str | ScriptedPart, ...] = ()
    # Statuses before the last one, and the message of the last one.
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
    steps: tuple[ScriptedStep, ...] = ()
    # Seconds before the first event, and between two.
    delay: float = 0
    pause: float = 0
    # The answer to a send is the task as submitted, even to who would wait.
    receipt: bool = False
    metadata: Metadata | None = None
    # The reply to the next message to this task; without it the rules choose.
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
    faults: Faults = ()


class ScriptedSkill(Strict, frozen=True):
    """A skill on the card."""

    id: str
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class ScriptedExtension(Strict, frozen=True):
    """A protocol extension on the card."""

    uri: str
    description: str = ""
    required: bool = False
    params: Metadata | None = None


class ScriptedAuth(Strict, frozen=True):
    """Credentials that callers must show: this bearer token, or this key in a header."""

    bearer: str = ""
    api_key: str = ""
    header: str = "X-API-Key"

    def __repr__(self) -> str:
        return f"ScriptedAuth(header={self.header!r}, ***)"


class Persona(Strict, frozen=True):
    """The agent that the mock plays, as its card describes it."""

    name: str = "mock"
    description: str = "A mock agent"
    version: str = "1.0.0"
    skills: tuple[ScriptedSkill, ...] = (ScriptedSkill(id="mock", description="Answers by its script"),)
    input_modes: tuple[str, ...] = ("text/plain",)
    output_modes: tuple[str, ...] = ("text/plain",)
    streaming: bool = True
    push: bool = False
    extended_card: bool = False
    versions: tuple[Version, ...] = ("1.0", "0.3")
    bindings: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")
    extensions: tuple[ScriptedExtension | str, ...] = ()
    auth: ScriptedAuth | None = None
    # The address on its card; unless set, the one at which the card was requested.
    url: str = ""
    # Members of the card that are laid over all the others; null leaves one out.
    card: Metadata = {}


class Expect(Strict, frozen=True):
    """An expectation of the end: messages that came, replies given, a rule that was hit."""

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
    faults: Faults = ()
    seed: int = 0
    expect: tuple[Expect, ...] = ()


class IncomingMessage(Struct, frozen=True):
    """A message as the rules see it; `turn` says the how-many-th of its conversation it is."""

    message: Message
    skill: str
    turn: int


def skill_of(message: Message, metadata: Metadata | None) -> str:
    """The skill that a message names; empty if none."""
    for holder in (message.metadata or {}, metadata or {}):
        for name in _HINTS:
            if isinstance(hint := holder.get(name), str) and hint:
                return hint
    return ""


def fits(when: When, incoming: IncomingMessage) -> bool:
    """Whether a message is one that `when` selects."""
    text = text_of(incoming.message)
    return (
        (not when.skill or when.skill == incoming.skill)
        and (when.text is None or when.text == text)
        and (not when.contains or when.contains.casefold() in text.casefold())
        and (not when.regex or re.search(when.regex, text) is not None)
        and (when.data is UNSET or _has_data(when.data, incoming.message))
        and (when.turn is None or when.turn == incoming.turn)
    )


def _has_data(wanted: Any, message: Message) -> bool:
    return any(part.data is not UNSET and _within(wanted, part.data) for part in message.parts)


def _within(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        members = cast("dict[str, Any]", found)
        return all(
            name in members and _within(value, members[name])
            for name, value in cast("dict[str, Any]", wanted).items()
        )
    return wanted == found


def as_reply(reply: Reply | str) -> Reply:
    """The reply that a text alone stands for: a task that makes this text."""
    return Reply(text=reply) if isinstance(reply, str) else reply


def rule_name(rule: Rule, index: int) -> str:
    """The name of a rule in logs and expectations."""
    return rule.name or f"rule {index + 1}"


def check_rules(scenario: Scenario) -> None:
    """Check what no schema says.

    Raises:
        Misuse: a pattern cannot be read, or an expectation names no rule.
    """
    for index, rule in enumerate(scenario.rules):
        try:
            re.compile(rule.when.regex)
        except re.error as error:
            name = rule_name(rule, index)
            raise Misuse(f"{name}: regex {rule.when.regex!r} cannot be read: {error}") from None
    names = {rule_name(rule, index) for index, rule in enumerate(scenario.rules)}
    for expected in scenario.expect:
        if expected.rule and expected.rule not in names:
            raise Misuse(f"expect: there is no rule {expected.rule!r}; rules are {', '.join(sorted(names))}")


def described(expected: Expect) -> str:
    """The messages that are expected, in words."""
    words = [f"rule {expected.rule!r}"] if expected.rule else []
    words += [
        f"{name} {value!r}"
        for name in ("skill", "text", "contains", "regex", "data", "turn")
        if (value := getattr(expected.when, name)) not in ("", None, UNSET)
    ]
    words += [f"replied {expected.replied!r}"] if expected.replied else []
    return "messages" + (f" with {', '.join(words)}" if words else "")
