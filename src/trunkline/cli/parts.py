"""The parts of a message from words and flags, in the order in which they were given."""

from __future__ import annotations

import base64
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trunkline.errors import Misuse
from trunkline.wire.types import Part

_ADDRESSES = ("http://", "https://")
_UNKNOWN = "application/octet-stream"


def message_parts(words: Sequence[str], flags: Sequence[tuple[str, str]]) -> list[Part]:
    """The word first, then each flag's part.

    Raises:
        Misuse: there is nothing to send, too many words, a media type without a part, or a file that fails.
    """
    if len(words) > 1:
        raise Misuse(
            f"{len(words)} words where one text is meant: quote it, and name the agent by its whole URL or -a"
        )
    kinds = {"text": _text, "file": _file, "data": _data}
    parts = [Part(text=word) for word in words]
    flagged = 0
    for kind, value in flags:
        if kind == "media_type":
            if not flagged:
                raise Misuse(f"--media-type {value} follows no --text, --file or --data; put it behind one")
            parts[-1] = msgspec.structs.replace(parts[-1], media_type=value)
        else:
            parts.append(kinds[kind](value))
            flagged += 1
    if not parts:
        raise Misuse("there is nothing to send: give a text, --text, --file or --data")
    return parts


def _text(value: str) -> Part:
    return Part(text=value)


def _file(value: str) -> Part:
    if value.startswith(_ADDRESSES):
        name = value.partition("?")[0].rpartition("/")[2]
        return Part(url=value, filename=name, media_type=mimetypes.guess_type(name)[0] or "")
    path = Path(value)
    raw = base64.b64encode(_read(path, "--file")).decode()
    kind = mimetypes.guess_type(path.name)[0] or _UNKNOWN
    return Part(raw=raw, filename=path.name, media_type=kind)


def _data(value: str) -> Part:
    raw = sys.stdin.buffer.read() if value == "-" else _read(Path(value), "--data")
    try:
        data = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        where = "standard input" if value == "-" else value
        raise Misuse(f"--data: {where} holds no JSON: {error}") from None
    return Part(data=data, media_type="application/json")


def _read(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Misuse(f"{flag} {path}: {error.strerror}") from None
