"""`trunkline config show`: every option that applies and where it comes from."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from trunkline.cli.configuration import DEFAULT, ConfiguredValue, load_configuration
from trunkline.cli.console import print_field, print_json
from trunkline.cli.failure import failure_of, is_json_asked, print_failure
from trunkline.cli.oauth import TokenFile
from trunkline.cli.options import CALLING, OPTIONS
from trunkline.cli.parsing import Commands, Invocation
from trunkline.config import Secret
from trunkline.errors import Misuse

commands = Commands()


@commands.parsed("show", *CALLING, "context-id", "task-id", "wait", "async", "poll-interval", arguments="")
def show(invocation: Invocation) -> None:
    """Show every option that applies, with where it comes from. Changes nothing."""
    try:
        config = load_configuration(invocation.flags)
        tokens = TokenFile()
        logins = tokens.origins()
    except Misuse as error:
        failure = failure_of(error, finding_card=False, has_credentials=False)
        print_failure(failure, as_json=is_json_asked(invocation.flags))
        raise typer.Exit(failure.exit) from None
    found = {name: config.value(name) for name, option in OPTIONS.items() if option.lasting}
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


def _text(one: ConfiguredValue) -> str:
    value = _plain(one.value)
    if value in (None, "", ()):
        return "not set" if one.source == DEFAULT else "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Secret) else value
