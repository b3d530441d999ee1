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
# Beyond this, several integers are one double. From the second on, ECMAScript writes an exponent.
_EXACT, _WITH_EXPONENT = 2**53, 1e21


def canonical(value: object) -> bytes:
    """Return the canonical text of a JSON value, in UTF-8.

    Raises:
        ValueError: the value has no JSON text, such as a lone surrogate, it is nested too deep, or it has a
            number that another number shares its text with.
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
    """Return the number as ECMAScript writes it: the shortest digits that read back as the same double.

    Raises:
        ValueError: the text would read back as another number, so that a signature would cover both.
    """
    if isinstance(value, int) and abs(value) <= _EXACT:
        return str(value)
    if isinstance(value, int) or _EXACT < abs(value) < _WITH_EXPONENT:
        raise ValueError(
            f"{_quoted(value)} is beyond 2^53, where integers are not exact; write it as a string"
        )
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    if not value and math.copysign(1, value) < 0:
        raise ValueError("-0.0 is read back as 0; write 0")
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).strip("0") or "0"
    if digits == "0":
        return "0"
    # Where the point stands, counted from the first of the digits that matter.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len((whole + fraction).lstrip("0")))
    return sign + _placed(digits, point)


def _quoted(value: float) -> str:
    # str() refuses integers of more than 4,300 digits.
    is_short = isinstance(value, float) or value.bit_length() <= 128
    return f"the number {value}" if is_short else "an integer"


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
