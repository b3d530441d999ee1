"""`trunkline chat`: turn by turn on a terminal; in a pipe a turn per line, shown as by other commands."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

from trunkline.cli.console import clear_progress, escape_controls, print_json, print_notice
from trunkline.cli.next_command import print_next
from trunkline.cli.options import CALLING
from trunkline.cli.parsing import Commands
from trunkline.cli.results import encode_result, follow, note_task, show_result, warn
from trunkline.cli.session import Session
from trunkline.client.chat import Chat
from trunkline.client.message import Sending
from trunkline.client.stream import Stream
from trunkline.errors import Misuse, Refused
from trunkline.wire.types import INTERRUPTED

commands = Commands()
_PROMPT = "you> "
# More than a terminal takes as one line.
_LONGEST = 1 << 16
_HELP = "/new begins a new conversation, /ids shows where this one stands, /quit ends"


@commands.calling(
    "chat",
    "context-id", "task-id", "skill", "correlation-id", "parent-id", "metadata", *CALLING, "poll-interval",
)  # fmt: skip
async def chat(session: Session) -> None:
    """Chat with an agent; /new starts a new conversation, /quit ends."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if sys.stdin.isatty() and not interactive:
        raise Misuse(
            "standard output is no terminal, and nobody is asked from there: use send, or pipe turns in"
        )
    card = await session.compatible_card()
    config = session.config
    talk = session.client.chat(context_id=config.text("context-id"), skill=config.text("skill"))
    talk.task_id = config.text("task-id")
    if interactive:
        print(f"{escape_controls(card.name)}: {_HELP}")
    async for said in _turns(interactive=interactive):
        match said.strip():
            case "":
                continue
            case "/help":
                print_notice("Commands", _HELP)
                continue
            case "/quit":
                break
            case "/new":
                talk = session.client.chat(skill=config.text("skill"))
                continue
            case "/ids":
                print_notice("Context", talk.context_id or "none yet")
                print_notice("Task", talk.task_id or "none open")
                continue
            case _:
                await _say(session, talk, said, interactive=interactive)
    if interactive and talk.context_id:
        print_next(session.command("chat", context_id=talk.context_id))


async def _say(session: Session, talk: Chat, said: str, *, interactive: bool) -> None:
    sending: Sending = {
        "metadata": session.config.members("metadata"),
        "correlation_id": session.config.text("correlation-id"),
        "parent_id": session.config.text("parent-id"),
    }
    session.task_id = talk.task_id
    if not interactive:
        stream = talk.stream(said, **sending)
        result = await follow(session, stream)
        if session.config.as_json:
            print_json(encode_result(result, wrapped=True), compact=True)
            warn(result)
        else:
            show_result(session, result, wrapped=True)
        return
    try:
        await _show_live(session, talk.stream(said, **sending))
    except Refused as error:
        # A turn that is refused does not end the conversation.
        print_notice("Error", str(error))
    session.task_id = talk.task_id


async def _show_live(session: Session, stream: Stream) -> None:
    shown = ""
    async with stream:
        async for update in stream:
            note_task(session, update)
            if update.state in INTERRUPTED:
                # A question is shown at the end; this may be the one that is just being answered.
                continue
            if update.text and not shown:
                clear_progress()
            shown += update.text
            print(escape_controls(update.text), end="", flush=True)
        result = stream.result
    if not shown:
        clear_progress()
    if result is None:
        return
    # What came in no chunk: a message, a question, a reason.
    wanted = f"({' / '.join(result.question.choices)})" if result.question.choices else ""
    for more in (result.text, result.question.text, wanted):
        if more and more not in shown:
            print(("\n" if shown else "") + escape_controls(more), end="")
            shown += more
    print(flush=True)
    for file in result.files:
        print("File:", *map(escape_controls, (file.name, file.media_type, file.url)))
    if result.ended and not result.ok:
        print_notice("Warning", f"the task ended: {result.state.value}")


async def _turns(*, interactive: bool) -> AsyncIterator[str]:
    """The lines that are typed or piped, one at a time."""
    while True:
        if interactive:
            print(_PROMPT, end="", flush=True)
        line = await _read_line() if interactive else sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\n")


async def _read_line() -> str:
    """One line from the terminal. No thread reads it: that would have to be waited for after Ctrl-C."""
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    ready = loop.create_future()
    loop.add_reader(terminal, ready.set_result, None)
    try:
        await ready
    finally:
        loop.remove_reader(terminal)
    return os.read(terminal, _LONGEST).decode(errors="replace")
