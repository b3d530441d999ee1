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
from trunkline.errors import Conflict, Unauthenticated, UnsupportedOperation
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.mirror import Mirror
from trunkline.store.parts import Docs

COOKIE = b"trunkline_session"
KIND = "ended-session"
LASTS_S = 12 * 3600
_ABOUT = "session of a browser"
# Between the key in the id of a session and what is the session's own.
_OF_KEY = "."
_FORGOTTEN_AT_ONCE = 100
# As many sessions of one key are ended one by one; the next ends all that were begun with it.
ENDED_OF_KEY = 100
# Without its document an ended session would go on.
ENDED_SESSIONS: DocumentKind[int] = DocumentKind(
    KIND, json_decoder(int), lambda _, now: msgspec.json.encode(now + LASTS_S * 1000)
)


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
        self.mirror = Mirror(docs, ENDED_SESSIONS)

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
        key_id, digest = proof_of(token)
        session_id = f"{digest[:8].hex()}{_OF_KEY}{random_bits(96):024x}"
        session = _SealedSession(session_id, key_id, digest, self._now() + LASTS_S * 1000)
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
        while session is not None and (whose := self._whose(session)) is not None:
            try:
                await self._end(whose.tenant, session)
            except Conflict:
                # Somebody else ends one in the same moment.
                await self.mirror.refresh()

    async def _end(self, tenant: str, session: _SealedSession) -> None:
        now, documents = self._now(), self.mirror.documents
        useless = [key for key, ended in documents.items() if ended.value <= now][:_FORGOTTEN_AT_ONCE]
        doc_id, until = session.id, session.until
        of_key = doc_id.partition(_OF_KEY)[0]
        own = [key for key in documents if key[0] == tenant and key[1].startswith(of_key + _OF_KEY)]
        if len(own) >= ENDED_OF_KEY:
            doc_id, until = of_key, now + LASTS_S * 1000
            useless += own
        rev = self.mirror.rev(tenant, doc_id)
        await self.mirror.put(tenant, doc_id, msgspec.json.encode(until), expected_rev=rev)
        for whose, over in useless:
            await self._docs.delete(whose, KIND, over)
        if useless:
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
        if whose is None:
            return None
        of_key = session.id.partition(_OF_KEY)[0]
        keys = [(whose.tenant, one) for one in (session.id, of_key)]
        if any([key in self.mirror.damaged for key in keys]):
            # Until when it was ended cannot be read.
            return None
        found = [self.mirror.documents.get(key) for key in keys]
        return None if any([one is not None and session.until <= one.value for one in found]) else whose


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
