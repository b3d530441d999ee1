"""An advisor as a gate: what it is asked before an answer goes out, and what its reply means. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import msgspec
from msgspec import Struct

GATE = (
    "You decide whether the answer of another agent goes out. Begin your reply with one word: CONTINUE if it "
    "may, REDIRECT if it must be written again, HALT if there must be no answer. After it say why, briefly."
)
_WHY = 500
# The first word, whatever marks or brackets it stands in.
_VERDICT = re.compile(r"[\W_]*([a-z]+)[\W_]*(.*)", re.IGNORECASE | re.DOTALL)


class GateVerdict(Struct, frozen=True):
    """The decision of an advisor on an answer, and its reason."""

    kind: Literal["continue", "redirect", "halt"]
    why: str = ""


class ShownArtifact(TypedDict, total=False):
    """What a caller is given beside an answer, as `Turn.artifact` takes it."""

    name: str
    data: Any
    file: bytes
    filename: str
    media_type: str


def told_in_gate(artifact: ShownArtifact) -> str:
    """An artifact as an advisor reads it."""
    if "file" not in artifact:
        return msgspec.json.encode(artifact.get("data")).decode()
    try:
        return f"File {artifact.get('name', '')}:\n{artifact['file'].decode()}"
    except UnicodeDecodeError:
        return f"File {artifact.get('name', '')}: {len(artifact['file'])} bytes that are no text"


def gate_question(asked: str, answer: str, beside: Sequence[str] = ()) -> str:
    """What an advisor is told of an answer: what was asked for, what would go out, and what beside it."""
    more = "\n".join(["", "", "Beside it:", *beside]) if beside else ""
    return f"What was asked for:\n{asked}\n\nThe answer:\n{answer}{more}"


def verdict_of(reply: str, *, malformed_halts: bool) -> GateVerdict:
    """What a reply of an advisor means; `malformed_halts` is for one that begins with none of the words."""
    found = _VERDICT.match(reply)
    word, why = found.groups() if found is not None else ("", "")
    reason = " ".join(why.split())[:_WHY]
    match word.lower():
        case "continue":
            return GateVerdict("continue", reason)
        case "redirect":
            return GateVerdict("redirect", reason or "the advisor wants another answer.")
        case "halt":
            return GateVerdict("halt", reason)
        case _ if malformed_halts:
            return GateVerdict("halt", "the advisor gave no verdict")
        case _:
            return GateVerdict("continue")
