"""`trunkline send`: the parts of a message and the sending; and `stream`, which follows live."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trunkline.cli.configuration import ClientConfiguration
from trunkline.cli.json_input import read_file, read_json
from trunkline.cli.next_command import command_line
from trunkline.cli.options import SENDING
from trunkline.cli.parsing import Commands
from trunkline.cli.results import follow, show_result, show_sent, show_stream
from trunkline.cli.session import Session
from trunkline.client.message import Sending
from trunkline.clock import new_id
from trunkline.errors import Misuse
from trunkline.wire.types import RESTING, Part

commands = Commands()
_MESSAGE = "URL of the agent, unless -a is given, and the text."
_ADDRESSES = ("http://", "https://")
_UNKNOWN = "application/octet-stream"


@commands.calling("stream", *SENDING, "fail", arguments="[URL] [TEXT]", about=_MESSAGE, stream=True)
@commands.calling(
    "send", *SENDING, "wait", "async", "stream", "fail", arguments="[URL] [TEXT]", about=_MESSAGE
)
async def send(session: Session) -> int:
    """Send a message to start or continue a task, and wait for the outcome."""
    config = session.config
    parts = message_parts(session.arguments, session.invocation.parts)
    waits = _waits(config)
    card = await session.compatible_card()
    client = session.client
    session.message_id = new_id()
    sending: Sending = {
        "skill": config.text("skill"),
        "task_id": config.text("task-id"),
        "context_id": config.text("context-id"),
        "message_id": session.message_id,
        "metadata": config.members("metadata"),
        "correlation_id": config.text("correlation-id"),
        "parent_id": config.text("parent-id"),
    }
    if config.flag("verbose") and not config.as_json:
        show_sent(session.message_id, parts)
    if config.flag("stream"):
        # A task that goes on keeps the skill that it began with.
        skill = "" if config.text("task-id") else config.text("skill")
        result = await show_stream(session, client.stream(parts, **sending), skill=skill)
    elif waits and card.streaming:
        # By a stream the id is known at once, so that whoever is interrupted can come back.
        result = await follow(session, client.stream(parts, **sending))
        show_result(session, result, wrapped=True)
    else:
        result = await client.send(parts, wait=False, **sending)
        session.task_id = result.task_id
        if waits and result.state not in RESTING:
            result = await client.wait(result.task_id)
        show_result(session, result, wrapped=True)
    return int(config.flag("fail") and result.ended and not result.ok)


def _waits(config: ClientConfiguration) -> bool:
    asked, refused = config.values["wait"], config.values["async"]
    if config.flag("stream") and refused.value and refused.source == "flag":
        raise Misuse("--stream follows and --async does not wait: choose one")
    if not (asked.value and refused.value):
        return not refused.value
    if asked.rank == refused.rank:
        raise Misuse(f"wait and async are both set by {asked.source}: choose one")
    return asked.rank < refused.rank


def message_parts(words: Sequence[str], flags: Sequence[tuple[str, str]]) -> list[Part]:
    """The parts of the message: the text argument first, then each flag's part in the order given.

    Raises:
        Misuse: there is nothing to send, too many words, a media type without a part, or a file that fails.
    """
    if len(words) > 1:
        raise Misuse(
            f"{len(words)} words where one text is expected: quote the text, and name the agent by its URL "
            "or -a",
            hint=command_line("send", " ".join(words), target={"-a": "URL"}),
        )
    read = {"file": _file_part, "data": _data_part}
    parts = [Part(text=word) for word in words]
    flagged = 0
    for kind, value in flags:
        if kind == "media_type":
            if not flagged:
                raise Misuse(f"--media-type {value} follows no --text, --file or --data; put it behind one")
            parts[-1] = msgspec.structs.replace(parts[-1], media_type=value)
        else:
            parts.append(Part(text=value) if kind == "text" else read[kind](value))
            flagged += 1
    if not parts:
        raise Misuse("there is nothing to send: give a text, --text, --file or --data", hint="--text TEXT")
    return parts


def _file_part(value: str) -> Part:
    if value.startswith(_ADDRESSES):
        name = value.partition("?")[0].rpartition("/")[2]
        return Part(url=value, filename=name, media_type=mimetypes.guess_type(name)[0] or "")
    path = Path(value)
    raw = base64.b64encode(read_file(path, "--file")).decode()
    kind = mimetypes.guess_type(path.name)[0] or _UNKNOWN
    return Part(raw=raw, filename=path.name, media_type=kind)


def _data_part(value: str) -> Part:
    return Part(data=read_json(value, "--data"), media_type="application/json")
