"""Runs one command from its options to its exit code, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable

import typer

from trunkline.cli.choices import Choices, choose
from trunkline.cli.commands.client import Given
from trunkline.cli.failure import CommandFailure, failure_of, tell, wants_json
from trunkline.cli.hints import hint_for
from trunkline.cli.screen import clear, line, plain, remark
from trunkline.cli.session import Session
from trunkline.errors import TrunklineError

INTERRUPTED = 130
# What a command does; it may give an exit code of its own.
Work = Callable[[Session], Awaitable[int | None]]
# What the client logs, for people; with the same values.
_WORDS = {
    "client.card_url_pinned": "the card says %s; %s is called, by the address that was given",
    "client.interface_changed": "%s did not understand; %s is called instead",
    "client.credentials_withheld": "the card leads to %s, which is not shown the credentials",
    "client.card_stale": "the card at %s could not be fetched again, the old one is used: %s",
    "client.stream.unchecked": "how task %s ended could not be read again: %s",
}


def carry_out(given: Given, work: Work, *, alone: bool = False, kept: bool = True) -> None:
    """Run a command to its end, and leave with its exit code.

    `alone` takes no word but the agent; `kept` goes with the token of an earlier login.

    Raises:
        typer.Exit: always, if anything went wrong.
    """
    session: Session | None = None
    try:
        choices = choose(given.flags)
        _set_up(choices)
        session = Session(given, choices, alone=alone, kept=kept)
        code = asyncio.run(_run(session, work))
        clear()
    except KeyboardInterrupt:
        _say_interrupted(session)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - told with its code; with --debug whole
        raise _failed(error, session, given) from None
    if code:
        raise typer.Exit(code)


async def _run(session: Session, work: Work) -> int:
    try:
        await session.open()
        return await work(session) or 0
    finally:
        if session.choices.flag("debug"):
            for each in session.explanation:
                print(f"# {plain(each)}", file=sys.stderr)
        await session.close()


def _failed(error: Exception, session: Session | None, given: Given) -> typer.Exit:
    if session is None:
        failure = failure_of(error, finding=False, credentials=False)
        as_json = given.flags["output"] == "json" if "output" in given.flags else wants_json(())
    else:
        failure = failure_of(error, finding=session.finding, credentials=session.credentials)
        as_json = session.choices.as_json
        if session.choices.flag("debug") and not isinstance(error, TrunklineError):
            logging.getLogger("trunkline.cli").error("the tool failed", exc_info=error)
    hint = failure.hint or hint_for(failure, error, session)
    failure = CommandFailure(failure.code, failure.message, hint, failure.a2a_code)
    tell(failure, as_json=as_json, compact=bool(given.flags.get("stream")))
    return typer.Exit(failure.exit)


def _say_interrupted(session: Session | None) -> None:
    clear()
    if session is not None and session.task_id:
        remark("Interrupted", f"task {session.task_id} goes on at the agent")
        print(f"Next: {session.command('task get', session.task_id, '--wait')}", file=sys.stderr)
    elif session is not None and session.message_id:
        remark("Interrupted", f"message {session.message_id} was sent; the agent may be working on it")
        print(f"Next: {session.command('task list')}", file=sys.stderr)
    else:
        remark("Interrupted", "nothing is under way")


class _Words(logging.Formatter):
    """Log lines of the client as a warning is told to people."""

    def format(self, record: logging.LogRecord) -> str:
        """In words, where there are some."""
        words = _WORDS.get(str(record.msg).partition(" ")[0])
        told = record.getMessage() if words is None else words % record.args
        return f"Warning: {line(told)}"


class _Once(logging.Filter):
    """Lets every line pass once: an agent with two interfaces has the same said of each."""

    def __init__(self) -> None:
        super().__init__()
        self._said = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is new."""
        text = record.getMessage()
        fresh = text not in self._said
        self._said.add(text)
        return fresh


def _set_up(choices: Choices) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if choices.flag("debug") else logging.WARNING,
        format="# %(levelname)s %(name)s %(message)s",
        force=True,
    )
    handler = logging.getLogger().handlers[0]
    handler.addFilter(_Once())
    if not choices.flag("debug"):
        handler.setFormatter(_Words())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    for path in choices.exposed:
        remark("Warning", f"{path} holds a secret, and others on this machine can read it: chmod 600 it")
    for name in choices.strangers:
        remark("Warning", f"{name} sets nothing: trunkline config show lists the names")
