"""A server of MCP over streamable HTTP for callers whom a door has let in, with sessions that are bounded."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from trunkline.auth.principal import Principal
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.mcp.host_source import HostSource, ServedAgent, peer_card
from trunkline.mcp.protocol_tasks import serve_skills
from trunkline.mcp.task_agent import ToolSource
from trunkline.server.operations import Operations

if TYPE_CHECKING:
    from trunkline.mcp.mount import McpHost

log = logging.getLogger("trunkline.mcp")
SESSIONS_OF_ONE_CALLER, SESSIONS_OF_ONE_TENANT = 32, 500
SESSIONS = 2000
IDLE_S = 600.0


class McpHttpServer:
    """An ASGI application that begins with its first request."""

    def __init__(self, host: McpHost, source: ToolSource | None = None) -> None:
        served = serve_skills(source or _sites_of(host))
        self._manager = _CallerSessions(
            served.server, session_idle_timeout=IDLE_S, max_sessions=SESSIONS, max_request_body_size=64 << 20
        )
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._running = asyncio.create_task(self._run())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI; a session is its caller's alone."""
        await self._ready.wait()
        principal: Principal = scope["trunkline.principal"]
        # By this the library knows whose a session is; there is no token, as the door has read it.
        token = AccessToken(token="", client_id=principal.tenant, subject=principal.name, scopes=[])
        await self._manager.handle_request({**scope, "user": AuthenticatedUser(token)}, receive, send)

    async def close(self) -> None:
        """End all sessions."""
        self._closing.set()
        await asyncio.wait([self._running])

    async def _run(self) -> None:
        # Entered and left in one task, as the library wants it.
        try:
            async with self._manager.run():
                self._ready.set()
                await self._closing.wait()
        except Exception:
            log.exception("mcp.server_failed")


class _CallerSessions(StreamableHTTPSessionManager):
    """The library's sessions, of which one caller and one tenant have only so many."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> Any:
        tenant = None if requestor is None else requestor["client_id"]
        of_tenant = [one for one in self._session_owners.values() if one and one["client_id"] == tenant]
        own = [one for one in of_tenant if one == requestor]
        full = len(own) >= SESSIONS_OF_ONE_CALLER or len(of_tenant) >= SESSIONS_OF_ONE_TENANT
        return None if full else super()._admit_session(requestor)


def _sites_of(host: McpHost) -> HostSource:
    """The agents that the host was started with."""
    wait_s, served = host.settings.wait_limit, list[ServedAgent]()
    for name, site in host.router.sites.items():
        card = site.cards.public
        operations = Operations(host.runner, name, wait_limit_s=wait_s, streaming=card.streaming)
        served.append(ServedAgent(name, peer_card(card), operations))
    return HostSource(lambda principal: served)
