"""How other agents want to be shown who calls: the security of cards in every layout."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

_CAPITAL = re.compile(r"([A-Z])")


class PeerScheme(Struct, frozen=True):
    """How an agent wants to be shown who calls. `kind`: apiKey, http, oauth2, openIdConnect or mutualTLS."""

    kind: str
    # Of an apiKey: where it goes (header, query, cookie) and under which name.
    place: str = ""
    name: str = ""
    # Of http: Bearer, Basic …
    scheme: str = ""
    # Of oauth2: the flow of client credentials; of openIdConnect: the address of its discovery.
    token_url: str = ""
    scopes: tuple[str, ...] = ()
    discovery_url: str = ""


_WRAPPERS = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}
_KINDS = {kind.lower(): kind for kind in _WRAPPERS.values()}
_OLD = {
    "bearer": PeerScheme("http", scheme="Bearer"),
    "basic": PeerScheme("http", scheme="Basic"),
    "apikey": PeerScheme("apiKey", place="header", name="X-API-Key"),
    "oauth2": PeerScheme("oauth2"),
}

Requirements = tuple[tuple[str, ...], ...]


def read_security(
    document: dict[str, Any], odd: Callable[[str], None]
) -> tuple[dict[str, PeerScheme], Requirements]:
    """The schemes of a card by name, and which of them go together; `odd` is told what is unusual."""
    schemes: dict[str, PeerScheme] = {}
    for name, given in members(take(document, "securitySchemes")).items():
        scheme = _scheme(members(given))
        if scheme is None:
            odd(f"securitySchemes: {name!a} is of no known kind")
        else:
            schemes[name] = scheme
    requirements = tuple(
        tuple(members(take(one, "schemes"))) if "schemes" in one else tuple(one)
        for one in items(take(document, "securityRequirements")) or items(take(document, "security"))
    )
    if schemes or requirements:
        return schemes, requirements
    for word in texts(take(members(take(document, "authentication")), "schemes")):
        known = _OLD.get("".join(letter for letter in word.lower() if letter.isalnum()))
        odd(f"authentication.schemes, as before 0.2.5, asks for {word!a}")
        if known is not None:
            schemes[word] = known
    return schemes, tuple((name,) for name in schemes)


def _scheme(given: dict[str, Any]) -> PeerScheme | None:
    """A scheme in the wrapper of 1.0 or with the `type` of 0.3."""
    for wrapper, kind in _WRAPPERS.items():
        inner = take(given, wrapper)
        if isinstance(inner, dict):
            return _of_kind(kind, cast("dict[str, Any]", inner))
    kind = _KINDS.get(text(take(given, "type")).lower(), "")
    return _of_kind(kind, given) if kind else None


def _of_kind(kind: str, given: dict[str, Any]) -> PeerScheme:
    if kind == "apiKey":
        place = text(take(given, "location")) or text(take(given, "in")) or "header"
        return PeerScheme(kind, place=place, name=text(take(given, "name")))
    if kind == "http":
        return PeerScheme(kind, scheme=text(take(given, "scheme")))
    if kind == "oauth2":
        flow = members(take(members(take(given, "flows")), "clientCredentials"))
        found = take(flow, "scopes")
        scopes = tuple(cast("dict[str, Any]", found)) if isinstance(found, dict) else texts(found)
        metadata = text(take(given, "oauth2MetadataUrl"))
        return PeerScheme(kind, token_url=text(take(flow, "tokenUrl")), scopes=scopes, discovery_url=metadata)
    if kind == "openIdConnect":
        return PeerScheme(kind, discovery_url=text(take(given, "openIdConnectUrl")))
    return PeerScheme(kind)


def take(given: dict[str, Any], name: str) -> object:
    """A member by its name in JSON, or as Python and the proto spell it."""
    found = given.get(name)
    return given.get(_CAPITAL.sub(r"_\1", name).lower()) if found is None else found


def text(value: object) -> str:
    """A text; nothing if it is none."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> tuple[str, ...]:
    """The texts in a list; a lone one counts as a list of it."""
    if isinstance(value, str):
        return (value,) if value else ()
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(one for one in listed if isinstance(one, str))


def members(value: object) -> dict[str, Any]:
    """An object; an empty one if it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none if it is no list."""
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", one) for one in listed if isinstance(one, dict)]
