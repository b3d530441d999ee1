"""Standard output and standard error: labelled lines and blocks for people and pipes, JSON for programs.

Nothing that an agent says reaches a terminal as a control sequence. Standard output has none at all, on a
terminal too; only what is passing, on standard error, is coloured or wiped there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from trunkline.config import environment

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_INDENT = "  "
_KEPT = "\n\t"
_WIPE = "\r\x1b[K"
# Of a terminal that does not say.
_COLUMNS = 80
_WATCH_S = 2.0
_COLOURS = {"Warning": "33", "Error": "31"}


def escape_controls(text: str) -> str:
    """A text whose control characters are spelled out."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() or one in _KEPT else ascii(one)[1:-1] for one in text])


def one_line(text: str) -> str:
    """A text on one line, without control characters."""
    return " ".join(escape_controls(text).split())


def print_field(label: str, value: str) -> None:
    """Print one labelled line."""
    print(f"{label}: {one_line(value)}", flush=True)


def print_given(**fields: str) -> None:
    """Print the fields that have a value, each by its label."""
    for label, value in fields.items():
        if value:
            print_field(label, value)


def print_block(label: str, text: str) -> None:
    """Print content that is no field: set in, so that none of its lines is taken for one, and closed."""
    lines = escape_controls(text).split("\n")
    print("\n".join([f"{label}:", *(f"{_INDENT}{each}" for each in lines), ""]), flush=True)


def print_data(label: str, value: object) -> None:
    """Print a JSON value as a block."""
    print_block(label, msgspec.json.format(msgspec.json.encode(value)).decode())


def field_lines(found: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[str]:
    """The members that have a label, a line each; what is no text as JSON, an empty text not at all."""
    for name, label in labels.items():
        value = found.get(name, "")
        if text := value if isinstance(value, str) else msgspec.json.encode(value).decode():
            yield f"{label}: {one_line(text)}"


def print_json(value: object, *, compact: bool = False) -> None:
    """Print a value, or what is JSON already: on a line of its own where lines are counted, else set out."""
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    text = msgspec.json.format(raw, indent=-1 if compact else 2).decode()
    if not text.replace("\n", "").isprintable():
        # JSON lets most of them be; a terminal takes some for the beginning of a command.
        text = "".join([one if one.isprintable() or one == "\n" else _escaped(one) for one in text])
    print(text, flush=True)


def _escaped(sign: str) -> str:
    units = sign.encode("utf-16-be")
    return "".join([f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)])


def print_notice(label: str, text: str) -> None:
    """Print a remark on standard error, beside the result."""
    clear_progress()
    colour = _COLOURS.get(label) if is_color_terminal() else None
    head = f"\x1b[{colour}m{label}:\x1b[0m" if colour else f"{label}:"
    print(f"{head} {one_line(text)}", file=sys.stderr, flush=True)


def show_progress(text: str) -> None:
    """Show what is going on, until the next thing is shown; only on a terminal."""
    if is_color_terminal():
        # What goes on in a second row could not be wiped.
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
        print(f"{_WIPE}{one_line(text)[: columns - 1]}", end="", file=sys.stderr, flush=True)


def clear_progress() -> None:
    """Wipe the line of progress before anything else is printed."""
    if is_color_terminal():
        print(_WIPE, end="", file=sys.stderr, flush=True)


def watch_page(
    page: Callable[[], RenderableType],
    console: Console | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show a page of the terminal as it is now, again and again until it is interrupted."""
    # Not for every command: rich takes a while to load.
    from rich.console import Console
    from rich.live import Live

    shown_on = console or Console(highlight=False)
    with Live(page(), console=shown_on, auto_refresh=False) as live:
        try:
            while True:
                sleep(_WATCH_S)
                live.update(page(), refresh=True)
        except KeyboardInterrupt:
            return


def is_color_terminal() -> bool:
    """Whether standard error is a terminal that may be coloured."""
    return sys.stderr.isatty() and not environment("NO_COLOR") and environment("TERM").get("TERM") != "dumb"
