"""An agent that puts what it is told into every field of its own that reaches a reader."""

from __future__ import annotations

from typing import Any, cast

from trunkline import Agent, Turn
from trunkline.wire.types import Artifact, Message, Part

agent = Agent("Mirror", description="Gives back what it is told, everywhere", version="1.0.0")


@agent.skill(id="mirror", input_modes=["text/plain", "application/json"], default=True)
async def mirror(turn: Turn) -> Message | Artifact | str:
    """Show the text of the request in every field of the answer."""
    text = turn.text
    told = cast("dict[str, Any]", turn.data[0]) if turn.data else {}
    if told.get("as") == "message":
        return turn.message(text, {text: text})
    await turn.status(text, {text: [text]})
    await turn.write(text)
    await turn.artifact(
        text=text, name=text, description=text, metadata={text: {text: text}}, media_type=text
    )
    await turn.artifact(data={text: text}, name=text, artifact_id=f"id {text}")
    await turn.artifact(file=text.encode(), filename=text, media_type=text)
    await turn.artifact(file=text, filename=text)
    turn.effect(text, text, text, "set")
    if told.get("as") == "failure":
        turn.fail(text)
    if told.get("as") == "rejection":
        turn.reject(text)
    if told.get("as") == "artifact":
        return Artifact("last", text, text, (Part(text=text, metadata={text: text}),), {text: text}, (text,))
    return text
