"""Bytes or a query string → one of the superset structs, lenient in spelling and exact in its errors."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Raw

from trunkline.wire.decode_errors import UNREADABLE, check_structure, misfit, not_json
from trunkline.wire.normalize import PLANS, tidy
from trunkline.wire.raw import Shape

S = TypeVar("S", bound=Shape)


def read_params(decoder: msgspec.json.Decoder[S], shape: type[S], raw: bytes | Raw | None) -> S:
    """Params as they came; none are the same as empty ones.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: a member does not fit.
    """
    body = b"{}" if raw is None else bytes(raw)
    check_structure(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        return _read_tidied(shape, body)
    except UNREADABLE as error:
        raise not_json(error) from None


def _read_tidied(shape: type[S], body: bytes) -> S:
    try:
        value = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise not_json(error) from None
    try:
        return msgspec.convert(tidy(value, PLANS[shape]), shape)
    except msgspec.ValidationError as error:
        raise misfit(error, "params") from None


def read_query(shape: type[S], params: dict[str, str]) -> S:
    """A query string in camelCase or snake_case; an empty value is an absent one.

    Raises:
        InvalidParams: a parameter does not fit.
    """
    given = {name: text for name, text in params.items() if text}
    try:
        return msgspec.convert(tidy(given, PLANS[shape]), shape, strict=False)
    except msgspec.ValidationError as error:
        raise misfit(error, "query") from None
