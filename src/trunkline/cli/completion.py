"""`trunkline completion` and `trunkline help`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.completion import get_completion_inspect_parameters, shell_complete

from trunkline.cli.failure import CommandFailure, print_failure
from trunkline.cli.options import COMPLETING
from trunkline.cli.parsing import Commands, Several

SHELLS = ("bash", "zsh", "fish")
commands = Commands()


@commands.local("completion")
def script(
    ctx: typer.Context, shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]
) -> None:
    """Print the script that makes a shell complete commands and flags."""
    if shell not in SHELLS:
        failure = CommandFailure("A2ACLI_ERR_USAGE", f"no completion for {shell}: choose {', '.join(SHELLS)}")
        print_failure(failure, as_json=False)
        raise typer.Exit(failure.exit)
    register_shells()
    shell_complete(ctx.find_root().command, {}, "trunkline", COMPLETING, f"source_{shell}")


def register_shells() -> None:
    """Register Typer's completion classes: a side effect of this call, which costs some time."""
    get_completion_inspect_parameters()


@commands.local("help")
def usage(
    ctx: typer.Context,
    words: Annotated[Several, typer.Argument(metavar="[COMMAND]…", help="Of which command.")] = None,
) -> None:
    """Show how the tool or a command is used."""
    root: Any = ctx.find_root()
    found = root
    for word in words or []:
        known = getattr(found.command, "commands", {})
        if word not in known:
            failure = CommandFailure(
                "A2ACLI_ERR_USAGE", f"there is no command {' '.join(words or [])!r}", hint="trunkline help"
            )
            print_failure(failure, as_json=False)
            raise typer.Exit(failure.exit)
        command = root.command.loaded(word) if found is root else known[word]
        found = type(root)(command, parent=found, info_name=word)
    print(found.get_help())
