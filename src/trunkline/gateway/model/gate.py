"""An advisor as a gate: what it is asked before an answer goes out, and what its reply means. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

GATE = (
    "You decide whether the answer of another agent goes out. Begin your reply with one word: CONTINUE if it "
    "may, REDIRECT if it must be written again, HALT if there must be no answer. After it say why, briefly."
)
_WHY = 500


class GateVerdict(Struct, frozen=True):
    """The decision of an advisor on an answer, and its reason."""

    kind: Literal["continue", "redirect", "halt"]
    why: str = ""


def gate_question(asked: str, answer: str) -> str:
    """What an advisor is told of an answer: what was asked for, and what would go out."""
    return f"What was asked for:\n{asked}\n\nThe answer:\n{answer}"


def verdict_of(reply: str, *, malformed_halts: bool) -> GateVerdict:
    """What a reply of an advisor means; `malformed_halts` is for one that begins with none of the words."""
    word, _, why = reply.strip().replace("\n", " ").partition(" ")
    reason = why.strip()[:_WHY]
    match word.strip(".:,*!").lower():
        case "continue":
            return GateVerdict("continue", reason)
        case "redirect":
            return GateVerdict("redirect", reason)
        case "halt":
            return GateVerdict("halt", reason)
        case _ if malformed_halts:
            return GateVerdict("halt", "the advisor gave no verdict")
        case _:
            return GateVerdict("continue")
