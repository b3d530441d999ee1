"""Usage errors: what was typed wrong, with the corrected command line as the hint."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from trunkline.cli.failure import CommandFailure, has_secret, is_json_typed, print_failure
from trunkline.config import find_similar

# Commands that take settings as `--set name=value`.
_WITH_SETTINGS = ("trunkline serve", "trunkline hub", "trunkline flow")
_MEANT_COMMAND = re.compile(r"No such command .* Did you mean '([a-z-]+)'")
# Options of other commands for the same thing.
_ALIASES = {"--store": "--hub", "--hub": "--store"}
_EXPECTED = (
    ("Input should be a valid integer, unable to parse string as an integer", "expected an integer"),
    ("Input should be ", "expected a number "),
)
# The message, and the words of a command that is correct; without words no correction is known.
_Corrected = tuple[str, Sequence[str]]


def print_usage_error(error: Any, typed: Sequence[str], path: str) -> int:
    """Print a usage error of Typer, and return the exit code.

    Args:
        typed: the words after the name of the command.
        path: the name of the command with its groups, which begins with `trunkline`.
    """
    correct = _CORRECTIONS.get(type(error).__name__, _correct_command)
    message, words = correct(error, typed, path)
    group = path.split()[1:]
    # A hint repeats no secret, and without the secret it would be another command.
    right = ["help", *group] if not words or has_secret(typed) else [*group, *words]
    hint = shlex.join(["trunkline", *right])
    failure = CommandFailure("A2ACLI_ERR_USAGE", message, hint)
    print_failure(failure, as_json=is_json_typed(typed))
    return failure.exit


def _correct_command(error: Any, typed: Sequence[str], path: str) -> _Corrected:
    message = error.format_message()
    meant = _MEANT_COMMAND.search(message)
    return message, () if meant is None else (meant[1], *typed[1:])


def _correct_option(error: Any, typed: Sequence[str], path: str) -> _Corrected:
    """Return the error of an option that does not exist, corrected to the closest option or setting."""
    name, message = str(error.option_name), f"No such option: {error.option_name}"
    bare = name.removeprefix("--")
    alias = _ALIASES.get(name, "")
    if alias and any(alias in one.opts for one in error.ctx.command.params):
        return f"{message}; did you mean {alias}?", _with_option(typed, name, alias)
    if near := get_close_matches(bare, [one.removeprefix("--") for one in error.possibilities or ()], 1):
        meant = f"--{near[0]}"
        return f"{message}; did you mean {meant}?", _with_option(typed, name, meant)
    setting = find_similar(bare.replace("-", "_"))
    if setting and path.startswith(_WITH_SETTINGS):
        return f"{message}; did you mean --set {setting}=…?", _as_setting(typed, name, setting)
    return message, ()


def _complete(error: Any, typed: Sequence[str], path: str) -> _Corrected:
    """Return the error of a missing argument or option, with the words to add."""
    missing = [error.param]
    if error.param.param_type_name == "argument":
        arguments = [one for one in error.ctx.command.params if one.param_type_name == "argument"]
        missing = [one for one in arguments[arguments.index(error.param) :] if one.required]
    added: list[str] = []
    for one in missing:
        added += (
            [*one.opts[:1], _placeholder(one)] if one.param_type_name == "option" else [_placeholder(one)]
        )
    return error.format_message().removesuffix("."), (*typed, *added)


def _complete_option(error: Any, typed: Sequence[str], path: str) -> _Corrected:
    """Return the error of an option that is used wrongly, with a value if it has none."""
    message = error.format_message().removesuffix(".")
    return message, (*typed, "VALUE") if "requires an argument" in message else ()


def _correct_value(error: Any, typed: Sequence[str], path: str) -> _Corrected:
    """Return the error of a value that does not fit, which it quotes."""
    text = error.message
    for pydantic, ours in _EXPECTED:
        text = text.replace(pydantic, ours)
    for option in error.param.opts:
        for place, word in enumerate(typed):
            name, equals, value = word.partition("=")
            if name == option and (equals or place + 1 < len(typed)):
                value = value if equals else typed[place + 1]
                rest = typed[place + 1 if equals else place + 2 :]
                return f"{option}: {text}, not {value!r}", (*typed[:place], option, "NUMBER", *rest)
    return error.format_message(), ()


def _placeholder(parameter: Any) -> str:
    """Return the word in capitals that stands for a value."""
    return (parameter.metavar or parameter.name.upper()).partition("|")[0].strip("[].…")


def _with_option(typed: Sequence[str], name: str, meant: str) -> list[str]:
    """Return the words with the name of an option replaced."""
    return [meant + word.removeprefix(name) if word.partition("=")[0] == name else word for word in typed]


def _as_setting(typed: Sequence[str], option: str, setting: str) -> list[str]:
    """Return the words with an option and its value replaced by `--set`."""
    place = next(place for place, word in enumerate(typed) if word.partition("=")[0] == option)
    _, equals, value = typed[place].partition("=")
    rest = typed[place + 1 :]
    if not equals and rest and not rest[0].startswith("-"):
        value, rest = rest[0], rest[1:]
    return [*typed[:place], "--set", f"{setting}={value or 'VALUE'}", *rest]


_CORRECTIONS: dict[str, Callable[[Any, Sequence[str], str], _Corrected]] = {
    "NoSuchOption": _correct_option,
    "MissingParameter": _complete,
    "BadParameter": _correct_value,
    "BadOptionUsage": _complete_option,
}
