"""Which rule a message fits, and what has been expected of a mock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from msgspec import UNSET, Struct

from trunkline.errors import Misuse
from trunkline.mock.scenario import Expect, Reply, Rule, Scenario, When
from trunkline.wire.types import Message, Metadata

# Where callers put the skill that they mean.
_HINTS = ("skillId", "skillHint", "skill")


class HeardMessage(Struct, frozen=True):
    """A message as the rules see it; `turn` says the how-many-th of its conversation it is."""

    message: Message
    skill: str
    turn: int

    @property
    def text(self) -> str:
        """The texts of the message, one after the other."""
        return "".join(part.text or "" for part in self.message.parts)


def skill_of(message: Message, metadata: Metadata | None) -> str:
    """The skill that a message names; empty if none."""
    for holder in (message.metadata or {}, metadata or {}):
        for name in _HINTS:
            if isinstance(hint := holder.get(name), str) and hint:
                return hint
    return ""


def fits(when: When, heard: HeardMessage) -> bool:
    """Whether this is a message that is meant."""
    text = heard.text
    return (
        (not when.skill or when.skill == heard.skill)
        and (when.text is None or when.text == text)
        and (not when.contains or when.contains.casefold() in text.casefold())
        and (not when.regex or re.search(when.regex, text) is not None)
        and (when.data is UNSET or _has_data(when.data, heard.message))
        and (when.turn is None or when.turn == heard.turn)
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
    """A text alone is a task that makes it."""
    return Reply(text=reply) if isinstance(reply, str) else reply


def rule_name(rule: Rule, place: int) -> str:
    """What logs and expectations call a rule."""
    return rule.name or f"rule {place + 1}"


def check_rules(scenario: Scenario) -> None:
    """What no schema says.

    Raises:
        Misuse: a pattern cannot be read, or an expectation names no rule.
    """
    for place, rule in enumerate(scenario.rules):
        try:
            re.compile(rule.when.regex)
        except re.error as error:
            name = rule_name(rule, place)
            raise Misuse(f"{name}: regex {rule.when.regex!r} cannot be read: {error}") from None
    names = {rule_name(rule, place) for place, rule in enumerate(scenario.rules)}
    for expected in scenario.expect:
        if expected.rule and expected.rule not in names:
            raise Misuse(f"expect: there is no rule {expected.rule!r}; rules are {', '.join(sorted(names))}")


class RuleHit(Struct, frozen=True):
    """A message that came, the rule it hit (empty: none) and the text of its reply as far as it was told."""

    heard: HeardMessage
    rule: str
    replied: str


def missed(expected: Expect, taken: Sequence[RuleHit]) -> str:
    """What is wrong, in words; empty if it is as expected."""
    found = [
        each
        for each in taken
        if fits(expected.when, each.heard)
        and (not expected.rule or each.rule == expected.rule)
        and expected.replied in each.replied
    ]
    wanted = f"at least {expected.at_least}" if expected.count is None else str(expected.count)
    ok = len(found) >= expected.at_least if expected.count is None else len(found) == expected.count
    return "" if ok else f"expected {wanted} of {_described(expected)}, and {len(found)} came"


def _described(expected: Expect) -> str:
    words = [f"rule {expected.rule!r}"] if expected.rule else []
    words += [
        f"{name} {value!r}"
        for name in ("skill", "text", "contains", "regex", "data", "turn")
        if (value := getattr(expected.when, name)) not in ("", None, UNSET)
    ]
    words += [f"replied {expected.replied!r}"] if expected.replied else []
    return "messages" + (f" with {', '.join(words)}" if words else "")
