"""Commands about the tool itself: `completion`, `help` and `config show`."""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import Annotated, Any, cast

import msgspec
import typer
from msgspec.structs import replace
from typer.completion import get_completion_inspect_parameters, shell_complete

from trunkline.cli.configuration import DEFAULT, ConfiguredValue, load_configuration
from trunkline.cli.console import print_field, print_json, print_notice
from trunkline.cli.failure import CommandFailure, print_failure
from trunkline.cli.oauth import TokenFile
from trunkline.cli.options import CALLING, COMPLETING, OPTIONS
from trunkline.cli.parsing import Commands, Invocation, Several
from trunkline.config import Secret, SourcedValue, explain, find_unknown_variables
from trunkline.errors import Misuse

SHELLS = ("bash", "zsh", "fish")
commands, settings = Commands(), Commands()
commands.add_typer(settings, name="config")


@commands.local("completion")
def script(
    ctx: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="Shell: bash, zsh or fish.")],
) -> None:
    """Print the shell completion script."""
    if shell not in SHELLS:
        near = (get_close_matches(shell, SHELLS, 1) or SHELLS)[0]
        text = f"no completion for {shell!r}: choose {', '.join(SHELLS)}"
        raise Misuse(text, hint=f"trunkline completion {near}")
    register_shells()
    shell_complete(ctx.find_root().command, {}, "trunkline", COMPLETING, f"source_{shell}")


def register_shells() -> None:
    """Register Typer's completion classes: a side effect of this call, which costs some time."""
    get_completion_inspect_parameters()


@commands.local("help")
def usage(
    ctx: typer.Context,
    words: Annotated[Several, typer.Argument(metavar="[COMMAND]…", help="Command to describe.")] = None,
) -> None:
    """Show the usage of a command."""
    root: Any = ctx.find_root()
    found = root
    for word in words or []:
        known = getattr(found.command, "commands", {})
        if word not in known:
            near = get_close_matches(word, known, 1)
            missing = f"there is no command {word!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            path = found.command_path.removeprefix("trunkline").split()
            hint = shlex.join(["trunkline", "help", *path, *near])
            failure = CommandFailure("A2ACLI_ERR_USAGE", missing, hint)
            print_failure(failure, as_json=False)
            raise typer.Exit(failure.exit)
        command = root.command.loaded(word) if found is root else known[word]
        found = type(root)(command, parent=found, info_name=word)
    print(found.get_help())


@settings.parsed(
    "show", "server", *CALLING, "context-id", "task-id", "wait", "async", "poll-interval", arguments=""
)
def show(invocation: Invocation) -> None:
    """Print each client option or, with --server, each server setting, with its source."""
    if invocation.flags.pop("server", False):
        _show_server(as_json=load_configuration(invocation.flags).as_json)
        return
    config = load_configuration(invocation.flags)
    tokens = TokenFile()
    logins = tokens.origins()
    found = {name: config.values[name] for name, option in OPTIONS.items() if option.lasting}
    if config.as_json:
        shown: dict[str, Any] = {
            name: {"value": _plain(one.value), "source": one.source} for name, one in found.items()
        }
        print_json({"settings": shown, "logins": list(logins)})
        return
    for name, one in found.items():
        print_field(name, f"{_text(one)} ({one.source})")
    for origin in logins:
        print_field("login", f"{origin} ({tokens.path})")


def _show_server(*, as_json: bool) -> None:
    # Loaded only here: it needs the modules of a server.
    from trunkline.cli.admin import collect_for
    from trunkline.store.url import shown

    found = explain(collect_for(None))
    # The URL of a store may hold a password.
    found["store"] = replace(found["store"], value=shown(str(found["store"].value)))
    for name, near in find_unknown_variables().items():
        print_notice("Warning", f"{name} sets nothing" + (f"; did you mean {near}?" if near else ""))
    if as_json:
        plain = {name: {"value": _plain(one.value), "source": one.source} for name, one in found.items()}
        print_json({"settings": plain})
        return
    for name, one in found.items():
        print_field(name, f"{_text(one)} ({one.source})")


def _text(one: ConfiguredValue | SourcedValue) -> str:
    value = _plain(one.value)
    if value in (None, "", []):
        return "not set" if one.source == DEFAULT else "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in cast("tuple[Any, ...]", value)]
    return str(value) if isinstance(value, Secret) else value
