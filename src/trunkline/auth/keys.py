"""API keys: kept as digests, compared in constant time. Some are settings, others live in the store.

A stored key is `tl_ID_SECRET`: its id finds it, its digest proves it. A revoked one stays, so that
nobody opens the door by revoking the last.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from hashlib import sha256

from msgspec import Struct

from trunkline.auth.principal import ANONYMOUS, DEFAULT_TENANT, Principal, Scope, scopes_of
from trunkline.clock import now_ms as wall_clock
from trunkline.config import Secret
from trunkline.errors import Misuse, Unauthenticated

_SHORTEST = 8
_START = b"tl_"
# As many digits as any time of ours: even that would be seen by who measures long enough.
_LONG_AGO, _NEVER = 10**12, 10**15
# The id of a stored key, empty for others, and the digest of the key.
KeyProof = tuple[bytes, bytes]
_SCOPES = frozenset({Scope.READ, Scope.WRITE, Scope.METRICS})


class StoredKey(Struct, frozen=True, kw_only=True):
    """A key as the store has it. The digest before a rotation holds until `previous_until`."""

    id: str
    tenant: str
    owner: str
    scopes: tuple[str, ...]
    digest: str
    created_at: int
    expires_at: int = 0
    revoked_at: int = 0
    previous: str = ""
    previous_until: int = 0


class _KeyEntry(Struct, frozen=True):
    digest: bytes
    previous: bytes
    previous_until: int
    # When it ends; one that was revoked ended then.
    until: int
    principal: Principal


# What an unknown id is compared with, so that it takes as long as a known one; no text has this digest.
_NOBODY = _KeyEntry(bytes(32), bytes(32), _LONG_AGO, _LONG_AGO, ANONYMOUS)


class Keyring:
    """The keys that open this agent; who they belong to and for how long."""

    def __init__(
        self,
        keys: Iterable[Secret],
        now_ms: Callable[[], int] = wall_clock,
        scopes: frozenset[Scope] = _SCOPES,
    ) -> None:
        """Take the keys that are settings, and what they may do."""
        self._now = now_ms
        try:
            self._settings = [_fixed(key, scopes) for key in keys]
        except Misuse as error:
            raise Misuse(f"setting 'keys' (--key or TRUNKLINE_KEYS): {error}", hint=error.hint) from None
        self._fixed = self._settings
        self._stored: dict[bytes, _KeyEntry] = {}
        # Whether nothing opened by a key here; one that was revoked, or is named no longer, counts.
        self.is_empty = not self._fixed
        # Whether one of them was ever another tenant's: then what tenants see of each other matters.
        self._foreign = False

    @property
    def several(self) -> bool:
        """Whether a key is of another tenant than the default one."""
        return self._foreign or any([whose.tenant != DEFAULT_TENANT for _, whose in self._fixed])

    def has_tenant(self, tenant: str) -> bool:
        """Whether a stored key is of this tenant."""
        return any([one.principal.tenant == tenant for one in self._stored.values()])

    def take_named(self, keys: Iterable[tuple[Secret, Principal]]) -> None:
        """Know these keys of a file from now on beside those of the settings, and no others of it.

        Raises:
            Misuse: one is no key.
        """
        self._fixed = [*self._settings, *[(_fixed(key)[0], whose) for key, whose in keys]]
        # Invariant: where a key was asked for, one is asked for until the end, whoever empties the file.
        self.is_empty = self.is_empty and not self._fixed

    def take(self, key: StoredKey) -> None:
        """Know a stored key as it stands now."""
        self.is_empty = False
        self._foreign = self._foreign or key.tenant != DEFAULT_TENANT
        ends = [at for at in (key.expires_at, key.revoked_at) if at]
        self._stored[key.id.encode()] = _KeyEntry(
            bytes.fromhex(key.digest),
            bytes.fromhex(key.previous) or _NOBODY.digest,
            key.previous_until or _LONG_AGO,
            min(ends, default=_NEVER),
            # Scopes of a newer version mean nothing here.
            Principal(key.tenant, key.owner, scopes_of(key.scopes)),
        )

    def refuse(self, key_id: str) -> None:
        """Accept a stored key no longer: what it opens, and until when, cannot be read.

        A key is still asked for, and cards are shown as if it belonged to another tenant.
        """
        self.is_empty = False
        self._foreign = True
        self._stored.pop(key_id.encode(), None)

    def find(self, token: bytes) -> Principal:
        """Whose key this is.

        Raises:
            Unauthenticated: it is unknown, revoked or over; which of these is not told.
        """
        found = self.whose(proof_of(token))
        if found is None:
            raise Unauthenticated("the key is not known here")
        return found

    def lasting(self, token: bytes) -> Callable[[], bool]:
        """A question for later: whether this key still opens as much. It holds nothing of the key itself."""
        proof = proof_of(token)
        was = self.whose(proof)
        return lambda: was is not None and was.lasts_in(self.whose(proof))

    def whose(self, proof: KeyProof) -> Principal | None:
        """Whose key this is the proof of; None if that key opens nothing now."""
        key_id, digest = proof
        found = None
        for known, principal in self._fixed:
            if hmac.compare_digest(known, digest):
                found = principal
        if self._stored:
            found = self._among_stored(key_id, digest) or found
        return found

    def _among_stored(self, key_id: bytes, digest: bytes) -> Principal | None:
        entry = self._stored.get(key_id, _NOBODY)
        now = self._now()
        current = hmac.compare_digest(entry.digest, digest)
        before = hmac.compare_digest(entry.previous, digest)
        # No `and`, no `or`: each key is asked the same questions, whatever the answers.
        holds = (current | (before & (now < entry.previous_until))) & (now < entry.until)
        return entry.principal if holds else None


def proof_of(token: bytes) -> KeyProof:
    """What shows later that somebody had this key, and is not the key."""
    key_id = token[len(_START) :].partition(b"_")[0] if token.startswith(_START) else b""
    return key_id, digest_of(token)


def digest_of(token: bytes) -> bytes:
    """All that is kept of a key."""
    return sha256(b"trunkline-key:" + token).digest()


def check_key(key: Secret) -> None:
    """Let a key pass that somebody chose.

    Raises:
        Misuse: it is too short, or no header can carry it.
    """
    text = key.reveal()
    if len(text) < _SHORTEST:
        text = f"a key must have at least {_SHORTEST} characters; openssl rand -hex 16 makes one"
        raise Misuse(text, hint="openssl rand -hex 16")
    if not text.isprintable() or text != text.strip():
        raise Misuse("a key must be printable, without space around it; no header can carry this one")


def _fixed(key: Secret, scopes: frozenset[Scope] = _SCOPES) -> tuple[bytes, Principal]:
    check_key(key)
    digest = digest_of(key.reveal().encode())
    # The name tells two keys' tasks apart and gives nothing of the key away.
    return digest, Principal(DEFAULT_TENANT, f"key-{digest.hex()[:12]}", scopes)
