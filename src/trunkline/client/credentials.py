"""Who calls: keys, tokens and logins, and the one place that decides to whom they are shown.

`Guarded` is a http_client that shows them to the agent's own origin and to nobody else, whatever a card or a
redirect says. Secrets are `Secret`: they never print. Credentials made for httpx (anything with an
`auth_flow`) are driven without httpx.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections import UserDict
from collections.abc import Generator, Mapping
from types import SimpleNamespace
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from trunkline.config import Secret, environment
from trunkline.errors import Misuse
from trunkline.net.egress import target
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse
from trunkline.net.redacted import CredentialRedaction, credentials_in
from trunkline.wire.peer_card import PeerCard, PeerScheme

log = logging.getLogger("trunkline.client")
API_KEY = "X-API-Key"
_PLACES = ("header", "query", "cookie")
# URLs whose verdict is remembered; those of tasks differ from each other without end.
_JUDGED = 1024
# Hosts that are named to who is not let in.
_NAMED = 8
# A flow that never ends is a mistake; the longest in use, a login with a refresh, takes three.
STEPS = 5


class Auth(Protocol):
    """Shows an agent who calls. It sees only requests that may show it."""

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """The answer to the request with credentials; asked again if new ones may help."""
        ...


def as_secret(text: str | Secret) -> Secret:
    """The same as a secret, whether or not it was given as one."""
    return text if isinstance(text, Secret) else Secret(text)


class FixedHeaders:
    """The same headers with every request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = tuple([(name, Secret(value)) for name, value in headers.items()])
        self._redaction = CredentialRedaction(*credentials_in(tuple(headers.items())))

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """See `Auth`."""
        shown = tuple([(name, value.reveal()) for name, value in self._headers])
        return self._redaction.of(await http_client.open(_with(request, *shown)))


class Bearer(FixedHeaders):
    """A token in the `Authorization` header."""

    def __init__(self, token: str | Secret) -> None:
        super().__init__({"authorization": f"Bearer {as_secret(token).reveal()}"})


class Basic(FixedHeaders):
    """A name and a password in the `Authorization` header."""

    def __init__(self, name: str, password: str | Secret) -> None:
        if ":" in name:
            raise Misuse("the name of a Basic login holds no colon")
        login = f"{name}:{as_secret(password).reveal()}".encode()
        super().__init__({"authorization": f"Basic {b64encode(login).decode()}"})


class ApiKey:
    """A key in a header, in the query or in a cookie: where the card says, unless it is said here."""

    def __init__(self, key: str | Secret, *, name: str = "", place: str = "header") -> None:
        if place not in _PLACES:
            raise Misuse(f"an API key goes into the header, the query or a cookie, not into {place!r}")
        self._key = as_secret(key)
        self._redaction = CredentialRedaction(self._key.reveal())
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
        return ApiKey(self._key, name=wanted[0].name, place=place if place in _PLACES else "header")

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """See `Auth`."""
        return self._redaction.of(await http_client.open(self._shown(request, self._key.reveal())))

    def _shown(self, request: HttpRequest, key: str) -> HttpRequest:
        name = self.name or API_KEY
        if self.place == "header":
            return _with(request, (name, key))
        pair = f"{quote(name, safe='')}={quote(key, safe='')}"
        if self.place == "cookie":
            return _with(request, ("cookie", pair))
        url, mark, rest = request.url.partition("#")
        url = f"{url}{'&' if '?' in url else '?'}{pair}{mark}{rest}"
        return msgspec.structs.replace(request, url=url)


class Unset(FixedHeaders):
    """Credentials whose variable is not set: requests go out without any."""

    def __init__(self, variable: str) -> None:
        super().__init__({})
        self.variable = variable


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
    given = ["auth"] if auth is not None else []
    given += [name for name, value in said.items() if isinstance(value, Secret) or value]
    if len(given) > 1:
        raise Misuse(f"give one of {' and '.join(given)}, not {len(given)}")
    if auth is not None:
        return _auth(auth)
    if variable := api_key_env or bearer_env:
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
    """An HTTP client that shows credentials to one origin; to anybody else a request goes without."""

    def __init__(self, http_client: HttpClient, auth: Auth | None, url: str) -> None:
        self.auth = auth
        self._http_client = http_client
        self._at = target(url)
        self._withheld: set[str] = set()
        self._judged: dict[str, bool] = {}

    def fit(self, card: PeerCard) -> None:
        """Show an API key where this card wants it."""
        if isinstance(self.auth, ApiKey):
            self.auth = self.auth.fit(card)

    def describe_refusal(self, card: PeerCard | None, answer: str) -> str:
        """Return why the agent refused the caller; see the function of this name."""
        said = describe_refusal(card, self.auth, answer)
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
        # Not by a cache of `functools`: it would hold this object, and with it the credentials, in a circle.
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
        log.warning("client.credentials_withheld host=%a", at.host)
        if len(self._withheld) < _NAMED:
            self._withheld.add(at.host)
        return False


