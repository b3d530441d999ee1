"""What a model said to a tool, as the parts of a message.

Base64 is looked at and passed on as it is. Whatever does not fit is refused by the name of the argument,
in words from which the model can mend it.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.bridge.schema import Inputs, is_file
from trunkline.errors import InvalidParams
from trunkline.wire.types import Part

_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL | re.IGNORECASE)
_WEB = re.compile(r"https?://\S+", re.IGNORECASE)
_SIGNATURES = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"%PDF", "application/pdf"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


class ToolArguments(Struct, frozen=True):
    """A call as it goes to the agent; with a task id it goes on with that task."""

    parts: tuple[Part, ...] = ()
    task_id: str = ""


def decode_arguments(given: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """The arguments of a call, which models give as an object or as its JSON text.

    Raises:
        InvalidParams: they are neither.
    """
    if isinstance(given, Mapping):
        return dict(given)
    try:
        found: object = msgspec.json.decode(given or b"{}")
    except msgspec.DecodeError as error:
        raise InvalidParams(f"the arguments are not JSON: {error}", field="arguments") from None
    if not isinstance(found, dict):
        raise InvalidParams("the arguments must be one JSON object", field="arguments")
    return cast("dict[str, Any]", found)


def read_arguments(given: Mapping[str, Any], inputs: Inputs) -> ToolArguments:
    """The parts of the message, and the task that it answers, by the arguments that a model gave.

    Raises:
        InvalidParams: one is missing, unknown or does not fit; the text says which and what to change.
    """
    said = {name: value for name, value in given.items() if value is not None}
    task_id = _text(said, inputs.task_id)
    if inputs.typed:
        return ToolArguments(_typed_parts(said, inputs, task_id), task_id)
    _check_names(said, inputs, answering=bool(task_id))
    parts = _parts(said, inputs.modes)
    if not parts and not task_id:
        known = ", ".join(name for name in inputs.schema["properties"] if name != inputs.task_id)
        raise InvalidParams(f"there is nothing to send; give {known}", field="arguments")
    return ToolArguments(parts, task_id)


def _typed_parts(said: dict[str, Any], inputs: Inputs, task_id: str) -> tuple[Part, ...]:
    answer = _text(said, inputs.answer)
    if answer and not task_id:
        raise InvalidParams(
            f"{inputs.answer} answers a question; give its {inputs.task_id} as well", field=inputs.answer
        )
    if answer:
        return (Part(text=answer),)
    return (Part(data=said),) if said or not task_id else ()


def _check_names(said: Mapping[str, Any], inputs: Inputs, *, answering: bool) -> None:
    known = inputs.schema["properties"]
    for name in said:
        if name not in known:
            raise InvalidParams(f"there is no argument {name!r}; there are {', '.join(known)}", field=name)
    missing = [name for name in inputs.schema["required"] if not said.get(name)]
    if missing and not answering:
        raise InvalidParams(f"the argument {missing[0]!r} is required", field=missing[0])


def _parts(said: dict[str, Any], modes: tuple[str, ...]) -> tuple[Part, ...]:
    """Text first, then data, then files."""
    parts: list[Part] = []
    if query := _text(said, "query"):
        parts.append(Part(text=query))
    if "data" in said:
        parts.append(Part(data=_data(said["data"])))
    name = _text(said, "file_name")
    for family, called in (("image", ""), ("audio", ""), ("file", name)):
        if content := _text(said, f"{family}_data"):
            parts.append(_raw(content, f"{family}_data", called, modes))
        if url := _text(said, f"{family}_url"):
            parts.append(_linked(url, f"{family}_url", called, modes))
    return tuple(parts)


def _text(said: dict[str, Any], name: str) -> str:
    """Take an argument that is text; empty if it was not given."""
    value = said.pop(name, "")
    if not isinstance(value, str):
        raise InvalidParams(f"{name} must be text, not {type(value).__name__}", field=name)
    return value


def _data(value: object) -> object:
    if isinstance(value, str):
        # Many a model writes an object as its text.
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            raise InvalidParams("data must be a JSON object, not text", field="data") from None
    if not isinstance(value, dict):
        raise InvalidParams(f"data must be a JSON object, not {type(value).__name__}", field="data")
    return cast("object", value)


def _raw(content: str, field: str, name: str, modes: tuple[str, ...]) -> Part:
    found = _DATA_URL.fullmatch(content.strip())
    media_type, text = (found[1].lower(), found[2]) if found else ("", content)
    text = "".join(text.split())
    try:
        whole = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams(
            f"{field} must be base64: A-Z, a-z, 0-9, + and /, padded with =", field=field
        ) from None
    kind = media_type or _type_of_name(name) or _sniff_type(whole) or _type_of_skill(modes, field)
    return Part(raw=text, filename=name, media_type=kind)


def _linked(url: str, field: str, name: str, modes: tuple[str, ...]) -> Part:
    if url[:5].lower() == "data:":
        return _raw(url, field, name, modes)
    if not _WEB.fullmatch(url):
        raise InvalidParams(f"{field} must be an address that begins with https:// or http://", field=field)
    path = url.partition("?")[0].partition("#")[0]
    kind = _type_of_name(name) or _type_of_name(path) or _type_of_skill(modes, field)
    return Part(url=url, filename=name, media_type=kind)


def _type_of_name(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "" if name else ""


def _sniff_type(content: bytes) -> str:
    """The media type that the first bytes give away."""
    if content[:4] == b"RIFF":
        return _RIFF.get(content[8:12], "")
    return next((kind for sign, kind in _SIGNATURES if content.startswith(sign)), "")


def _type_of_skill(modes: tuple[str, ...], field: str) -> str:
    """The media type that the skill reads of an argument's family, where there is one; else the family."""
    family = field.partition("_")[0]
    if family == "file":
        known, otherwise = [mode for mode in modes if is_file(mode)], "application/octet-stream"
    else:
        known, otherwise = [mode for mode in modes if mode.startswith(f"{family}/")], f"{family}/*"
    named = [mode for mode in known if not mode.endswith("/*")]
    return named[0] if len(named) == 1 else otherwise
