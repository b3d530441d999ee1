"""`/mcp` as a protected resource of OAuth (RFC 9728): whose tokens open it, and for what. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from trunkline.auth.principal import Scope
from trunkline.config import Settings

METADATA = "/.well-known/oauth-protected-resource"
_PORTS = {"http": "80", "https": "443"}


def metadata_of(settings: Settings, origin: str) -> bytes:
    """The metadata, for somebody who has come by this origin."""
    return msgspec.json.encode(
        {
            "resource": f"{_base(settings, origin)}/mcp",
            "authorization_servers": [one.issuer for one in settings.issuers],
            "scopes_supported": [Scope.READ.value, Scope.WRITE.value],
            "bearer_methods_supported": ["header"],
        }
    )


def challenge(settings: Settings, origin: str) -> bytes:
    """The challenge to a caller without a token: where the metadata are."""
    base = _base(settings, origin)
    below = urlsplit(base).path
    root = base.removesuffix(below) if below else base
    return f'Bearer resource_metadata="{root}{METADATA}{below}/mcp"'.encode()


def _base(settings: Settings, origin: str) -> str:
    if settings.public_url:
        return settings.public_url.rstrip("/")
    scheme, _, rest = origin.partition("://")
    return origin.removesuffix(f":{_PORTS[scheme]}") if rest.endswith(f":{_PORTS.get(scheme)}") else origin
