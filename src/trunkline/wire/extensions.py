"""Which protocol extensions a request asks for by its headers, and the one that every server here speaks."""

from __future__ import annotations

from trunkline.errors import InvalidParams

# Who declares it answers the same message twice with the same task: a lost send may be repeated.
IDEMPOTENT_SEND = "https://trunkline.dev/a2a/ext/idempotent-send/v1"
COUNT_LIMIT = 32
LENGTH_LIMIT = 256


def read_extensions(given: dict[str, str]) -> tuple[str, ...]:
    """The URIs in the values of these headers, each once, in the order they are named.

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
