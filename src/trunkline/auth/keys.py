"""API keys: kept as digests, compared in constant time, sent as X-API-Key or as a bearer token."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256

from trunkline.auth.principal import ANONYMOUS, DEFAULT_TENANT, Principal
from trunkline.config import Secret
from trunkline.errors import Misuse, Unauthenticated

_SHORTEST = 8


class Keyring:
    """The keys that open this agent; an empty one lets everybody in as the anonymous principal."""

    def __init__(self, keys: Iterable[Secret]) -> None:
        self._known: list[tuple[bytes, Principal]] = []
        for key in keys:
            text = key.reveal()
            if len(text) < _SHORTEST:
                raise Misuse(f"a key must have at least {_SHORTEST} characters")
            if not text.isprintable() or text != text.strip():
                raise Misuse("a key must be printable, without space around it; no header can carry this one")
            digest = _digest(text.encode())
            # The name tells two keys' tasks apart and gives nothing of the key away.
            self._known.append((digest, Principal(DEFAULT_TENANT, f"key-{digest.hex()[:12]}")))

    def __bool__(self) -> bool:
        return bool(self._known)

    def principal(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Who sends these headers.

        Raises:
            Unauthenticated: keys are set, and none of them was sent.
        """
        if not self._known:
            return ANONYMOUS
        given = headers.get(b"x-api-key") or _bearer(headers.get(b"authorization", b""))
        if not given:
            raise Unauthenticated("this agent needs a key: send it as X-API-Key or as a bearer token")
        digest = _digest(given)
        found = None
        for known, principal in self._known:
            if hmac.compare_digest(known, digest):
                found = principal
        if found is None:
            raise Unauthenticated("the key is not known here")
        return found


def _digest(key: bytes) -> bytes:
    return sha256(b"trunkline-key:" + key).digest()


def _bearer(header: bytes) -> bytes:
    scheme, _, token = header.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""
