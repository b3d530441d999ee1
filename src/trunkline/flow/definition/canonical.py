"""Canonical JSON, and the hash of a definition: equal documents have equal bytes, however they were written.

It is RFC 8785, but keys that read as array indexes come first, by their number, as ECMAScript orders them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, cast

import msgspec

DEPTH_LIMIT = 200
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_LARGEST_INDEX = 2**32 - 2
_EXACT = 2**53


def canonical(value: object) -> bytes:
    """The canonical text of a JSON value, in UTF-8.

    Raises:
        ValueError: something in it has no JSON text, such as a lone surrogate, or it is nested too deep.
    """
    pieces: list[str] = []
    _write(value, pieces, 0)
    return "".join(pieces).encode()


def definition_hash(document: dict[str, Any]) -> str:
    """The SHA-256 of the canonical text of a definition without its signature, in hexadecimal."""
    return hashlib.sha256(canonical(without_signature(document))).hexdigest()


def without_signature(document: dict[str, Any]) -> dict[str, Any]:
    """The definition without a signature block in either of its two places."""
    plain = {key: value for key, value in document.items() if key != "signature"}
    head = plain.get("document")
    if isinstance(head, dict) and "signature" in head:
        members = cast("dict[str, Any]", head)
        plain["document"] = {key: value for key, value in members.items() if key != "signature"}
    return plain


def _write(value: object, pieces: list[str], depth: int) -> None:
    if depth > DEPTH_LIMIT:
        raise ValueError(f"it is nested deeper than {DEPTH_LIMIT} levels")
    match value:
        case dict():
            members = cast("dict[object, object]", value)
            for comma, key in zip(_opened("{"), sorted(members, key=_order), strict=False):
                pieces.append(f"{comma}{_string(key)}:")
                _write(members[key], pieces, depth + 1)
            pieces.append("}" if members else "{}")
        case list() | tuple():
            items = cast("list[object]", value)
            for comma, item in zip(_opened("["), items, strict=False):
                pieces.append(comma)
                _write(item, pieces, depth + 1)
            pieces.append("]" if items else "[]")
        case str():
            pieces.append(_string(value))
        case bool() | None:
            pieces.append({True: "true", False: "false", None: "null"}[value])
        case int() | float():
            pieces.append(_number(value))
        case _:
            raise ValueError(f"{type(value).__name__} is no JSON")


def _opened(bracket: str) -> Iterator[str]:
    """What stands before each of the items: the bracket, then commas."""
    return chain([bracket], repeat(","))


def _order(key: object) -> tuple[int, int, bytes]:
    """Array indexes by their number, then all others by their UTF-16 code units."""
    if not isinstance(key, str):
        raise ValueError(f"the key {key!r} is no text")
    if _INDEX.fullmatch(key) and int(key) <= _LARGEST_INDEX:
        return 0, int(key), b""
    return 1, 0, key.encode("utf-16-be", "surrogatepass")


def _string(text: object) -> str:
    return msgspec.json.encode(text).decode()


def _number(value: float) -> str:
    """The number as ECMAScript writes it: the shortest digits that read back as the same double."""
    if isinstance(value, int) and abs(value) <= _EXACT:
        return str(value)
    try:
        double = float(value)
    except OverflowError:
        raise ValueError("a number is beyond what a double holds") from None
    if not math.isfinite(double):
        raise ValueError("a number is not finite")
    sign = "-" if double < 0 else ""
    mantissa, _, exponent = f"{abs(double)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).strip("0") or "0"
    if digits == "0":
        return "0"
    # Where the point stands, counted from the first of the digits that matter.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len((whole + fraction).lstrip("0")))
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    power = point - 1
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{tail}e{'+' if power > 0 else '-'}{abs(power)}"
