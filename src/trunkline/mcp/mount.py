"""The place of MCP in a host: `/mcp`, behind the same door as everything else.

The library is the extra `mcp`; it is loaded when somebody first asks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from trunkline.auth.principal import Scope as AuthScope
from trunkline.config import Settings
from trunkline.errors import Refused, Unauthenticated, UnsupportedOperation
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.exchange import Exchange, Headers
from trunkline.http.mounts import PUBLIC, Mount, Route
from trunkline.mcp.protected_resource import METADATA, challenge, metadata_of
from trunkline.run.runner import Runner
from trunkline.server.router import Router
from trunkline.wire.codes import write_problem

if TYPE_CHECKING:
    from trunkline.mcp.host_source import HostSource
    from trunkline.mcp.http_server import McpHttpServer

PREFIX = "/mcp"
BODY_LIMIT = 4 << 20


class McpHost(Protocol):
    """What the mount needs of its host; one that starts again has another runner."""

    @property
    def runner(self) -> Runner:
        """The runner that carries the tasks of this host."""
        ...

    @property
    def router(self) -> Router:
        """The router with the sites of the host's agents."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings of the host."""
        ...


class McpMount(Mount):
    """The agents of a host as a server of MCP over streamable HTTP."""

    def __init__(self, host: McpHost) -> None:
        self._host = host
        self._server: McpHttpServer | None = None
        # What a hub offers; else it is the agents that the host was started with.
        self.source: HostSource | None = None
        write = AuthScope.WRITE.value
        routes = [Route("POST /", write, BODY_LIMIT), Route("GET /", write, 0), Route("DELETE /", write, 0)]
        super().__init__(PREFIX, self._serve, routes, write_problem)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._server
        if server is None:
            # In a thread: the library takes a second to load, and all others would wait for that.
            make = await asyncio.to_thread(_server_class)
            # Who asked in the same moment may have been faster.
            server = self._server = self._server or make(self._host, self.source)
        await server(scope, receive, send)

    def refusal_headers(self, exchange: Exchange, refused: Refused) -> Headers:
        """Where a client of MCP reads whose tokens open this, beside the refusal of one without."""
        if not self._host.settings.issuers or not isinstance(refused, Unauthenticated):
            return ()
        scheme, host, port = exchange.address()
        return [(b"www-authenticate", challenge(self._host.settings, f"{scheme}://{host}:{port}"))]

    async def close(self) -> None:
        """End all sessions; the tasks go on."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()


def _server_class() -> type[McpHttpServer]:
    try:
        from trunkline.mcp.http_server import McpHttpServer
    except ModuleNotFoundError as error:
        said = f"MCP needs {error.name} here: pip install 'trunkline[mcp]'"
        raise UnsupportedOperation(said) from None
    return McpHttpServer


class MetadataMount(Mount):
    """The metadata of the protected resource that `/mcp` is, where tokens of issuers open it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        routes = [Route("GET /", PUBLIC, 0), Route("GET /mcp", PUBLIC, 0)]
        super().__init__(METADATA, self._serve, routes, write_problem)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        host, port = scope["server"]
        body = metadata_of(self._settings, f"{scope['scheme']}://{host}:{port}")
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
