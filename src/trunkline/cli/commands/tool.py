"""`trunkline auth login`, `config show`, `completion`, `conformance` and `help`: of the tool itself."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.client import ClientCommand, ClientGroup, Given, takes
from trunkline.cli.commands.flags import TOOL, TRY
from trunkline.cli.options import CALLING, SHOWN

auth = typer.Typer(cls=ClientGroup, no_args_is_help=True, help="Credentials that are kept for later calls.")
config = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="The options that apply, and where each comes from."
)


@auth.command("login", cls=ClientCommand)
@takes(
    "flow", "client-id", "client-secret", "scope", "agent-card", "insecure", "timeout", *SHOWN,
    words="[AGENT]", about="The agent, unless -a names it.",
)  # fmt: skip
def auth_login(given: Given) -> None:
    """Get a token by OAuth, as the agent's card says, and keep it for later calls."""
    from trunkline.cli.login import login

    login(given)


@auth.command("logout", cls=ClientCommand)
@takes("agent-card", *SHOWN, words="[AGENT]", about="The agent, unless -a names it.")
def auth_logout(given: Given) -> None:
    """Forget the token for an agent."""
    from trunkline.cli.login import logout

    logout(given)


@config.command("show", cls=ClientCommand)
@takes(*CALLING, "context-id", "task-id", "wait", "async", "poll-interval", words="")
def config_show(given: Given) -> None:
    """Show every option that applies, with where it comes from. Changes nothing."""
    from trunkline.cli.settings import show

    show(given)


@takes("kit", *CALLING, words="[AGENT]", about="The agent, unless -a names it.")
def conformance(given: Given) -> None:
    """Run the official test kit against an agent; exit code 1 if it fails."""
    from trunkline.cli.conformance import conformance

    conformance(given)


def completion(
    ctx: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print the script that makes a shell complete commands and flags."""
    from trunkline.cli.completion import script

    script(ctx, shell)


def help_(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]…", help="Of which command.")] = None,
) -> None:
    """Show how the tool or a command is used."""
    from trunkline.cli.completion import usage

    print(usage(ctx, words or []))


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.add_typer(auth, name="auth", rich_help_panel=TOOL)
    app.add_typer(config, name="config", rich_help_panel=TOOL)
    app.command(cls=ClientCommand, rich_help_panel=TRY)(conformance)
    app.command(cls=ClientCommand, rich_help_panel=TOOL)(completion)
    app.command("help", cls=ClientCommand, rich_help_panel=TOOL)(help_)
