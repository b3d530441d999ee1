"""The book of stored keys: made, listed, revoked and replaced here; the keyring follows it."""

from __future__ import annotations

import asyncio
import logging
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.keys import Keyring, StoredKey, digest_of
from trunkline.auth.principal import CALLER, DEFAULT_TENANT, Scope, check_tenant
from trunkline.clock import random_bits
from trunkline.errors import Conflict, Misuse, StoreError
from trunkline.store.base import Docs
from trunkline.store.records import Doc
from trunkline.wire.spellings import timestamp

log = logging.getLogger("trunkline.auth")
KIND = "api-key"
_PAGE = 1000
REFRESH_S = 2.0
_TRIES = 10
_LONGEST_OWNER = 128


class KeyInfo(Struct, frozen=True):
    """A key as operators see it: nothing of the key itself."""

    id: str
    owner: str
    tenant: str
    scopes: tuple[str, ...]
    state: str
    created: str
    expires: str


class IssuedKey(Struct, frozen=True):
    """A new key, told once; `first` if none was known in the store before."""

    key: KeyInfo
    token: str
    first: bool = False


class KeyStore:
    """The stored keys of one store."""

    def __init__(self, docs: Docs, ring: Keyring, now_ms: Callable[[], int]) -> None:
        self._docs = docs
        self._ring = ring
        self._now = now_ms
        # The revision of each key as the ring has it.
        self._known: dict[str, int] = {}

    async def refresh(self) -> None:
        """Have the ring know every key as it stands in the store.

        Raises:
            StoreError: the store does not answer, or one of them cannot be read; the others are known then.
        """
        damaged: StoreError | None = None
        for doc in await _documents(self._docs):
            try:
                self._take(_read(doc), doc.rev)
            except StoreError as error:
                # Another one's revocation must not wait for it.
                damaged = error
        if damaged is not None:
            raise damaged

    async def follow(self) -> None:
        """Take up what other processes change, for as long as it runs."""
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh()
            except StoreError as error:
                # What is known stays good; a key revoked elsewhere holds until the store is back.
                log.warning("keys.stale error=%s", error)

    async def list(self) -> list[KeyInfo]:
        """All keys, revoked ones too, oldest first."""
        docs = await _documents(self._docs)
        keys = [_read(doc) for doc in docs]
        return [self._shown(key) for key in sorted(keys, key=lambda key: (key.created_at, key.id))]

    async def create(
        self,
        owner: str,
        *,
        tenant: str = DEFAULT_TENANT,
        scopes: Sequence[str] = (),
        lasts_ms: int = 0,
    ) -> IssuedKey:
        """Make a key; 0 lasts for ever.

        Raises:
            Misuse: the owner, the tenant or a scope does not fit.
        """
        _check(owner, tenant, scopes)
        first = not await has_keys(self._docs)
        key_id = b32encode(_random(8))[:12].decode().lower()
        token = _token(key_id)
        now = self._now()
        key = StoredKey(
            id=key_id,
            tenant=tenant,
            owner=owner,
            scopes=tuple(dict.fromkeys(scopes)) or tuple(one.value for one in Scope if one in CALLER),
            digest=digest_of(token.encode()).hex(),
            created_at=now,
            expires_at=now + lasts_ms if lasts_ms else 0,
        )
        await self._put(key, expected_rev=0)
        return IssuedKey(self._shown(key), token, first)

    async def revoke(self, key_id: str) -> KeyInfo:
        """End a key at once and for good; one that has ended stays as it is.

        Raises:
            Misuse: there is no such key.
        """
        return self._shown(await self._change(key_id, self._revoked))

    async def rotate(self, key_id: str, grace_ms: int) -> IssuedKey:
        """Give a key a new secret; the old one holds for a while longer.

        Raises:
            Misuse: there is no such key, or it has been revoked.
        """
        token = _token(key_id)
        digest = digest_of(token.encode()).hex()
        until = self._now() + grace_ms

        def rotated(key: StoredKey) -> StoredKey:
            if key.revoked_at:
                raise Misuse(f"key {key_id} was revoked; create another one")
            return replace(key, digest=digest, previous=key.digest, previous_until=until)

        return IssuedKey(self._shown(await self._change(key_id, rotated)), token)

    def _revoked(self, key: StoredKey) -> StoredKey:
        return key if key.revoked_at else replace(key, revoked_at=self._now())

    async def _change(self, key_id: str, change: Callable[[StoredKey], StoredKey]) -> StoredKey:
        for _ in range(_TRIES):
            doc = await self._docs.get(DEFAULT_TENANT, KIND, key_id)
            if doc is None:
                raise Misuse(f"there is no key {key_id!r}; trunkline keys list shows them")
            changed = change(_read(doc))
            try:
                await self._put(changed, expected_rev=doc.rev)
            except Conflict:
                continue
            return changed
        raise StoreError(f"key {key_id} changes faster than it can be written")

    async def _put(self, key: StoredKey, *, expected_rev: int) -> None:
        body = msgspec.json.encode(key)
        rev = await self._docs.put(DEFAULT_TENANT, KIND, key.id, body, expected_rev=expected_rev)
        self._take(key, rev)

    def _take(self, key: StoredKey, rev: int) -> None:
        # What was written first may be heard of last.
        if rev > self._known.get(key.id, 0):
            self._ring.take(key)
            self._known[key.id] = rev

    def _shown(self, key: StoredKey) -> KeyInfo:
        over = key.expires_at and key.expires_at <= self._now()
        state = "revoked" if key.revoked_at else "expired" if over else "active"
        expires = timestamp(key.expires_at) if key.expires_at else ""
        return KeyInfo(key.id, key.owner, key.tenant, key.scopes, state, timestamp(key.created_at), expires)


async def has_keys(docs: Docs) -> bool:
    """Whether any key was ever stored, so that callers need one."""
    return bool(await docs.list(DEFAULT_TENANT, KIND, limit=1))


async def _documents(docs: Docs) -> list[Doc]:
    found: list[Doc] = []
    while True:
        page = await docs.list(DEFAULT_TENANT, KIND, found[-1].id if found else "", limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


def _read(doc: Doc) -> StoredKey:
    try:
        key = msgspec.json.decode(doc.body, type=StoredKey)
        bytes.fromhex(key.digest + key.previous)
        return key
    except (msgspec.MsgspecError, ValueError) as error:
        # Not passed by: a door whose only key cannot be read must not stand open.
        raise StoreError(f"key {doc.id} in the store cannot be read: {error}") from None


def _check(owner: str, tenant: str, scopes: Sequence[str]) -> None:
    if not owner.strip() or not owner.isprintable() or len(owner) > _LONGEST_OWNER:
        raise Misuse(f"an owner is a printable name of 1 to {_LONGEST_OWNER} characters")
    check_tenant(tenant)
    known = [one.value for one in Scope]
    for scope in scopes:
        if scope not in known:
            raise Misuse(f"there is no scope {scope!r}: choose {', '.join(known)}")


def _token(key_id: str) -> str:
    return f"tl_{key_id}_{urlsafe_b64encode(_random(32)).rstrip(b'=').decode()}"


def _random(count: int) -> bytes:
    return random_bits(count * 8).to_bytes(count, "big")
