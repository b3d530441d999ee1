"""Who calls: keys, tokens and logins, and the one place that decides to whom they are shown.

`Guarded` is a http_client that shows them to the agent's own origin and to nobody else, whatever a card or a
redirect says. Secrets are `Secret`: they never print.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable
from urllib.parse import quote

import msgspec

from trunkline.client.httpx_auth import HttpxAuth
from trunkline.config import Secret, environment
from trunkline.errors import Misuse
from trunkline.net.egress import target
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse
from trunkline.wire.peer_card import PeerCard, PeerScheme

log = logging.getLogger("trunkline.client")
API_KEY = "X-API-Key"
# URLs whose verdict is remembered; those of tasks differ from each other without end.
_JUDGED = 1024
# Hosts that are named to who is not let in.
_NAMED = 8


class Auth(Protocol):
    """Shows an agent who calls. It sees only requests that may show it."""

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """The answer to the request with credentials; asked again if new ones may help."""
        ...


def _secret(text: str | Secret) -> Secret:
    return text if isinstance(text, Secret) else Secret(text)


class FixedHeaders:
    """The same headers with every request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = tuple([(name, Secret(value)) for name, value in headers.items()])

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """See `Auth`."""
        headers = (*request.headers, *[(name, value.reveal()) for name, value in self._headers])
        return await http_client.open(HttpRequest(request.method, request.url, headers, request.body))


class Bearer(FixedHeaders):
    """A token in the `Authorization` header."""

    def __init__(self, token: str | Secret) -> None:
        super().__init__({"authorization": f"Bearer {_secret(token).reveal()}"})


class Basic(FixedHeaders):
    """A name and a password in the `Authorization` header."""

    def __init__(self, name: str, password: str | Secret) -> None:
        if ":" in name:
            raise Misuse("the name of a Basic login holds no colon")
        login = f"{name}:{_secret(password).reveal()}".encode()
        super().__init__({"authorization": f"Basic {b64encode(login).decode()}"})


class ApiKey:
    """A key in a header, in the query or in a cookie: where the card says, unless it is said here."""

    def __init__(self, key: str | Secret, *, name: str = "", place: str = "header") -> None:
        if place not in ("header", "query", "cookie"):
            raise Misuse(f"an API key goes into the header, the query or a cookie, not into {place!r}")
        self._key = _secret(key)
        self.name = name
        self.place = place

    def fit(self, card: PeerCard) -> ApiKey:
        """The same key where this card wants it; one whose place was said stays there."""
        if self.name:
            return self
        wanted = [scheme for scheme in card.schemes.values() if scheme.kind == "apiKey" and scheme.name]
        if not wanted or any(one.name.lower() == API_KEY.lower() for one in wanted):
            return self
        place = wanted[0].place
        known = place if place in ("header", "query", "cookie") else "header"
        return ApiKey(self._key, name=wanted[0].name, place=known)

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """See `Auth`."""
        name, key = self.name or API_KEY, self._key.reveal()
        if self.place == "header":
            return await http_client.open(_with(request, name, key))
        pair = f"{quote(name, safe='')}={quote(key, safe='')}"
        if self.place == "cookie":
            return await http_client.open(_with(request, "cookie", pair))
        url, mark, rest = request.url.partition("#")
        url = f"{url}{'&' if '?' in url else '?'}{pair}{mark}{rest}"
        return await http_client.open(msgspec.structs.replace(request, url=url))


class Unset:
    """Credentials whose variable is not set: requests go out without any."""

    def __init__(self, variable: str) -> None:
        self.variable = variable

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """See `Auth`."""
        return await http_client.open(request)


def credentials(
    auth: object = None,
    *,
    api_key: str | Secret = "",
    api_key_env: str = "",
    bearer: str | Secret = "",
    bearer_env: str = "",
) -> Auth | None:
    """The one of these that is given; an object with an `auth_flow` like those of httpx will do as `auth`.

    A variable that is not set is warned of and skipped.

    Raises:
        Misuse: more than one is given, or something that is none.
    """
    said = {"api_key": api_key, "api_key_env": api_key_env, "bearer": bearer, "bearer_env": bearer_env}
    given = [name for name, value in said.items() if isinstance(value, Secret) or value]
    if auth is not None:
        given.insert(0, "auth")
    if len(given) > 1:
        raise Misuse(f"give one of {' and '.join(given)}, not {len(given)}")
    if auth is not None:
        return _auth(auth)
    if api_key_env or bearer_env:
        variable = api_key_env or bearer_env
        found = environment(variable).get(variable, "")
        if not found:
            log.warning("client.credentials_unset variable=%a", variable)
            return Unset(variable)
        return ApiKey(found) if api_key_env else Bearer(found)
    if given == ["api_key"]:
        return ApiKey(api_key)
    return Bearer(bearer) if given else None


