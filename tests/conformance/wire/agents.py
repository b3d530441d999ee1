"""Agents that the checks need beside the demo: served by name in a process of their own."""

from __future__ import annotations

from trunkline import Agent, Turn
from trunkline.wire.types import Message

mute = Agent("Mute", description="Does not stream", version="1.0.0", streaming=False)
clerk = Agent("Clerk", description="Has a skill that is not public", version="1.0.0")
counted = Agent("Counted", description="Says how often it ran", version="1.0.0")
locked = Agent("Locked", description="Opens with the right word only", version="1.0.0")
listener = Agent("Listener", description="Says what it heard before", version="1.0.0")
_runs: dict[str, int] = {}


@mute.skill
def echo(text: str) -> str:
    """Give back what was sent."""
    return text


@clerk.skill
def greet(text: str) -> str:
    """Say hello."""
    return f"hello {text}"


@clerk.skill(public=False)
def pay(text: str) -> str:
    """Move money."""
    return text


@counted.skill
async def count(turn: Turn) -> str:
    """How often this text was run, with this run."""
    _runs[turn.text] = _runs.get(turn.text, 0) + 1
    if turn.text.startswith("ask"):
        await turn.ask("And then?")
    return f"run {_runs[turn.text]}"


@locked.skill
async def open_up(turn: Turn) -> str:
    """Wait for the word, however often another one comes."""
    said = await turn.need_auth("The word, please.")
    while _text(said) != "sesame":
        said = await turn.need_auth("That was not the word.")
    return "open"


@listener.skill
async def recall(turn: Turn) -> str:
    """What was said in this context so far."""
    return " | ".join(_text(message) for message in turn.history)


def _text(message: Message) -> str:
    return "".join(part.text or "" for part in message.parts)
