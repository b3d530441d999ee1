"""`trunkline task …` and the short forms of its commands: `get`, `list`, `cancel`, `watch`, `push`."""

from __future__ import annotations

import typer

from trunkline.cli.commands.client import ClientCommand, ClientGroup, Given, takes
from trunkline.cli.commands.flags import CALL
from trunkline.cli.options import CALLING

app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="Tasks of an agent: get, list, cancel, follow, download."
)
push = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="Webhooks that are told of a task: create, get, list, delete."
)
_TASK = "The agent's URL, unless -a names it, and the task's id."
_CONFIG = "The agent's URL, unless -a names it, the task's id and the config's."


@takes("wait", "history", *CALLING, "poll-interval", "stream", words="[URL] TASK", about=_TASK)
def get(given: Given) -> None:
    """Show a task as it stands, or wait for its end."""
    from trunkline.cli.task import get

    get(given)


@takes(*CALLING, "stream", words="[URL] TASK", about=_TASK)
def cancel(given: Given) -> None:
    """Stop a task."""
    from trunkline.cli.task import cancel

    cancel(given)


@takes(
    "status",
    "context-id",
    "page-size",
    "page-token",
    "history",
    "artifacts",
    *CALLING,
    "stream",
    words="[URL]",
    about="The agent's URL, unless -a names it.",
)
def list_(given: Given) -> None:
    """List tasks, a page at a time."""
    from trunkline.cli.task import list_

    list_(given)


@takes(*CALLING, "poll-interval", "stream", words="[URL] TASK", about=_TASK)
def subscribe(given: Given) -> None:
    """Follow a task until it ends or asks for something."""
    from trunkline.cli.task import subscribe

    subscribe(given)


@takes(*CALLING, "poll-interval", words="[URL] TASK", about=_TASK)
def watch(given: Given) -> None:
    """Follow a task live: `task subscribe --stream`."""
    from trunkline.cli.task import subscribe

    subscribe(Given(given.words, {**given.flags, "stream": True}, given.parts))


@takes("dir", "force", *CALLING, words="[URL] TASK", about=_TASK)
def download(given: Given) -> None:
    """Save a task's artifacts as files."""
    from trunkline.cli.download import download

    download(given)


@push.command("create", cls=ClientCommand)
@takes("url", "id", "token", "scheme", "credentials", *CALLING, words="[URL] TASK", about=_TASK)
def push_create(given: Given) -> None:
    """Have a webhook told of a task."""
    from trunkline.cli.push import create

    create(given)


@push.command("get", cls=ClientCommand)
@takes(*CALLING, words="[URL] TASK CONFIG", about=_CONFIG)
def push_get(given: Given) -> None:
    """Show one config."""
    from trunkline.cli.push import get

    get(given)


@push.command("list", cls=ClientCommand)
@takes(*CALLING, words="[URL] TASK", about=_TASK)
def push_list(given: Given) -> None:
    """List a task's configs."""
    from trunkline.cli.push import list_

    list_(given)


@push.command("delete", cls=ClientCommand)
@takes(*CALLING, words="[URL] TASK CONFIG", about=_CONFIG)
def push_delete(given: Given) -> None:
    """Forget a config."""
    from trunkline.cli.push import delete

    delete(given)


def add_to(root: typer.Typer) -> None:
    """Register these commands, each by its full name and its short one."""
    for name, function in (("get", get), ("list", list_), ("cancel", cancel)):
        app.command(name, cls=ClientCommand)(function)
        root.command(name, cls=ClientCommand, rich_help_panel=CALL)(function)
    app.command("subscribe", cls=ClientCommand)(subscribe)
    root.command("watch", cls=ClientCommand, rich_help_panel=CALL)(watch)
    app.command("download", cls=ClientCommand)(download)
    app.add_typer(push, name="push-config")
    root.add_typer(push, name="push", rich_help_panel=CALL)
    root.add_typer(app, name="task", rich_help_panel=CALL)
