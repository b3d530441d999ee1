"""The stored keys: made, listed, revoked and replaced here; the keyring follows their mirror."""

from __future__ import annotations

import logging
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.keys import Keyring, StoredKey, digest_of
from trunkline.auth.principal import CALLER, DEFAULT_TENANT, RESERVED, SCOPES, Scope, check_tenant
from trunkline.clock import random_bytes
from trunkline.errors import Conflict, Misuse, StoreError
from trunkline.store.documents import DocumentKind
from trunkline.store.mirror import Mirror
from trunkline.store.parts import Docs
from trunkline.store.records import AddedDoc
from trunkline.wire.spellings import timestamp

log = logging.getLogger("trunkline.auth")
KIND = "api-key"
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
    """The stored keys of one store; the keyring has them as the mirror of their documents does."""

    def __init__(self, docs: Docs, ring: Keyring, now_ms: Callable[[], int]) -> None:
        self._docs = docs
        self._now = now_ms
        # A key is never deleted; a damaged one opens nothing.
        self.mirror = Mirror(
            docs,
            API_KEYS,
            lambda _, key_id, key: key and ring.take(key),
            set_aside=lambda _, key_id, reason: ring.refuse(key_id),
        )

    def report_reserved(self, mounted: Collection[str]) -> None:
        """Say which tenants of known keys are called like a path of ours, or one that is mounted."""
        taken = {one.value.tenant for one in self.mirror.documents.values() if not one.value.revoked_at}
        for tenant in sorted(taken & {*RESERVED, *mounted}):
            # Made before the word was reserved: its keys still open everything but `/{tenant}/…`.
            log.warning(
                "tenant.reserved tenant=%s path=/%s fix=%a",
                tenant,
                tenant,
                "create its keys in another tenant",
            )

    async def list(self) -> list[KeyInfo]:
        """All keys, revoked ones too, oldest first."""
        await self.mirror.refresh()
        keys = [one.value for one in self.mirror.documents.values()]
        return [self._shown(key) for key in sorted(keys, key=lambda key: (key.created_at, key.id))]

    async def create(
        self,
        owner: str,
        *,
        tenant: str = DEFAULT_TENANT,
        scopes: Sequence[str] = (),
        lasts_ms: int = 0,
        beside: AddedDoc | None = None,
    ) -> IssuedKey:
        """Make a key; 0 lasts for ever. What goes `beside` is written with it, or neither is.

        Raises:
            Misuse: the owner, the tenant or a scope does not fit.
        """
        _check(owner, tenant, scopes)
        first = not await has_keys(self._docs)
        key_id = b32encode(random_bytes(8))[:12].decode().lower()
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
        await self._put(key, expected_rev=0, beside=beside)
        return IssuedKey(self._shown(key), token, first)

    async def revoke(self, key_id: str, *, beside: AddedDoc | None = None) -> KeyInfo:
        """End a key at once and for good; one that has ended stays as it is. `beside` is as in `create`.

        Raises:
            Misuse: there is no such key.
        """
        return self._shown(await self._change(key_id, self._revoked, beside))

    async def disown(self, tenant: str, key_ids: Sequence[str]) -> None:
        """End these keys of a tenant that is gone, and have them be of none: its id may be given again."""

        def disowned(key: StoredKey) -> StoredKey:
            return replace(self._revoked(key), tenant=f"{tenant} (deleted)")

        for key_id in key_ids:
            await self._change(key_id, disowned)

    async def rotate(self, key_id: str, grace_ms: int, *, beside: AddedDoc | None = None) -> IssuedKey:
        """Give a key a new secret; the old one holds for a while longer. `beside` is as in `create`.

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

        return IssuedKey(self._shown(await self._change(key_id, rotated, beside)), token)

    def _revoked(self, key: StoredKey) -> StoredKey:
        return key if key.revoked_at else replace(key, revoked_at=self._now())

    async def _change(
        self, key_id: str, change: Callable[[StoredKey], StoredKey], beside: AddedDoc | None = None
    ) -> StoredKey:
        for _ in range(_TRIES):
            doc = await self._docs.get(DEFAULT_TENANT, KIND, key_id)
            if doc is None:
                raise Misuse(f"there is no key {key_id!r}")
            changed = change(API_KEYS.read(doc.id, doc.body))
            try:
                await self._put(changed, expected_rev=doc.rev, beside=beside)
            except Conflict:
                continue
            return changed
        raise StoreError(f"key {key_id} changes faster than it can be written")

    async def _put(self, key: StoredKey, *, expected_rev: int, beside: AddedDoc | None = None) -> None:
        body = msgspec.json.encode(key)
        await self.mirror.put(DEFAULT_TENANT, key.id, body, expected_rev=expected_rev, beside=beside)

    def _shown(self, key: StoredKey) -> KeyInfo:
        over = key.expires_at and key.expires_at <= self._now()
        state = "revoked" if key.revoked_at else "expired" if over else "active"
        expires = timestamp(key.expires_at) if key.expires_at else ""
        return KeyInfo(key.id, key.owner, key.tenant, key.scopes, state, timestamp(key.created_at), expires)


async def has_keys(docs: Docs) -> bool:
    """Whether any key was ever stored, so that callers need one."""
    return bool(await docs.list(DEFAULT_TENANT, KIND, limit=1))


def _decode(_key_id: str, body: bytes) -> StoredKey:
    key = msgspec.json.decode(body, type=StoredKey)
    bytes.fromhex(key.digest + key.previous)
    return key


def _revoked_key(key_id: str, now: int) -> bytes:
    # Invariant: where a key was asked for, one is asked for, also after the last one was removed.
    return msgspec.json.encode(
        StoredKey(
            id=key_id,
            tenant=DEFAULT_TENANT,
            owner="(damaged)",
            scopes=(),
            digest=bytes(32).hex(),
            created_at=now,
            revoked_at=now,
        )
    )


API_KEYS: DocumentKind[StoredKey] = DocumentKind(KIND, _decode, _revoked_key)


def _check(owner: str, tenant: str, scopes: Sequence[str]) -> None:
    if not owner.strip() or not owner.isprintable() or len(owner) > _LONGEST_OWNER:
        raise Misuse(f"an owner is a printable name of 1 to {_LONGEST_OWNER} characters")
    check_tenant(tenant)
    for scope in scopes:
        if scope not in SCOPES:
            raise Misuse(f"there is no scope {scope!r}: choose {', '.join(SCOPES)}")


def _token(key_id: str) -> str:
    return f"tl_{key_id}_{urlsafe_b64encode(random_bytes(32)).rstrip(b'=').decode()}"
