"""The service parameters of a request: protocol version, extensions, and the work that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from trunkline.errors import InvalidParams, VersionNotSupported
from trunkline.wire.spellings import ID_LIMIT
from trunkline.wire.types import Correlation


class Version(Enum):
    """The protocol versions that this package speaks."""

    V1 = "1.0"
    V03 = "0.3"


# Who declares it answers the same message twice with the same task: a lost send may be repeated.
IDEMPOTENT_SEND = "https://trunkline.dev/a2a/ext/idempotent-send/v1"
COUNT_LIMIT = 32
LENGTH_LIMIT = 256
CORRELATION = (b"x-correlation-id", b"x-parent-id")
_V1 = re.compile(r"1(\.0(\.[0-9]+)?)?\Z")
_V03 = re.compile(r"0\.[23](\.[0-9A-Za-z.+-]*)?\Z")


def negotiate(header: str | None, query: str | None) -> Version | None:
    """The version asked for by the `A2A-Version` header, else by the query parameter; None if by neither.

    Raises:
        VersionNotSupported: it is one we do not speak.
    """
    asked = (header or "").strip() or (query or "").strip()
    if not asked:
        return None
    if _V1.match(asked):
        return Version.V1
    if _V03.match(asked):
        return Version.V03
    raise VersionNotSupported(
        "this A2A-Version is not spoken here; ask for 1.0 or 0.3",
        requestedVersion=asked[:32] if asked.isprintable() else "",
        supportedVersions="1.0, 0.3",
    )


def read_correlation(headers: Mapping[bytes, bytes]) -> Correlation | None:
    """Return what `X-Correlation-Id` and `X-Parent-Id` say, or None if neither holds a usable ID.

    An ID that is too long or not printable is left out, because such a header must not fail the request.
    """
    correlation_id, parent_id = (_usable_id(headers.get(name, b"")) for name in CORRELATION)
    return Correlation(correlation_id, parent_id) if correlation_id or parent_id else None


def _usable_id(value: bytes) -> str:
    text = value.decode("latin-1")
    return text if len(text) <= ID_LIMIT and text.isprintable() else ""


def read_extensions(given: dict[str, str]) -> tuple[str, ...]:
    """The extensions that these headers ask for: their URIs, each once, in the order they are named.

    Raises:
        InvalidParams: there are too many, or one is too long; the field is the header.
    """
    found: dict[str, None] = {}
    for header, value in given.items():
        for piece in value.split(","):
            uri = piece.strip()
            if len(uri) > LENGTH_LIMIT:
                raise InvalidParams(
                    f"{header}: a URI may have {LENGTH_LIMIT} characters at the most", field=header
                )
            if uri:
                found[uri] = None
            if len(found) > COUNT_LIMIT:
                raise InvalidParams(f"{header} may name {COUNT_LIMIT} extensions at the most", field=header)
    return tuple(found)
