"""The line that says which command to run next, and the quoting that makes it safe to copy."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

# What a user replaces in a command that is suggested.
TEXT, REPLY, JSON_REPLY = "<text>", "<reply>", "<json>"


def command_line(
    name: str,
    *arguments: str,
    target: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> str:
    """Return a `trunkline` command that can be copied; options without a value are left out.

    An argument that begins with a hyphen, such as an ID that an agent chose, does not become an option.

    Args:
        target: options that stand before the arguments, such as the agent that is called.
        options: options that stand after them.
    """
    head, tail = ["trunkline", *name.split(), *_words(target)], [*_words(options), *flags]
    is_hidden = any(one.startswith("-") for one in arguments)
    text = shlex.join([*head, *tail, "--", *arguments] if is_hidden else [*head, *arguments, *tail])
    # IDs may come from an agent; control characters would act on the terminal.
    return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])


def print_next(command: str, *, on_stderr: bool = False) -> None:
    """Print the command to continue with; a test executes every one."""
    print(f"Next: {command}", file=sys.stderr if on_stderr else sys.stdout, flush=True)


def _words(options: Mapping[str, str] | None) -> Iterator[str]:
    for option, value in (options or {}).items():
        if value.startswith("-"):
            yield f"{'--agent-card' if option == '-a' else option}={value}"
        elif value:
            yield from (option, value)
