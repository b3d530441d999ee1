"""Commands about the tool itself: `auth login`, `config show`, `completion` and `help`."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.parsing import ClientCommand, ClientGroup, Invocation, run, takes
from trunkline.cli.options import CALLING, SHOWN

TOOL = "The tool itself"
auth = typer.Typer(cls=ClientGroup, no_args_is_help=True, help="Credentials that are kept for later calls.")
config = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="The options that apply, and where each comes from."
)


@auth.command("login", cls=ClientCommand)
@takes(
    "flow", "client-id", "client-secret", "token-url", "scope", "agent-card", "insecure", "timeout", *SHOWN,
    arguments="[AGENT]", about="The agent, unless -a names it.",
)  # fmt: skip
def auth_login(invocation: Invocation) -> None:
    """Get a token by OAuth, as the agent's card says, and keep it for later calls."""
    from trunkline.cli.login import login

    run(invocation, login, agent_only=True, use_login=False)


@auth.command("logout", cls=ClientCommand)
@takes("agent-card", *SHOWN, arguments="[AGENT]", about="The agent, unless -a names it.")
def auth_logout(invocation: Invocation) -> None:
    """Forget the token for an agent."""
    from trunkline.cli.login import logout

    run(invocation, logout, agent_only=True, use_login=False)


@config.command("show", cls=ClientCommand)
@takes(*CALLING, "context-id", "task-id", "wait", "async", "poll-interval", arguments="")
def config_show(invocation: Invocation) -> None:
    """Show every option that applies, with where it comes from. Changes nothing."""
    from trunkline.cli.config_show import show

    show(invocation)


def completion(
    ctx: typer.Context, shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]
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
    app.command(cls=ClientCommand, rich_help_panel=TOOL)(completion)
    app.command("help", cls=ClientCommand, rich_help_panel=TOOL)(help_)
