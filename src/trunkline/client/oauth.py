"""OAuth2 client credentials: a token fetched when it is needed, kept until it ends, replaced when refused."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from trunkline.client.credentials import Bearer
from trunkline.config import Secret
from trunkline.errors import Misuse, Unauthenticated, Unreadable
from trunkline.net.egress import target
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse

# A token is replaced this long before its end, so that none ends on the way.
SKEW_S = 30.0
# How long a token is good for whose issuer does not say.
UNSAID_S = 300.0
_ANSWER = 64 << 10
_IDLE_S = 15.0
_SAID = 300
_FORM = ("content-type", "application/x-www-form-urlencoded")


class _Token(Struct, frozen=True):
    access_token: str = ""
    token_type: str = "Bearer"
    expires_in: float | str | None = None
    error: str = ""
    error_description: str = ""

    def __repr__(self) -> str:
        return "_Token(***)"


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
        at = target(token_url)
        if at.scheme != "https" and at.host not in ("localhost", "127.0.0.1", "::1"):
            raise Misuse("token_url must begin with https://, as a secret is sent there")
        self._url = token_url
        self._host = at.host
        self._id = client_id
        self._secret = client_secret if isinstance(client_secret, Secret) else Secret(client_secret)
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
                token = await self._fetch(http_client)
                lasts = _seconds(token.expires_in)
                self._until = asked_at + max(lasts - SKEW_S, lasts / 2)
                self._bearer = Bearer(token.access_token)
            return self._bearer

    async def _fetch(self, http_client: HttpClient) -> _Token:
        reply = await http_client.open(self._request())
        try:
            body = await reply.read(_ANSWER, idle_s=_IDLE_S)
        finally:
            await reply.close()
        try:
            token = msgspec.json.decode(body, type=_Token)
        except msgspec.MsgspecError:
            token = _Token()
        if not 200 <= reply.status < 300 or token.error:
            why = ": ".join(
                part for part in (token.error, token.error_description) if part.isprintable() and part
            )
            raise Unauthenticated(
                f"{self._host} gives no token (HTTP {reply.status}){why and f': {why[:_SAID]}'}"
            )
        if not token.access_token or token.token_type.lower() != "bearer":
            raise Unreadable(f"{self._host} answers without a bearer token")
        return token

    def _request(self) -> HttpRequest:
        form = {"grant_type": "client_credentials"}
        if self._scopes:
            form["scope"] = " ".join(self._scopes)
        if self._audience:
            form["audience"] = self._audience
        headers = (_FORM, ("accept", "application/json"))
        if self._login == "basic":
            login = f"{quote_plus(self._id)}:{quote_plus(self._secret.reveal())}".encode()
            headers = (*headers, ("authorization", f"Basic {b64encode(login).decode()}"))
        else:
            form |= {"client_id": self._id, "client_secret": self._secret.reveal()}
        return HttpRequest("POST", self._url, headers, urlencode(form).encode())


def _seconds(said: float | str | None) -> float:
    """How long a token lasts; some issuers say it as a text."""
    try:
        found = float(said) if said is not None else UNSAID_S
    except ValueError:
        return UNSAID_S
    return found if 0 < found < 1e9 else UNSAID_S
