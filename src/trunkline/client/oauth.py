"""OAuth2: requests to token endpoints, and client credentials as an agent wants them.

A token is fetched when it is needed, kept until it ends, and replaced when it is refused.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from trunkline.client.credentials import Bearer, as_secret
from trunkline.client.retry import Fate, fate_of
from trunkline.config import Secret
from trunkline.errors import Misuse, Unauthenticated, Unreachable, Unreadable
from trunkline.net.egress import shown, target
from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse
from trunkline.net.redacted import CredentialRedaction, credentials_in
from trunkline.wire.decode import DECODE_ERRORS

# A token is replaced this long before its end, so that none ends on the way.
SKEW_S = 30.0
# How long a token is good for whose issuer does not say.
UNSAID_S = 300.0
_ANSWER_BYTES = 64 << 10
_IDLE_S = 30.0
# All that wait for a token wait for the same answer, which an endpoint could send drop by drop.
_FETCH_S = 30.0
# No server reads a head in which a longer one stands.
_TOKEN_BYTES = 16 << 10
_SAID = 300
_FORM: Headers = (("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json"))
# RFC 8693.
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# An endpoint that has no time now refuses nobody.
_BUSY = (408, 425, 429)


class Token(Struct, frozen=True):
    """A token as an authorization server gives it, or why it gives none."""

    access_token: str = ""
    token_type: str = "Bearer"
    expires_in: float | str | None = None
    refresh_token: str = ""

    def __repr__(self) -> str:
        return "Token(***)"

    def seconds(self, unsaid: float) -> float:
        """How long it lasts; some issuers say it as a text, and some do not say it."""
        try:
            found = float(self.expires_in) if self.expires_in is not None else unsaid
        except ValueError:
            return unsaid
        return found if 0 < found < 1e9 else unsaid


def is_secret_safe(url: str) -> bool:
    """Whether a secret may be sent there: over TLS, or to this machine."""
    # The same reader of URLs as the HTTP client's, so that what is judged is what is called.
    at = target(url)
    return at.scheme == "https" or at.host in _LOOPBACK


async def post_form(
    http_client: HttpClient, url: str, fields: Mapping[str, str], headers: Headers = ()
) -> tuple[int, dict[str, Any]]:
    """The status and the JSON object that an authorization server answers; empty if it is none.

    Raises:
        Misuse: it is not safe to send a secret there.
    """
    if not is_secret_safe(url):
        raise Misuse(f"{shown(url)} is not https; no secret is sent there")
    body = urlencode({name: value for name, value in fields.items() if value}).encode()
    response = await http_client.open(HttpRequest("POST", url, (*_FORM, *headers), body))
    try:
        raw = await response.read(_ANSWER_BYTES, idle_s=_IDLE_S)
    finally:
        await response.close()
    try:
        return response.status, msgspec.json.decode(raw, type=dict[str, Any])
    except DECODE_ERRORS:
        return response.status, {}


async def request_token(
    http_client: HttpClient, url: str, fields: Mapping[str, str], headers: Headers = ()
) -> Token:
    """A token for what these fields show.

    Raises:
        Unauthenticated: it was refused.
        Unreachable: there is none now, and there may be later.
        Unreadable: what came is no token.
    """
    status, answer = await post_form(http_client, url, fields, headers)
    return read_token(url, status, answer)


def read_token(url: str, status: int, answer: Mapping[str, Any]) -> Token:
    """The token in an answer; raises as `request_token` does."""
    host = target(url).host
    if status >= 500 or status in _BUSY:
        raise Unreachable(f"{host} gives no token now (HTTP {status}){refusal_of(answer)}", reason="connect")
    if not 200 <= status < 300 or answer.get("error"):
        raise Unauthenticated(f"{host} gives no token (HTTP {status}){refusal_of(answer)}")
    try:
        token = msgspec.convert(answer, Token)
    except msgspec.ValidationError as error:
        # It names the member and its type, not its value.
        raise Unreadable(f"{host} answers without a bearer token: {error}") from None
    if not _is_sendable(token.access_token) or token.token_type.lower() != "bearer":
        raise Unreadable(f"{host} answers without a bearer token")
    return token


def _is_sendable(token: str) -> bool:
    # RFC 6749, A.12. Seen here it is no token; seen where it is sent, a message whose fate nobody knows.
    return 0 < len(token) <= _TOKEN_BYTES and token.isascii() and token.isprintable()


def refusal_of(answer: Mapping[str, Any]) -> str:
    """The reason that an authorization server gives for a refusal, to end a sentence with; may be empty."""
    said = [str(answer.get(name) or "") for name in ("error", "error_description")]
    why = ": ".join([part for part in said if part.isprintable() and part])
    return f": {why[:_SAID]}" if why else ""


class ClientCredentials:
    """A program's own login at a token endpoint, as OAuth2 has it.

    `login` says how the endpoint is told who asks: `basic`, which all must know, or `body`. The endpoint is
    called by the same http_client as the agent, so that what the guard refuses is refused here too.
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str | Secret,
        *,
        scopes: Sequence[str] = (),
        audience: str = "",
        login: Literal["basic", "body"] = "basic",
    ) -> None:
        if not is_secret_safe(token_url):
            raise Misuse("token_url must begin with https://, as a secret is sent there")
        self._url = token_url
        self._id = client_id
        self._secret = as_secret(client_secret)
        self._scopes = tuple(scopes)
        self._audience = audience
        self._login = login
        self._bearer: Bearer | None = None
        self._until = 0.0
        self._fetching = asyncio.Lock()

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """See `Auth`. After a 401 the token is replaced, once."""
        bearer = await self._current(http_client)
        reply = await bearer.send_authorized(request, http_client)
        if reply.status != 401:
            return reply
        await reply.close()
        if self._bearer is bearer:
            self._bearer = None
        return await (await self._current(http_client)).send_authorized(request, http_client)

    async def _current(self, http_client: HttpClient) -> Bearer:
        now = asyncio.get_running_loop().time
        if self._bearer is not None and now() < self._until:
            return self._bearer
        async with self._fetching:
            # Somebody else may have fetched it meanwhile.
            if self._bearer is None or now() >= self._until:
                asked_at = now()
                token = await self._fetched(http_client)
                lasts = token.seconds(UNSAID_S)
                self._until = asked_at + max(lasts - SKEW_S, lasts / 2)
                self._bearer = Bearer(token.access_token)
            return self._bearer

    async def _fetched(self, http_client: HttpClient) -> Token:
        # Invariant: no error of it says that the request it is for may have been sent.
        form, headers = self._login_form()
        shown = self._secret.reveal(), form.get("subject_token", ""), *credentials_in(headers)
        hide = CredentialRedaction(*shown).text
        try:
            async with asyncio.timeout(_FETCH_S):
                return await request_token(http_client, self._url, form, headers)
        except (Unreadable, Unauthenticated) as error:
            raise Unauthenticated(hide(str(error))) from None
        except Unreachable as error:
            reason = error.reason if fate_of(error) is Fate.ANSWERED else "connect"
            raise Unreachable(hide(str(error)), reason=reason) from None
        except TimeoutError:
            late = f"{target(self._url).host} gives no token within {_FETCH_S:g} seconds"
            raise Unreachable(late, reason="connect") from None

    def _grant(self) -> dict[str, str]:
        """The members of the grant by which a token is asked for."""
        return {"grant_type": "client_credentials"}

    def _login_form(self) -> tuple[dict[str, str], Headers]:
        form = {**self._grant(), "scope": " ".join(self._scopes), "audience": self._audience}
        if self._login == "body":
            return form | {"client_id": self._id, "client_secret": self._secret.reveal()}, ()
        login = f"{quote_plus(self._id)}:{quote_plus(self._secret.reveal())}".encode()
        return form, (("authorization", f"Basic {b64encode(login).decode()}"),)


class TokenExchange(ClientCredentials):
    """A token of ours that is exchanged at a token endpoint for one that an agent takes (RFC 8693).

    Without a `client_id` nothing but the token shows who asks.
    """

    def __init__(
        self,
        token_url: str,
        subject_token: str | Secret,
        *,
        client_id: str = "",
        client_secret: str | Secret = "",
        scopes: Sequence[str] = (),
        audience: str = "",
    ) -> None:
        secret = as_secret(client_secret)
        # What is empty of a form is not sent: without a secret, the id alone.
        login = "basic" if secret.reveal() else "body"
        super().__init__(token_url, client_id, secret, scopes=scopes, audience=audience, login=login)
        self._subject = as_secret(subject_token)

    def _grant(self) -> dict[str, str]:
        subject = {"subject_token": self._subject.reveal(), "subject_token_type": _ACCESS_TOKEN}
        return {"grant_type": EXCHANGE, **subject}
