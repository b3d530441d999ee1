"""`trunkline chat`: turn by turn on a terminal; in a pipe a turn per line, shown as by other commands."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

from trunkline.cli.command import carry_out
from trunkline.cli.commands.client import Given
from trunkline.cli.outcome import follow, note, show_result, warn
from trunkline.cli.screen import clear, document, plain, remark
from trunkline.cli.session import Session
from trunkline.client.chat import Chat
from trunkline.client.message import Sending
from trunkline.client.result import Result
from trunkline.client.stream import Stream
from trunkline.errors import Misuse, Refused
from trunkline.wire import v1
from trunkline.wire.types import INTERRUPTED

_PROMPT = "you> "
# More than a terminal takes as one line.
_LONGEST = 1 << 16
_HELP = "/new begins a new conversation, /ids shows where this one stands, /quit ends"


def chat(given: Given) -> None:
    """Talk until the end of the input."""
    carry_out(given, _chat, alone=True)


async def _chat(session: Session) -> None:
    lively = sys.stdin.isatty() and sys.stdout.isatty()
    if sys.stdin.isatty() and not lively:
        raise Misuse(
            "standard output is no terminal, and nobody is asked from there: use send, or pipe turns in"
        )
    card = await session.spoken_card()
    choices = session.choices
    talk = session.client.chat(context_id=choices.text("context-id"), skill=choices.text("skill"))
    talk.task_id = choices.text("task-id")
    if lively:
        print(f"{plain(card.name)}: {_HELP}")
    async for said in _turns(lively=lively):
        match said.strip():
            case "":
                continue
            case "/quit":
                break
            case "/new":
                talk = session.client.chat(skill=choices.text("skill"))
                continue
            case "/ids":
                remark("Context", talk.context_id or "none yet")
                remark("Task", talk.task_id or "none open")
                continue
            case _:
                await _say(session, talk, said, lively=lively)
    if lively and talk.context_id:
        print(f"Next: {session.command('chat', '--context-id', talk.context_id)}")


async def _say(session: Session, talk: Chat, said: str, *, lively: bool) -> None:
    sending: Sending = {"metadata": session.choices.members("metadata")}
    session.task_id = talk.task_id
    if not lively:
        stream = talk.stream(said, **sending)
        result = await follow(session, stream)
        if session.choices.as_json:
            _write(result)
            warn(result)
        else:
            show_result(session, result, wrapped=True)
        return
    try:
        await _show_live(session, talk.stream(said, **sending))
    except Refused as error:
        # A turn that is refused does not end the conversation.
        remark("Error", str(error))
    session.task_id = talk.task_id


async def _show_live(session: Session, stream: Stream) -> None:
    shown = ""
    async with stream:
        async for update in stream:
            note(session, update)
            if update.state in INTERRUPTED:
                # A question is shown at the end; this may be the one that is just being answered.
                continue
            if update.text and not shown:
                clear()
            shown += update.text
            print(plain(update.text), end="", flush=True)
        result = stream.result
    if not shown:
        clear()
    if result is None:
        return
    # What came in no chunk: a message, a question, a reason.
    for more in (result.text, result.question):
        if more and more not in shown:
            print(("\n" if shown else "") + plain(more), end="")
            shown += more
    print(flush=True)
    for file in result.files:
        print(f"File: {plain(file.name)} {plain(file.media_type)} {plain(file.url)}")
    if result.ended and not result.ok:
        remark("Warning", f"the task ended: {result.state.value}")


def _write(result: Result) -> None:
    """One line per turn."""
    if result.task is not None:
        document(v1.answer_task(v1.task(result.task)), compact=True)
    elif result.message is not None:
        document(v1.answer_message(result.message), compact=True)


async def _turns(*, lively: bool) -> AsyncIterator[str]:
    """What is typed or piped, a line at a time."""
    while True:
        if lively:
            print(_PROMPT, end="", flush=True)
        line = await _typed() if lively else sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\n")


async def _typed() -> str:
    """One line from the terminal. No thread reads it: that would have to be waited for after Ctrl-C."""
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    ready = loop.create_future()
    loop.add_reader(terminal, ready.set_result, None)
    try:
        await ready
    finally:
        loop.remove_reader(terminal)
    return os.read(terminal, _LONGEST).decode(errors="replace")
