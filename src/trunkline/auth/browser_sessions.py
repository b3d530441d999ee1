"""Sessions of browsers: who showed a key at the sign-in page is known by a cookie afterwards.

What a session allows is sealed in its cookie, and is what its key allows now: a key that is revoked or over
takes its sessions with it. The store knows only of sessions that were ended before their time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import msgspec
from msgspec import Struct

from trunkline.auth.keys import Keyring, proof_of
from trunkline.auth.principal import Principal
from trunkline.auth.vault import Vault
from trunkline.clock import random_bits
from trunkline.errors import Conflict, StoreError, Unauthenticated, UnsupportedOperation
from trunkline.store.mirror import Mirror
from trunkline.store.parts import Docs
from trunkline.store.records import Doc

COOKIE = b"trunkline_session"
KIND = "ended-session"
LASTS_S = 12 * 3600
_ABOUT = "session of a browser"
_FORGOTTEN_AT_ONCE = 100


class _SealedSession(Struct, frozen=True, array_like=True):
    id: str
    key_id: bytes
    digest: bytes
    until: int


class BrowserSessions:
    """Begins, finds and ends sessions; without a key for the vault there are none."""

    def __init__(
        self, docs: Docs, keys: Keyring, find_key: Callable[[], bytes | None], now_ms: Callable[[], int]
    ) -> None:
        """Take what gives the key of the vault; it is asked for when somebody first signs in."""
        self._docs = docs
        self._keys = keys
        self._find_key = find_key
        self._now = now_ms
        self.mirror = Mirror(docs, KIND, _read_until)

    @cached_property
    def _vault(self) -> Vault | None:
        key = self._find_key()
        return None if key is None else Vault(key)

    def begin(self, token: bytes) -> str:
        """The value of the cookie for whoever has this key.

        Raises:
            Unauthenticated: the key is not known.
            UnsupportedOperation: nothing can be sealed here.
        """
        self._keys.find(token)
        if self._vault is None:
            raise UnsupportedOperation("signing in needs the setting secret_key on this store")
        session = _SealedSession(f"{random_bits(96):024x}", *proof_of(token), self._now() + LASTS_S * 1000)
        return self._vault.seal_token(msgspec.json.encode(session).decode(), _ABOUT)

    def find(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Who sends a request by the cookie; None if it has none of ours.

        Raises:
            Unauthenticated: the session is over.
        """
        value = session_cookie(headers)
        if not value:
            return None
        found = self._whose(self._read(value))
        if found is None:
            raise Unauthenticated("the session is over; sign in again")
        return found

    def lasting(self, headers: Mapping[bytes, bytes]) -> Callable[[], bool]:
        """A question for later: whether the session of these headers goes on, and its key opens as much."""
        session = self._read(session_cookie(headers))
        was = self._whose(session)
        return lambda: was is not None and was.lasts_in(self._whose(session))

    async def end(self, headers: Mapping[bytes, bytes]) -> None:
        """End the session of these headers everywhere, before its time; without one there is nothing to do.

        Raises:
            StoreError: it was not written.
        """
        session = self._read(session_cookie(headers))
        whose = self._whose(session)
        if session is None or whose is None:
            return
        now = self._now()
        over = [key for key, ended in self.mirror.documents.items() if ended.value <= now]
        for tenant, doc_id in over[:_FORGOTTEN_AT_ONCE]:
            await self._docs.delete(tenant, KIND, doc_id)
        body = msgspec.json.encode(session.until)
        try:
            await self.mirror.put(whose.tenant, session.id, body, expected_rev=0)
        except Conflict:
            # Somebody else has ended it in the same moment.
            await self.mirror.refresh()

    def _read(self, value: str) -> _SealedSession | None:
        text = None if self._vault is None or not value else self._vault.open_token(value, _ABOUT)
        try:
            return None if text is None else msgspec.json.decode(text, type=_SealedSession)
        except msgspec.MsgspecError:
            return None

    def _whose(self, session: _SealedSession | None) -> Principal | None:
        if session is None or session.until <= self._now():
            return None
        whose = self._keys.whose((session.key_id, session.digest))
        ended = whose is not None and (whose.tenant, session.id) in self.mirror.documents
        return None if ended else whose


def cookie_name(headers: Mapping[bytes, bytes]) -> bytes:
    """The name of the cookie where a browser has this server: cookies know hosts, and not their ports."""
    port = headers.get(b"host", b"").rpartition(b":")[2]
    return COOKIE + b"_" + port if port.isdigit() else COOKIE


def session_cookie(headers: Mapping[bytes, bytes]) -> str:
    """The cookie of a session in the headers of a request; empty if there is none."""
    wanted = cookie_name(headers)
    for cookie in headers.get(b"cookie", b"").split(b";"):
        name, _, value = cookie.strip().partition(b"=")
        if name == wanted:
            return value.decode("latin-1")
    return ""


def _read_until(doc: Doc) -> int:
    try:
        return msgspec.json.decode(doc.body, type=int)
    except msgspec.MsgspecError as error:
        raise StoreError(f"document {doc.id}: {error}") from error
