"""Commands that call an agent: `card`, `send`, `stream`, `chat`, `task …` and its short forms, `tools`."""

from __future__ import annotations

import typer

from trunkline.cli.commands.parsing import CardGroup, ClientCommand, ClientGroup, Invocation, run, takes
from trunkline.cli.options import CALLING, SENDING

CALL = "Call an agent"
card_app = typer.Typer(
    cls=CardGroup, no_args_is_help=True, help="What an agent says of itself; `card AGENT` shows it."
)
_AGENT = "The agent, unless -a names it."
_MESSAGE = "The agent's URL, unless -a names it, and the text."
task_app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="Tasks of an agent: get, list, cancel, follow, download."
)
push_app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="Webhooks that are told of a task: create, get, list, delete."
)
_TASK = "The agent's URL, unless -a names it, and the task's id."
_CONFIG = "The agent's URL, unless -a names it, the task's id and the config's."


@card_app.command("get", cls=ClientCommand)
@takes("validate", "extended", *CALLING, "stream", arguments="[AGENT]", about=_AGENT)
def card_get(invocation: Invocation) -> None:
    """Fetch an agent's card and show it."""
    from trunkline.cli.card import get

    run(invocation, get, agent_only=True)


@takes(*SENDING, "wait", "async", "stream", "fail", arguments="[URL] [TEXT]", about=_MESSAGE)
def send(invocation: Invocation) -> None:
    """Send a message, to begin something or to go on with it, and wait for the outcome."""
    from trunkline.cli.send import send

    run(invocation, send)


@takes(*SENDING, "fail", arguments="[URL] [TEXT]", about=_MESSAGE)
def stream(invocation: Invocation) -> None:
    """Send a message and follow live: `send --stream`."""
    from trunkline.cli.send import send

    run(invocation.with_flags(stream=True), send)


@takes(
    "context-id", "task-id", "skill", "metadata", *CALLING, "poll-interval",
    arguments="[AGENT]", about=_AGENT,
)  # fmt: skip
def chat(invocation: Invocation) -> None:
    """Talk with an agent, turn by turn; /new begins anew, /quit ends."""
    from trunkline.cli.chat import chat

    run(invocation, chat, agent_only=True)


@takes("wait", "history", *CALLING, "poll-interval", "stream", arguments="[URL] TASK", about=_TASK)
def get(invocation: Invocation) -> None:
    """Show a task as it stands, or wait for its end."""
    from trunkline.cli.task import get

    run(invocation, get)


@takes(*CALLING, "stream", arguments="[URL] TASK", about=_TASK)
def cancel(invocation: Invocation) -> None:
    """Stop a task."""
    from trunkline.cli.task import cancel

    run(invocation, cancel)


@takes(
    "status", "context-id", "page-size", "page-token", "history", "artifacts", *CALLING, "stream",
    arguments="[URL]", about="The agent's URL, unless -a names it.",
)  # fmt: skip
def list_(invocation: Invocation) -> None:
    """List tasks, a page at a time."""
    from trunkline.cli.task import list_

    run(invocation, list_)


@takes(*CALLING, "poll-interval", "stream", arguments="[URL] TASK", about=_TASK)
def subscribe(invocation: Invocation) -> None:
    """Follow a task until it ends or asks for something."""
    from trunkline.cli.task import subscribe

    run(invocation, subscribe)


@takes(*CALLING, "poll-interval", arguments="[URL] TASK", about=_TASK)
def watch(invocation: Invocation) -> None:
    """Follow a task live: `task subscribe --stream`."""
    from trunkline.cli.task import subscribe

    run(invocation.with_flags(stream=True), subscribe)


@takes("dir", "force", *CALLING, arguments="[URL] TASK", about=_TASK)
def download(invocation: Invocation) -> None:
    """Save a task's artifacts as files."""
    from trunkline.cli.download import download

    run(invocation, download)


@push_app.command("create", cls=ClientCommand)
@takes("url", "id", "token", "scheme", "credentials", *CALLING, arguments="[URL] TASK", about=_TASK)
def push_create(invocation: Invocation) -> None:
    """Have a webhook told of a task."""
    from trunkline.cli.task import create_push

    run(invocation, create_push)


@push_app.command("get", cls=ClientCommand)
@takes(*CALLING, arguments="[URL] TASK CONFIG", about=_CONFIG)
def push_get(invocation: Invocation) -> None:
    """Show one config."""
    from trunkline.cli.task import get_push

    run(invocation, get_push)


@push_app.command("list", cls=ClientCommand)
@takes(*CALLING, arguments="[URL] TASK", about=_TASK)
def push_list(invocation: Invocation) -> None:
    """List a task's configs."""
    from trunkline.cli.task import list_push

    run(invocation, list_push)


@push_app.command("delete", cls=ClientCommand)
@takes(*CALLING, arguments="[URL] TASK CONFIG", about=_CONFIG)
def push_delete(invocation: Invocation) -> None:
    """Forget a config."""
    from trunkline.cli.task import delete_push

    run(invocation, delete_push)


@takes(
    "format", "allow", "deny", "tag", "prefix", "agents", "call", "arguments",
    "bearer", "api-key", "svc-param", "transport", "a2a-version", "insecure", "timeout",
    "output", "json", "debug", "config",
    arguments="[AGENT]…", about="The agents; the one of A2ACLI_AGENT_CARD unless told.",
)  # fmt: skip
def tools(invocation: Invocation) -> None:
    """Print the skills of agents as tools of a model, or call one of them."""
    from trunkline.cli.tools import tools

    tools(invocation)


def add_to(app: typer.Typer) -> None:
    """Register these commands; those of tasks by their full name and a short one."""
    for function in (send, stream, chat):
        app.command(cls=ClientCommand, rich_help_panel=CALL)(function)
    for name, function in (("get", get), ("list", list_), ("cancel", cancel)):
        task_app.command(name, cls=ClientCommand)(function)
        app.command(name, cls=ClientCommand, rich_help_panel=CALL)(function)
    task_app.command("subscribe", cls=ClientCommand)(subscribe)
    task_app.command("download", cls=ClientCommand)(download)
    for function in (watch, tools):
        app.command(cls=ClientCommand, rich_help_panel=CALL)(function)
    task_app.add_typer(push_app, name="push-config")
    for name, group in (("card", card_app), ("push", push_app), ("task", task_app)):
        app.add_typer(group, name=name, rich_help_panel=CALL)