def _auth(given: object) -> Auth:
    if callable(getattr(given, "send_authorized", None)):
        return given  # pyright: ignore[reportReturnType] - that is what the protocol asks for
    if callable(getattr(given, "auth_flow", None)):
        return HttpxAuth(given)
    raise Misuse(
        "auth is an ApiKey, Bearer, Basic, ClientCredentials, or has an auth_flow like those of httpx"
    )


class Guarded:
    """An HTTP client that shows credentials to one origin, and to `hosts` that the operator allows by name.

    To anybody else a request goes without, and from https never to http.
    """

    def __init__(
        self, http_client: HttpClient, auth: Auth | None, url: str, *, hosts: Iterable[str] = ()
    ) -> None:
        self.auth = auth
        self._http_client = http_client
        self._at = target(url)
        self._hosts = {host.lower().rstrip(".") for host in hosts}
        self._withheld: set[str] = set()
        self._judged: dict[str, bool] = {}

    def fit(self, card: PeerCard) -> None:
        """Show an API key where this card wants it."""
        self.auth = fitted(self.auth, card)

    def wants(self, card: PeerCard | None) -> str:
        """The sentence for a caller that the agent refuses; see `choose`."""
        said = choose(card, self.auth)
        if not self._withheld:
            return said
        others = ", ".join(sorted(self._withheld))
        shown = f"only {self._at.host} was shown credentials, not {others}"
        return f"{said}; {shown}: give that URL if it may see them"

    async def open(self, request: HttpRequest) -> HttpResponse:
        """See `HttpClient`."""
        if self.auth is None or not self._may_see(request.url):
            return await self._http_client.open(request)
        return await self.auth.send_authorized(request, self._http_client)

    async def close(self) -> None:
        """See `HttpClient`."""
        await self._http_client.close()

    def _may_see(self, url: str) -> bool:
        known = self._judged.get(url)
        if known is None:
            if len(self._judged) >= _JUDGED:
                self._judged.clear()
            known = self._judged[url] = self._judge(url)
        return known

    def _judge(self, url: str) -> bool:
        at = target(url)
        if at.origin == self._at.origin:
            return True
        if at.host.rstrip(".") in self._hosts and (at.scheme, self._at.scheme) != ("http", "https"):
            return True
        log.warning("client.credentials_withheld host=%a", at.host)
        if len(self._withheld) < _NAMED:
            self._withheld.add(at.host)
        return False


@runtime_checkable
class Fitting(Protocol):
    """Credentials that look at the card to know where they go."""

    def fit(self, card: PeerCard) -> Auth:
        """The same for this card."""
        ...


def fitted(auth: Auth | None, card: PeerCard) -> Auth | None:
    """The credentials as this card wants them."""
    return auth.fit(card) if isinstance(auth, Fitting) else auth


def choose(card: PeerCard | None, given: Auth | None) -> str:
    """The sentence for a caller that the agent refuses: which credentials it wants, and how to give them."""
    wanted = _wanted(card) if card is not None else []
    if isinstance(given, Unset):
        missing = f"the variable {given.variable} is not set"
        return f"{missing}; the agent wants {' or '.join(wanted)}" if wanted else missing
    if not wanted:
        what = "the card does not say what the agent wants" if card is not None else "there is no card to ask"
        return f"{what}; it did not take what was given" if given else f"{what}; try api_key=… or bearer=…"
    start = "it did not take what was given; it wants" if given else "the agent wants"
    return f"{start} {' or '.join(wanted)}"


def _wanted(card: PeerCard) -> list[str]:
    """In words, what the card asks for; of several requirements one is enough."""
    if not card.requirements:
        return [_words(scheme) for scheme in card.schemes.values()]
    return [
        " and ".join(_words(card.schemes[name]) if name in card.schemes else name for name in names)
        for names in card.requirements
        if names
    ]


def _words(scheme: PeerScheme) -> str:
    if scheme.kind == "apiKey":
        place = {"query": "the query as ", "cookie": "the cookie "}.get(scheme.place, "")
        return f"an API key in {place}{scheme.name or API_KEY} (give api_key=…)"
    if scheme.kind == "http" and scheme.scheme.lower() == "basic":
        return "a name and a password (give auth=Basic(name, password))"
    if scheme.kind == "http" and scheme.scheme.lower() != "bearer":
        return f"the HTTP scheme {scheme.scheme} (give an httpx-style auth=…)"
    if scheme.kind == "oauth2" and scheme.token_url:
        scopes = f" with the scopes {' '.join(scheme.scopes)}" if scheme.scopes else ""
        return f"a token from {scheme.token_url}{scopes} (give auth=ClientCredentials(…))"
    if scheme.kind == "mutualTLS":
        return "a client certificate (give http_client=SocketHttpClient(egress, tls=…))"
    issuer = f" from {scheme.discovery_url}" if scheme.discovery_url else ""
    return f"a bearer token{issuer} (give bearer=…)"


def _with(request: HttpRequest, name: str, value: str) -> HttpRequest:
    return HttpRequest(request.method, request.url, (*request.headers, (name, value)), request.body)
