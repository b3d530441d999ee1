"""`trunkline card`, `send`, `stream` and `chat`."""

from __future__ import annotations

import typer

from trunkline.cli.commands.client import CardGroup, ClientCommand, Given, takes
from trunkline.cli.commands.flags import CALL
from trunkline.cli.options import CALLING, SENDING

card_app = typer.Typer(
    cls=CardGroup, no_args_is_help=True, help="What an agent says of itself; `card AGENT` shows it."
)
_MESSAGE = "The agent's URL, unless -a names it, and the text."


@card_app.command("get", cls=ClientCommand)
@takes("validate", "extended", *CALLING, "stream", words="[AGENT]", about="The agent, unless -a names it.")
def card_get(given: Given) -> None:
    """Fetch an agent's card and show it."""
    from trunkline.cli.card import get

    get(given)


@takes(*SENDING, "wait", "async", "stream", words="[URL] [TEXT]", about=_MESSAGE)
def send(given: Given) -> None:
    """Send a message, to begin something or to go on with it, and wait for the outcome."""
    from trunkline.cli.send import send

    send(given)


@takes(*SENDING, words="[URL] [TEXT]", about=_MESSAGE)
def stream(given: Given) -> None:
    """Send a message and follow live: `send --stream`."""
    from trunkline.cli.send import send

    send(Given(given.words, {**given.flags, "stream": True}, given.parts))


@takes(
    "context-id",
    "task-id",
    "skill",
    "metadata",
    *CALLING,
    "poll-interval",
    words="[AGENT]",
    about="The agent, unless -a names it.",
)
def chat(given: Given) -> None:
    """Talk with an agent, turn by turn; /new begins anew, /quit ends."""
    from trunkline.cli.chat import chat

    chat(given)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.add_typer(card_app, name="card", rich_help_panel=CALL)
    for function in (send, stream, chat):
        app.command(cls=ClientCommand, rich_help_panel=CALL)(function)
