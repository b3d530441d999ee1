"""The server's own signing keys: Ed25519, kept in one document of the store, their private halves sealed.

One document, so that a rotation is one compare-and-set and replicas that start together end with one key.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.auth.vault import Vault
from trunkline.clock import Ids
from trunkline.errors import Conflict, Misuse, StoreError
from trunkline.net import webhook_signature
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.mirror import Mirror
from trunkline.store.parts import Docs

log = logging.getLogger("trunkline.auth")
KIND = "signing-key"
_ID = "ring"
# How long the key before still signs beside the new one.
GRACE_MS = 24 * 3600 * 1000
_TRIES = 10


class SigningKey(Struct, frozen=True):
    """One key as it is kept; `retires_at` is 0 while it is the newest."""

    kid: str
    public: str
    sealed: str
    created_at: int
    retires_at: int = 0


class _Ring(Struct, frozen=True):
    keys: tuple[SigningKey, ...]


SIGNING_KEYS: DocumentKind[_Ring] = DocumentKind(KIND, json_decoder(_Ring))


class _SigningJwk(Struct, frozen=True):
    kid: str
    x: str
    kty: str = "OKP"
    crv: str = "Ed25519"
    use: str = "sig"
    alg: str = "EdDSA"


class Signer:
    """Signs webhooks with the newest key, and with the one before it for a day."""

    def __init__(self, docs: Docs, vault: Vault, now_ms: Callable[[], int], ids: Ids) -> None:
        self._docs = docs
        self._vault = vault
        self._now = now_ms
        self._ids = ids
        self.mirror = Mirror(docs, SIGNING_KEYS, self._take)
        self._ring = _Ring(())
        self._keys: list[tuple[SigningKey, Ed25519PrivateKey]] = []

    async def start(self) -> None:
        """Load the keys, or make the first one. Damaged keys stay as they are, and nothing is signed.

        Raises:
            Misuse: they were sealed under another secret.
            StoreError: the store does not answer.
        """
        for _ in range(_TRIES):
            await self.mirror.refresh()
            if self.mirror.documents or self.mirror.damaged:
                return
            try:
                # Whoever writes first decides for all; the others read it in the next round.
                await self._put(_Ring((self._make(),)), expected_rev=0)
            except Conflict:
                continue
        raise StoreError("the signing keys change faster than they can be read")

    def sign(self, webhook_id: str, timestamp_s: int, body: bytes) -> str:
        """Return the header `webhook-signature`: one signature, two in the day after a rotation.

        Raises:
            StoreError: the keys are damaged or gone, so that nothing is posted until there is one.
        """
        if not self._keys:
            raise StoreError("the signing keys are damaged or gone; run trunkline keys rotate --signing")
        now = self._now()
        return " ".join(
            webhook_signature.sign(private, webhook_id, timestamp_s, body)
            for key, private in self._keys
            if _in_use(key, now)
        )

    def jwks(self) -> bytes:
        """The public halves, for `/.well-known/jwks.json`."""
        now = self._now()
        keys = [_SigningJwk(key.kid, key.public) for key in self._ring.keys if _in_use(key, now)]
        return msgspec.json.encode({"keys": keys})

    async def rotate(self) -> str:
        """Make a new key and retire the one before in a day; gives the new one's id.

        Raises:
            StoreError: it could not be written.
        """
        for _ in range(_TRIES):
            now = self._now()
            doc = await self._docs.get(DEFAULT_TENANT, KIND, _ID)
            ring = None if doc is None else SIGNING_KEYS.read_or_set_aside(DEFAULT_TENANT, doc)
            known = () if ring is None else ring.keys
            made = self._make()
            kept = tuple(_retired(key, now + GRACE_MS) for key in known if _in_use(key, now))
            try:
                await self._put(_Ring((made, *kept)), expected_rev=0 if doc is None else doc.rev)
            except Conflict:
                continue
            return made.kid
        raise StoreError("the signing keys change faster than they can be replaced")

    def _make(self) -> SigningKey:
        private = Ed25519PrivateKey.generate()
        kid = self._ids.new()
        sealed = self._vault.seal(webhook_signature.secret_text(private), _about(kid))
        public = urlsafe_b64encode(private.public_key().public_bytes_raw()).rstrip(b"=").decode()
        return SigningKey(kid, public, sealed, self._now())

    async def _put(self, ring: _Ring, *, expected_rev: int) -> None:
        await self.mirror.put(DEFAULT_TENANT, _ID, msgspec.json.encode(ring), expected_rev=expected_rev)

    def _take(self, _tenant: str, _id: str, ring: _Ring | None) -> None:
        keys: list[tuple[SigningKey, Ed25519PrivateKey]] = []
        ring = ring or _Ring(())
        for place, key in enumerate(ring.keys):
            try:
                private = webhook_signature.signing_key(self._vault.open(key.sealed, _about(key.kid)))
            except Misuse as error:
                if place == 0:
                    raise Misuse(f"{error}; or make a new one: trunkline keys rotate --signing") from None
                # One that the lost secret had sealed: it signs no more, the new one does.
                log.warning("signing.lost kid=%s", key.kid)
                continue
            assert isinstance(private, Ed25519PrivateKey)
            keys.append((key, private))
        self._ring, self._keys = ring, keys


def _in_use(key: SigningKey, now: int) -> bool:
    return not key.retires_at or key.retires_at > now


def _retired(key: SigningKey, at: int) -> SigningKey:
    return key if key.retires_at else msgspec.structs.replace(key, retires_at=at)


def _about(kid: str) -> str:
    return f"signing key {kid}"
