from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trunkline.errors import InvalidParams
from trunkline.wire.read import read_send
from trunkline.wire.types import Part
from trunkline.wire.writer import Dialect


def read(part: dict[str, Any], *, proto: bool = False) -> Part:
    params = {"message": {"messageId": "m", "role": "user", "parts": [part]}}
    dialect = Dialect.V03_PROTO if proto else Dialect.V03
    return read_send(msgspec.json.encode(params), dialect).message.parts[0]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"text": "x"}, Part(text="x")),
        ({"text": ""}, Part(text="")),
        ({"kind": "text", "text": "x"}, Part(text="x")),
        ({"type": "text", "text": "x"}, Part(text="x")),
        ({"text": "x", "data": None, "raw": None}, Part(text="x")),
        ({"text": "x", "mediaType": "text/markdown"}, Part(text="x", media_type="text/markdown")),
        ({"raw": "aGk=", "filename": "f"}, Part(raw="aGk=", filename="f")),
        ({"raw": ""}, Part(raw="")),
        ({"kind": "file", "raw": "aGk="}, Part(raw="aGk=")),
        ({"url": "http://x", "mediaType": "a/b"}, Part(url="http://x", media_type="a/b")),
        ({"type": "url", "url": "http://x"}, Part(url="http://x")),
        ({"data": {"a": 1}}, Part(data={"a": 1})),
        ({"data": [1]}, Part(data=[1])),
        ({"data": None}, Part(data=None)),
        ({"kind": "data", "data": {"data": {"a": 1}}}, Part(data={"data": {"a": 1}})),
        (
            {"kind": "file", "file": {"bytes": "aGk=", "name": "n", "mimeType": "a/b"}},
            Part(raw="aGk=", filename="n", media_type="a/b"),
        ),
        ({"type": "file", "file": {"uri": "http://x"}}, Part(url="http://x")),
        ({"kind": "file", "file": {"url": "http://x"}}, Part(url="http://x")),
        ({"file": {"fileWithBytes": "aGk="}}, Part(raw="aGk=")),
        ({"file": {"fileWithUri": "http://x", "sizeInBytes": 1}}, Part(url="http://x")),
        (
            {"file": {"uri": "u", "mediaType": "a/b", "filename": "n"}},
            Part(url="u", media_type="a/b", filename="n"),
        ),
        (
            {"file": {"uri": "u"}, "mediaType": "a/b", "filename": "n"},
            Part(url="u", media_type="a/b", filename="n"),
        ),
        ({"text": "x", "metadata": {"a": 1}, "odd": 2}, Part(text="x", metadata={"a": 1}, extra={"odd": 2})),
    ],
)
def test_every_spelling(part: dict[str, Any], expected: Part) -> None:
    assert read(part) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"data": {"a": 1}}, {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ({"data": 1, "b": 2}, {"data": 1, "b": 2}),
        ([1], [1]),
    ],
)
def test_data_of_protojson_is_unwrapped(data: Any, expected: Any) -> None:
    assert read({"data": data}, proto=True).data == expected


@pytest.mark.parametrize(
    ("part", "member"),
    [
        ({}, ""),
        ({"kind": "text"}, ""),
        ({"text": None}, ""),
        ({"metadata": {}}, ""),
        ({"text": "x", "url": "y"}, ""),
        ({"text": "x", "data": {}}, ""),
        ({"raw": "aGk=", "file": {"uri": "x"}}, ""),
        ({"kind": "data", "text": "x"}, ".kind"),
        ({"kind": "fileRef", "text": "x"}, ".kind"),
        ({"type": "unsupported_type", "text": "x"}, ".type"),
        ({"file": {}}, ".file"),
        ({"file": {"bytes": "aGk=", "uri": "x"}}, ".file"),
        ({"file": {"bytes": "?"}}, ".file.bytes"),
        ({"file": {"fileWithBytes": "?"}}, ".file.fileWithBytes"),
        ({"file": "x"}, ".file"),
        ({"raw": "aGk"}, ".raw"),
        ({"raw": "a-_="}, ".raw"),
        ({"raw": "aGk=\n"}, ".raw"),
        ({"raw": "é"}, ".raw"),
        ({"raw": 5}, ".raw"),
    ],
)
def test_SND_22_SND_23_bad_parts(part: dict[str, Any], member: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read(part)
    assert caught.value.field == f"message.parts[0]{member}"