def describe_refusal(card: PeerCard | None, given: Auth | None, answer: str) -> str:
    """Return why an agent refused a caller, and which credentials it accepts.

    `answer` is the agent's own text. It is left out where no credentials were sent and the card names some.
    """
    accepted = " or ".join(_accepted(card)) if card is not None else ""
    if given and not isinstance(given, Unset):
        refused = f"the agent refused the credentials: {answer}"
        return f"{refused}; it accepts {accepted}" if accepted else refused
    missing = "no credentials were sent"
    if isinstance(given, Unset):
        missing += f", as the variable {given.variable} is not set"
    if accepted:
        return f"{missing}; the agent requires {accepted}"
    unnamed = "its card names none" if card is not None else "it has no card"
    return f"{missing}: {answer}; {unnamed}; try api_key=… or bearer=…"


def _accepted(card: PeerCard) -> list[str]:
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


def _with(request: HttpRequest, *headers: tuple[str, str]) -> HttpRequest:
    return HttpRequest(request.method, request.url, (*request.headers, *headers), request.body)


class Fields(UserDict[str, str]):
    """Headers in any case, as a flow reads and changes them."""

    def __getitem__(self, name: str) -> str:
        return self.data[name.lower()]

    def __setitem__(self, name: str, value: str) -> None:
        self.data[name.lower()] = value

    def __delitem__(self, name: str) -> None:
        del self.data[name.lower()]

    def __contains__(self, name: object) -> bool:
        return str(name).lower() in self.data

    def __repr__(self) -> str:
        # Values stay unsaid: one of them may be a credential.
        return f"Fields({list(self.data)})"

    def get_list(self, name: str) -> list[str]:
        """All values of a header, which here are one."""
        return [self[name]] if name in self else []


class Address(str):
    """A URL with the parts that a flow asks for."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.scheme = parts.scheme
        self.host = parts.hostname or ""
        self.path = parts.path or "/"
        # With the query.
        self.raw_path = (f"{self.path}?{parts.query}" if parts.query else self.path).encode()


class Outgoing:
    """A request as a flow sees it."""

    def __init__(self, request: HttpRequest) -> None:
        self.method = request.method
        self.url = Address(request.url)
        self.headers = Fields(dict(request.headers))
        self.content = request.body or b""

    def read(self) -> bytes:
        """The body."""
        return self.content


class HttpxAuth:
    """An object with an `auth_flow` like those of httpx, as credentials. Its requests stay on one origin."""

    def __init__(self, auth: Any) -> None:
        if getattr(auth, "requires_response_body", False):
            raise Misuse("an auth_flow that reads the bodies of responses is not driven here; give a token")
        self._auth = auth

    async def send_authorized(self, request: HttpRequest, http_client: HttpClient) -> HttpResponse:
        """See `Auth`."""
        flow: Generator[Any, Any, None] = self._auth.auth_flow(Outgoing(request))
        try:
            asked = next(flow)
            for _ in range(STEPS):
                sent = _request(asked, request)
                reply = CredentialRedaction(*credentials_in(sent.headers)).of(await http_client.open(sent))
                headers = Fields(reply.headers)
                seen = SimpleNamespace(status_code=reply.status, headers=headers, request=asked, cookies={})
                try:
                    following = flow.send(seen)
                except StopIteration:
                    return reply
                except BaseException:
                    await reply.close()
                    raise
                await reply.close()
                asked = following
        finally:
            flow.close()
        raise Misuse(f"the auth_flow asks for more than {STEPS} requests")


def _request(asked: Any, first: HttpRequest) -> HttpRequest:
    url = str(asked.url)
    was, now = urlsplit(first.url), urlsplit(url)
    if (was.scheme, was.netloc) != (now.scheme, now.netloc):
        raise Misuse("the auth_flow asks another host; only the agent's own is asked")
    return HttpRequest(str(asked.method), url, tuple(dict(asked.headers).items()), first.body)
