"""The service parameters of a request: which protocol version and which extensions its headers ask for."""

from __future__ import annotations

import re
from enum import Enum

from trunkline.errors import InvalidParams, VersionNotSupported


class Version(Enum):
    """The protocol versions that this package speaks."""

    V1 = "1.0"
    V03 = "0.3"


# Who declares it answers the same message twice with the same task: a lost send may be repeated.
IDEMPOTENT_SEND = "https://trunkline.dev/a2a/ext/idempotent-send/v1"
COUNT_LIMIT = 32
LENGTH_LIMIT = 256
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
