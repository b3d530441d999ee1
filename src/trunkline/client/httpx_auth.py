"""Credentials made for httpx: anything with an `auth_flow`, driven without httpx.

A flow is a generator: it yields requests, is sent their responses, and the last response is the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from trunkline.errors import Misuse
from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse

# A flow that never ends is a mistake; the longest in use, a login with a refresh, takes three.
STEPS = 5


class Fields(MutableMapping[str, str]):
    """Headers in any case, as a flow reads and changes them."""

    def __init__(self, pairs: Headers) -> None:
        self._fields = {name.lower(): value for name, value in pairs}

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __setitem__(self, name: str, value: str) -> None:
        self._fields[name.lower()] = value

    def __delitem__(self, name: str) -> None:
        del self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def get_list(self, name: str) -> list[str]:
        """All values of a header, which here are one."""
        return [self[name]] if name in self else []

    def pairs(self) -> Headers:
        """The headers as pairs, as a request takes them."""
        return tuple(self._fields.items())


class Address(str):
    """A URL with the parts that a flow asks for."""

    __slots__ = ()

    @property
    def scheme(self) -> str:
        """The scheme of the URL: http or https."""
        return urlsplit(self).scheme

    @property
    def host(self) -> str:
        """The name of the host."""
        return urlsplit(self).hostname or ""

    @property
    def path(self) -> str:
        """The path of the URL, without the query."""
        return urlsplit(self).path or "/"

    @property
    def raw_path(self) -> bytes:
        """The path of the URL, with the query."""
        query = urlsplit(self).query
        return f"{self.path}?{query}".encode() if query else self.path.encode()


class Outgoing:
    """A request as a flow sees it."""

    def __init__(self, request: HttpRequest) -> None:
        self.method = request.method
        self.url = Address(request.url)
        self.headers = Fields(request.headers)
        self.content = request.body or b""

    def read(self) -> bytes:
        """The body."""
        return self.content


class Incoming:
    """A response as a flow sees it."""

    def __init__(self, reply: HttpResponse, request: Any) -> None:
        self.status_code = reply.status
        self.headers = Fields(tuple(reply.headers.items()))
        self.request = request
        self.cookies: dict[str, str] = {}


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
                reply = await http_client.open(_request(asked, request))
                try:
                    following = flow.send(Incoming(reply, asked))
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
    headers = asked.headers
    pairs = headers.pairs() if isinstance(headers, Fields) else tuple(dict(headers).items())
    return HttpRequest(str(asked.method), url, pairs, first.body)
