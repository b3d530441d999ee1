"""Reads a part of any dialect into the one `Part`. Pure."""

from __future__ import annotations

import binascii
from typing import Any, NoReturn, cast

from msgspec import UNSET, UnsetType

from trunkline.errors import InvalidParams
from trunkline.wire.raw import RawFile, RawPart
from trunkline.wire.types import Part

# Which members each discriminator of 0.3 (`kind`) and of its ancestors (`type`) may announce.
_CONTENTS_OF_KIND = {
    "text": ("text",),
    "file": ("file", "raw", "url"),
    "data": ("data",),
    "raw": ("raw",),
    "url": ("url",),
}


def read_part(raw: RawPart, path: str, index: int, *, proto: bool) -> Part:
    """One part; `path[index]` is its place in the request.

    Raises:
        InvalidParams: it has no content, two contents, or one that contradicts its discriminator.
    """
    data = raw.data
    # A null beside another content is a serializer's way to say "not set"; alone it is the value null.
    if data is None and (raw.text, raw.raw, raw.url, raw.file) != (None, None, None, None):
        data = UNSET
    content = _content(raw, data, path, index)
    announced = raw.kind or raw.type
    if announced is not None and content not in _CONTENTS_OF_KIND.get(announced, ()):
        member = "kind" if raw.kind else "type"
        _refuse(path, index, f".{member}", f"{announced!r} does not name its content, which is {content}")
    if raw.file is not None:
        return _file_part(raw, raw.file, path, index)
    if raw.raw is not None:
        _check_base64(raw.raw, path, index, ".raw")
    if proto and data is not UNSET:
        data = _unwrapped(data)
    return Part(
        raw.text,
        raw.raw,
        raw.url,
        data,
        raw.filename or "",
        raw.media_type or "",
        raw.metadata,
        raw.extra,
    )


def _content(raw: RawPart, data: Any | UnsetType, path: str, index: int) -> str:
    found = ""
    count = 0
    if raw.text is not None:
        found, count = "text", 1
    if raw.raw is not None:
        found, count = "raw", count + 1
    if raw.url is not None:
        found, count = "url", count + 1
    if raw.file is not None:
        found, count = "file", count + 1
    if data is not UNSET:
        found, count = "data", count + 1
    if count != 1:
        _refuse(path, index, "", "must have exactly one of text, raw, url, data (or file in 0.3)")
    return found


def _file_part(raw: RawPart, file: RawFile, path: str, index: int) -> Part:
    raws = [text for text in (file.content, file.file_with_bytes) if text is not None]
    urls = [text for text in (file.uri, file.url, file.file_with_uri) if text is not None]
    if len(raws) + len(urls) != 1:
        _refuse(path, index, ".file", "must have exactly one of bytes and uri")
    for text in raws:
        _check_base64(text, path, index, ".file.bytes" if file.content is not None else ".file.fileWithBytes")
    return Part(
        raw=raws[0] if raws else None,
        url=urls[0] if urls else None,
        filename=file.name or raw.filename or "",
        media_type=file.mime_type or raw.media_type or "",
        metadata=raw.metadata,
        extra=raw.extra,
    )


def _check_base64(text: str, path: str, index: int, member: str) -> None:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        _refuse(path, index, member, "must be standard base64 with padding")


def _unwrapped(data: Any) -> Any:
    if isinstance(data, dict) and "data" in data and len(cast("dict[str, Any]", data)) == 1:
        return cast("dict[str, Any]", data)["data"]
    return cast("Any", data)


def _refuse(path: str, index: int, member: str, what: str) -> NoReturn:
    field = f"{path}[{index}]{member}"
    raise InvalidParams(f"{field}: {what}", field=field)
