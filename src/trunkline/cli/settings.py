"""`trunkline config show`: every option that applies and where it comes from."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from trunkline.cli.choices import DEFAULT, Chosen, choose
from trunkline.cli.commands.client import Given
from trunkline.cli.failure import failure_of, tell, wants_json
from trunkline.cli.options import OPTIONS
from trunkline.cli.screen import document, field
from trunkline.cli.tokens import TokenFile
from trunkline.config import Secret
from trunkline.errors import Misuse


def show(given: Given) -> None:
    """Print them all; a secret only as one that is set."""
    try:
        choices = choose(given.flags)
        logins = TokenFile().origins()
    except Misuse as error:
        as_json = given.flags["output"] == "json" if "output" in given.flags else wants_json(())
        failure = failure_of(error, finding=False, credentials=False)
        tell(failure, as_json=as_json)
        raise typer.Exit(failure.exit) from None
    found = {name: choices.of(name) for name, option in OPTIONS.items() if option.lasting}
    if choices.as_json:
        shown: dict[str, Any] = {
            name: {"value": _plain(one.value), "source": one.source} for name, one in found.items()
        }
        document(msgspec.json.encode({"settings": shown, "logins": list(logins)}), compact=False)
        return
    for name, one in found.items():
        field(name, f"{_text(one)} ({one.source})")
    for origin in logins:
        field("login", f"{origin} ({TokenFile().path})")


def _text(one: Chosen) -> str:
    value = _plain(one.value)
    if value in (None, "", ()):
        return "not set" if one.source == DEFAULT else "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Secret) else value
