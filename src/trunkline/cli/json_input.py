"""JSON that a command is given: inline, in a file or on standard input, with the position of a mistake."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from trunkline.errors import Misuse
from trunkline.wire.decode import locate_json_error

_INLINE = ("{", "[", '"')
# No agent accepts a message of this size, and a device or a pipe may have no end.
READ_LIMIT = 64 << 20
_EXAMPLE = """'{"name": "value"}'"""


def read_json(value: str, flag: str) -> Any:
    """Return the JSON value that an option names: JSON itself, a file, or `-` for standard input.

    Raises:
        Misuse: it is neither JSON nor a file that contains JSON.
    """
    example = f"{flag} {_EXAMPLE}"
    if value == "-":
        return decode_json(read_bounded(sys.stdin.buffer, f"{flag} -"), f"{flag} -", example)
    if value.startswith(_INLINE) or _is_scalar(value):
        return decode_json(value.encode(), flag, example)
    # The contract of the command line names a file without the sign that other tools put before it.
    path = value.removeprefix("@")
    raw = read_file(Path(path), flag)
    return decode_json(raw, f"{flag} {path}", f"python -m json.tool {shlex.quote(path)}")


def decode_json(raw: bytes, where: str, hint: str) -> Any:
    """Return the value that JSON encodes; `where` names its source in errors.

    Raises:
        Misuse: it is not JSON; the message has the line and the column.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misuse(f"{where}: invalid JSON{locate_json_error(error, raw)}", hint=hint) from None


def read_file(path: Path, flag: str) -> bytes:
    """Return the content of a file that an option names.

    Raises:
        Misuse: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            return read_bounded(file, f"{flag} {path}")
    except OSError as error:
        why = (error.strerror or "it cannot be read").lower()
        raise Misuse(f"{flag} {path}: {why}", hint=f"ls -l {shlex.quote(str(path.parent))}") from None


def read_bounded(source: BinaryIO, flag: str) -> bytes:
    """Return the content of a source.

    Raises:
        Misuse: it is larger than 64 MiB.
    """
    raw = source.read(READ_LIMIT + 1)
    if len(raw) > READ_LIMIT:
        raise Misuse(f"{flag} is larger than {READ_LIMIT >> 20} MiB; give the agent a URL of it (--file URL)")
    return raw


def _is_scalar(value: str) -> bool:
    """Return whether a text is a number, a string, true, false or null in JSON."""
    try:
        msgspec.json.decode(value)
    except msgspec.DecodeError:
        return False
    return True
