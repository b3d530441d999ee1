"""Which protocol version a request asks for."""

from __future__ import annotations

import re
from enum import Enum

from trunkline.errors import VersionNotSupported


class Version(Enum):
    """The versions spoken here."""

    V1 = "1.0"
    V03 = "0.3"


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
