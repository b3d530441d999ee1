"""`trunkline send` and `trunkline stream`."""

from __future__ import annotations

from trunkline.cli.choices import Choices
from trunkline.cli.command import carry_out
from trunkline.cli.commands.client import Given
from trunkline.cli.outcome import follow, show_result, show_stream
from trunkline.cli.parts import message_parts
from trunkline.cli.render import show_sent
from trunkline.cli.session import Session
from trunkline.client.message import Sending
from trunkline.clock import new_id
from trunkline.errors import Misuse
from trunkline.wire.types import RESTING


def send(given: Given) -> None:
    """Send a message and show what comes of it."""
    carry_out(given, _send)


async def _send(session: Session) -> None:
    choices, client = session.choices, session.client
    parts = message_parts(session.words, session.given.parts)
    waits = _waits(choices)
    card = await session.spoken_card()
    session.message_id = new_id()
    sending = _sending(choices, session.message_id)
    if choices.flag("verbose") and not choices.as_json:
        show_sent(session.message_id, parts)
    if choices.streams:
        await show_stream(session, client.stream(parts, **sending))
    elif waits and card.streaming:
        # By a stream the id is known at once, so that whoever is interrupted can come back.
        show_result(session, await follow(session, client.stream(parts, **sending)), wrapped=True)
    else:
        result = await client.send(parts, wait=False, **sending)
        session.task_id = result.task_id
        if waits and result.state not in RESTING:
            result = await client.wait(result.task_id)
        show_result(session, result, wrapped=True)


def _waits(choices: Choices) -> bool:
    asked, refused = choices.of("wait"), choices.of("async")
    if choices.streams and refused.value and refused.source == "flag":
        raise Misuse("--stream follows and --async does not wait: choose one")
    if not (asked.value and refused.value):
        return not refused.value
    if asked.rank == refused.rank:
        raise Misuse(f"wait and async are both set by {asked.source}: choose one")
    return asked.rank < refused.rank


def _sending(choices: Choices, message_id: str) -> Sending:
    return {
        "skill": choices.text("skill"),
        "task_id": choices.text("task-id"),
        "context_id": choices.text("context-id"),
        "message_id": message_id,
        "metadata": choices.members("metadata"),
    }
