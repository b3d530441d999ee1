"""`trunkline completion` and `trunkline help`."""

from __future__ import annotations

from typing import Any

import typer
from typer.completion import get_completion_inspect_parameters, shell_complete

from trunkline.cli.failure import CommandFailure, print_failure
from trunkline.cli.options import COMPLETING

SHELLS = ("bash", "zsh", "fish")


def script(ctx: typer.Context, shell: str) -> None:
    """Print what a shell reads to complete our command.

    Raises:
        typer.Exit: there is none for that shell.
    """
    if shell not in SHELLS:
        failure = CommandFailure("A2ACLI_ERR_USAGE", f"no completion for {shell}: choose {', '.join(SHELLS)}")
        print_failure(failure, as_json=False)
        raise typer.Exit(failure.exit)
    register_shells()
    shell_complete(ctx.find_root().command, {}, "trunkline", COMPLETING, f"source_{shell}")


def register_shells() -> None:
    """Register Typer's completion classes: a side effect of this call, which costs some time."""
    get_completion_inspect_parameters()


def usage(ctx: typer.Context, words: list[str]) -> str:
    """How the command that these words name is used.

    Raises:
        typer.Exit: there is none.
    """
    root: Any = ctx.find_root()
    found = root
    for word in words:
        command = getattr(found.command, "commands", {}).get(word)
        if command is None:
            failure = CommandFailure(
                "A2ACLI_ERR_USAGE", f"there is no command {' '.join(words)!r}", hint="trunkline help"
            )
            print_failure(failure, as_json=False)
            raise typer.Exit(failure.exit)
        found = type(root)(command, parent=found, info_name=word)
    return found.get_help()
