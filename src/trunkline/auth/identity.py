"""Who sends a request: by key, by token, or nobody in particular while nothing is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Protocol

from trunkline.auth.browser_sessions import BrowserSessions
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import ANONYMOUS, DEFAULT_TENANT, Principal, Scope
from trunkline.errors import Unauthenticated
from trunkline.wire.card import ApiKeyScheme, BearerScheme, Scheme

# What somebody hears whose key opens nothing, for whatever reason.
UNKNOWN = "the key is not known here"
# How long the streams of a tenant that is let in no longer go on.
LAST_S = 0.6
KEY_SCHEMES: dict[str, Scheme] = {
    "apiKey": ApiKeyScheme("X-API-Key", "A key of this agent."),
    "bearer": BearerScheme(description="The same key as a bearer token."),
}


class Verifier(Protocol):
    """Knows the tokens of issuers."""

    def known(self, token: bytes) -> Principal | None:
        """Who sends a token that was verified before."""
        ...

    async def ask(self, token: bytes) -> Principal:
        """Who sends a token.

        Raises:
            Unauthenticated: it is not accepted.
            Unavailable: that cannot be found out now.
        """
        ...

    def schemes(self) -> dict[str, Scheme]:
        """What the card says of it."""
        ...


class ClosedTenants:
    """The tenants that are let in no longer. What they have open lasts a moment, to hear of its end."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def close(self, tenant: str) -> None:
        """Let a tenant in no longer."""
        self._since.setdefault(tenant, self._clock())

    def open(self, tenant: str) -> None:
        """Let a tenant in again."""
        self._since.pop(tenant, None)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._since

    def has_ended(self, tenant: str) -> bool:
        """Whether what a tenant has open is to end now."""
        since = self._since.get(tenant)
        return since is not None and self._clock() - since >= LAST_S


class Identity:
    """Keys and tokens behind one question."""

    def __init__(
        self,
        keys: Keyring,
        tokens: Verifier | None = None,
        anyone: Principal = ANONYMOUS,
        closed: ClosedTenants | None = None,
    ) -> None:
        """Take what is accepted, who everybody is while nothing is asked for, and who is let in no longer."""
        self._keys = keys
        self._tokens = tokens
        self._anyone = anyone
        self._closed = closed or ClosedTenants()
        # Of those who signed in with a key at the page for that; a host with a store has them.
        self.sessions: BrowserSessions | None = None

    @property
    def enforced(self) -> bool:
        """Whether callers must say who they are."""
        return not self._keys.is_empty or self._tokens is not None

    def known(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Who sends these headers, if that can be said at once; None means: `ask`.

        Raises:
            Unauthenticated: nobody that is let in.
        """
        found = self._found(headers)
        if found is not None and self._is_closed(found):
            raise Unauthenticated(UNKNOWN)
        return found

    def _is_closed(self, principal: Principal) -> bool:
        # The default tenant is closed only while its document is damaged, which an operator of it repairs.
        is_operator = principal.tenant == DEFAULT_TENANT and Scope.OPERATOR in principal.scopes
        return principal.tenant in self._closed and not is_operator

    def _found(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        if self._keys.is_empty and self._tokens is None:
            return self._anyone
        key = headers.get(b"x-api-key")
        if key:
            # Where there is a key, it alone counts: two answers to one question would be one too many.
            return self._keys.find(key)
        token = bearer(headers)
        if not token:
            if self.sessions is not None and (signed_in := self.sessions.find(headers)) is not None:
                return signed_in
            raise Unauthenticated(self._wanted())
        if self._tokens is not None and _is_jwt(token):
            return self._tokens.known(token)
        return self._keys.find(token)

    def signed_in(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Whose session these headers have; None if that is over, or its tenant is let in no longer."""
        try:
            found = None if self.sessions is None else self.sessions.find(headers)
        except Unauthenticated:
            return None
        return None if found is None or self._is_closed(found) else found

    async def ask(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Who sends these headers.

        Raises:
            Unauthenticated: nobody that is let in.
            Unavailable: that cannot be found out now.
        """
        known = self.known(headers)
        if known is not None or self._tokens is None:
            return known or self._anyone
        found = await self._tokens.ask(bearer(headers))
        if self._is_closed(found):
            raise Unauthenticated(UNKNOWN)
        return found

    def lasting(self, headers: Mapping[bytes, bytes]) -> Callable[[], bool] | None:
        """A question for later: whether who was let in with these headers still would be.

        None for a token of nobody we know any more: it was good when it came, and nobody can take it back.
        """
        if not self.enforced:
            return self._is_open
        key = headers.get(b"x-api-key")
        token = key or bearer(headers)
        if not key and self._tokens is not None and _is_jwt(token):
            known = self._tokens.known(token)
            return None if known is None else partial(self._lasts, known.tenant, None)
        sessions = None if token else self.sessions
        try:
            if sessions is not None and (signed_in := sessions.find(headers)) is not None:
                return partial(self._lasts, signed_in.tenant, sessions.lasting(headers))
            return partial(self._lasts, self._keys.find(token).tenant, self._keys.lasting(token))
        except Unauthenticated:
            return lambda: False

    def _lasts(self, tenant: str, opens: Callable[[], bool] | None) -> bool:
        return not self._closed.has_ended(tenant) and (opens is None or opens())

    def _is_open(self) -> bool:
        return not self.enforced

    @property
    def challenge(self) -> bytes:
        """What a refused caller should send, for `WWW-Authenticate`."""
        return b"Bearer" if self._keys.is_empty else b"Bearer, ApiKey"

    def schemes(self) -> dict[str, Scheme]:
        """For the card: exactly what is enforced now; any one of them opens the door."""
        of_keys = {} if self._keys.is_empty else KEY_SCHEMES
        return {**of_keys, **(self._tokens.schemes() if self._tokens is not None else {})}

    def _wanted(self) -> str:
        if self._tokens is None:
            return "this agent needs a key: send it as X-API-Key or as a bearer token"
        also = "" if self._keys.is_empty else ", or a key as X-API-Key"
        return f"this agent needs a token: send it as Authorization: Bearer{also}; its card says whose"


def bearer(headers: Mapping[bytes, bytes]) -> bytes:
    """The token in `Authorization: Bearer`, if there is one."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _is_jwt(token: bytes) -> bool:
    # No stored key has a dot; a key from the settings that looks like this is sent as X-API-Key.
    return token.count(b".") == 2 and token.startswith(b"ey")
