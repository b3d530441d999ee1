"""Runs one command from its options to its exit code, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import Callable, Coroutine
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import typer
from msgspec.structs import replace

from trunkline.cli.configuration import ClientConfiguration, load_configuration
from trunkline.cli.console import clear_progress, escape_controls, one_line, print_notice
from trunkline.cli.failure import (
    KEY_HINT,
    CommandFailure,
    complete_hint,
    failure_of,
    hint_for,
    hint_for_address,
    hint_for_unreachable,
    is_json_asked,
    print_failure,
    retry_hint,
)
from trunkline.cli.next_command import print_next
from trunkline.cli.options import OPTIONS, PREFIX
from trunkline.cli.parsing import Invocation
from trunkline.cli.session import ADDRESSES, Session
from trunkline.errors import Misuse, TrunklineError, VersionNotSupported

INTERRUPTED = 130
# A folder with this file is the workspace of a hub.
HUB_FILE = "hub.yaml"
# What a command does; it may give an exit code of its own.
Work = Callable[[Session], Coroutine[Any, Any, int | None]]
RETRY = "client.retry"
# A shorter wait before a retry is not reported.
_LONG_WAIT_S = 1.0
# What the client logs, in words for people, with the same values.
_WARNINGS = {
    "client.card_url_pinned": "the card says %s; %s is called, by the address that was given",
    "client.interface_changed": "%s did not understand; %s is called instead",
    "client.credentials_withheld": "the card leads to %s, which is not shown the credentials",
    "client.card_stale": "the card at %s could not be fetched again, the old one is used: %s",
    RETRY: "%s: attempt %d failed; waiting %.0f s before the next: %s",
    "client.stream.unchecked": "how task %s ended could not be read again: %s",
}


def run_command(
    invocation: Invocation,
    work: Work,
    *,
    agent_only: bool = False,
    use_login: bool = True,
    on_hub: str = "",
) -> None:
    """Run a command to its end, and leave with its exit code.

    With `agent_only` the agent is the only argument; `use_login` sends the token of an earlier login;
    `on_hub` names the command that runs instead where the options or the folder name a hub.

    Raises:
        typer.Exit: always, if anything went wrong.
    """
    session: Session | None = None
    place: str | None = None
    has_credentials = False
    try:
        config = load_configuration(invocation.flags)
        has_credentials = any(config.secret(name) is not None for name in ("bearer", "api-key"))
        _set_up_logging(config)
        if on_hub and (place := find_hub(invocation, config)) is not None:
            _hub_module().run_on_hub(on_hub, place, invocation, config)
            return
        session = Session(invocation, config, agent_only=agent_only, use_login=use_login)
        code = asyncio.run(_run(session, work))
        clear_progress()
    except KeyboardInterrupt:
        _say_interrupted(session)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - told with its code; with --debug whole
        failure = (
            failure_of(error)
            if place is None
            else _hub_failure(error, place, has_credentials=has_credentials)
        )
        raise _exit_for(error, session, invocation, failure) from None
    if code:
        raise typer.Exit(code)


def run_logged(
    invocation: Invocation,
    work: Callable[[ClientConfiguration], Coroutine[Any, Any, int | None]],
    log_format: str,
) -> None:
    """Run a command that works with many agents, or with none, and leave with its exit code.

    Raises:
        typer.Exit: always, if anything went wrong.
    """
    try:
        config = load_configuration(invocation.flags)
        level = logging.DEBUG if config.flag("debug") else logging.WARNING
        logging.basicConfig(stream=sys.stderr, level=level, format=log_format, force=True)
        code = asyncio.run(work(config))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except TrunklineError as error:
        # The version is compared with a card that was found.
        failure = failure_of(error, finding_card=not isinstance(error, VersionNotSupported))
        if failure.code == "A2ACLI_ERR_USAGE":
            failure = complete_hint(failure, sys.argv[1:])
        elif len(invocation.arguments) == 1:
            failure = replace(failure, hint=hint_for_address(failure, error, invocation.arguments[0]))
        print_failure(failure, as_json=is_json_asked(invocation.flags))
        raise typer.Exit(failure.exit) from None
    if code:
        raise typer.Exit(code)


def find_hub(invocation: Invocation, config: ClientConfiguration) -> str | None:
    """Return the folder, store or URL of the hub that a command means, or None where it means an agent.

    The order: --hub, -a or a URL, `A2ACLI_AGENT_CARD`, the hub of the current folder, which is "".

    Raises:
        Misuse: both an agent and a hub are named, or an option of hubs is given for an agent.
    """
    flags, arguments = invocation.flags, invocation.arguments
    typed = str(flags.get("agent_card", "")) or (arguments[0] if arguments else "")
    agent = typed if "agent_card" in flags or typed.startswith(ADDRESSES) else ""
    if "hub" in flags:
        if agent:
            text = f"--hub {flags['hub']} and the agent {agent} are both named: give one of them"
            raise Misuse(text, hint=f"trunkline task list --hub {shlex.quote(str(flags['hub']))}")
        return str(flags["hub"])
    named = agent or config.text("agent-card")
    if named:
        is_hub = Path(HUB_FILE).is_file() and _hub_module().is_own_hub(named)
        if not agent:
            source = config.values["agent-card"].source
            print_notice("Hub" if is_hub else "Agent", f"{named} (A2ACLI_AGENT_CARD, {source})")
        if not is_hub:
            invocation.refuse(("tenant", "agent"), f"{named} is an agent; these options are for a hub")
        return named if is_hub else None
    server = _hub_module().server_here()
    if server is None and len(arguments) > 1:
        # The first one was meant as the agent.
        return None
    if server is None:
        text = "no hub and no agent is named: name a hub with --hub DIR or an agent with -a REF"
        raise Misuse(f"{text}, or set A2ACLI_AGENT_CARD", hint="--hub DIR")
    print_notice("Hub", f"{server} (this folder)")
    return ""


def _hub_module() -> ModuleType:
    # Loaded only where a hub may be meant: it needs much that calls of an agent do not.
    from trunkline.cli import hub_tasks

    return hub_tasks


async def _run(session: Session, work: Work) -> int:
    try:
        await session.open()
        return await work(session) or 0
    finally:
        if session.config.flag("debug"):
            for each in session.explanation:
                print(f"# {escape_controls(each)}", file=sys.stderr)
        await session.close()


def _hub_failure(error: Exception, hub: str, *, has_credentials: bool) -> CommandFailure:
    """Return the failure of a command on the hub at a place."""
    failure = failure_of(error, has_credentials=has_credentials)
    if failure.code == "A2ACLI_ERR_UNREACHABLE" and hub.startswith(ADDRESSES):
        return replace(failure, hint=hint_for_unreachable(hub, error, "hub DIR"))
    is_denied = failure.code in ("A2ACLI_ERR_CREDENTIALS_MISSING", "A2ACLI_ERR_AUTH_FAILED")
    return replace(failure, hint=KEY_HINT if is_denied else failure.hint or retry_hint(error))


def _exit_for(
    error: Exception, session: Session | None, invocation: Invocation, failure: CommandFailure
) -> typer.Exit:
    if session is None:
        as_json = is_json_asked(invocation.flags)
    else:
        failure = failure_of(
            error, finding_card=session.finding_card, has_credentials=session.has_credentials
        )
        as_json = session.config.as_json
        if session.config.flag("debug") and not isinstance(error, TrunklineError):
            logging.getLogger("trunkline.cli").error("the tool failed", exc_info=error)
    failure = replace(failure, hint=failure.hint or hint_for(failure, error, session))
    failure = complete_hint(failure, sys.argv[1:])
    print_failure(failure, as_json=as_json, compact=bool(invocation.flags.get("stream")))
    return typer.Exit(failure.exit)


def _say_interrupted(session: Session | None) -> None:
    clear_progress()
    if session is not None and session.task_id:
        print_notice("Interrupted", f"task {session.task_id} continues at the agent")
        print_next(session.wait_command(session.task_id), on_stderr=True)
    elif session is not None and session.message_id:
        print_notice("Interrupted", f"message {session.message_id} was sent; the agent may be working on it")
        print_next(session.command("task list"), on_stderr=True)
    else:
        print_notice("Interrupted", "no task was started")


class _WarningFormatter(logging.Formatter):
    """Writes log lines of the client as warnings for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The line as a warning in plain words, where there are some for its event."""
        template = _WARNINGS.get(str(record.msg).partition(" ")[0])
        text = record.getMessage() if template is None else template % record.args
        return f"Warning: {one_line(text)}"


def _is_long_wait(record: logging.LogRecord) -> bool:
    """Return whether the client waits so long before a retry that it might be taken for hanging."""
    if str(record.msg).partition(" ")[0] != RETRY:
        return False
    _, _, wait_s, _ = cast("tuple[str, int, float, str]", record.args)
    return wait_s >= _LONG_WAIT_S


def _set_up_logging(config: ClientConfiguration) -> None:
    is_debugging = config.flag("debug")
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if is_debugging else logging.WARNING,
        format="# %(levelname)s %(name)s %(message)s",
        force=True,
    )
    handler = logging.getLogger().handlers[0]
    said = set[str]()

    def is_shown(record: logging.LogRecord) -> bool:
        if not is_debugging and record.levelno < logging.WARNING and not _is_long_wait(record):
            return False
        # An agent with two interfaces causes the same line for each.
        known = len(said)
        said.add(record.getMessage())
        return len(said) > known

    handler.addFilter(is_shown)
    if not is_debugging:
        # The client reports its retries at INFO.
        logging.getLogger("trunkline.client").setLevel(logging.INFO)
        handler.setFormatter(_WarningFormatter())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    for path in config.exposed:
        print_notice(
            "Warning", f"{path} holds a secret, and others on this machine can read it: chmod 600 it"
        )
    for name in config.unknown:
        names = [option.variable.removeprefix(PREFIX) for option in OPTIONS.values()]
        near = get_close_matches(name.removeprefix(PREFIX), names, 1)
        fix = f"did you mean {PREFIX}{near[0]}?" if near else "trunkline config show lists the names"
        print_notice("Warning", f"{name} sets nothing; {fix}")
