"""The MCP servers of a manifest, to be called: each is started when first needed, and again when it died.

One that let a call run out and says nothing more is ended, and so started again. A call is sent once: what
becomes of it is the tool's result as an object, or `CallFailed` with a code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trunkline.errors import CallFailed
from trunkline.mcp.manifest import McpManifest, McpServerEntry, allowed_commands, is_allowed
from trunkline.net.places import TenantPlaces

if TYPE_CHECKING:
    from trunkline.mcp.session import McpSession

log = logging.getLogger("trunkline.mcp")
DEFAULT_TIMEOUT_S = 45.0
RESULT_LIMIT = 4 << 20
# Of one server at a time, in all and for one tenant; whoever comes then waits, and its own timeout counts on.
CALLS_LIMIT, CALLS_OF_TENANT = 32, 24
# How long a server that let a call run out may take to say that it is there.
ALIVE_S = 10.0

INVALID_CONFIG = "INVALID_TOOL_CALL_CONFIG"
NOT_CONFIGURED = "MCP_SERVER_NOT_CONFIGURED"
NOT_ALLOWED = "MCP_COMMAND_NOT_ALLOWED"
TOOL_ERROR = "MCP_TOOL_EXECUTION_ERROR"
CLIENT_ERROR = "MCP_CLIENT_ERROR"
TIMEOUT = "ACTIVITY_TIMEOUT"


class McpServers:
    """Calls tools of the servers of a manifest, over one session with each."""

    def __init__(self, manifest: McpManifest, *, allow: Collection[str] | None = None) -> None:
        """Take a manifest; `allow` are the commands that may be started, else the environment says it."""
        self._manifest = manifest
        self._allow = allowed_commands() if allow is None else tuple(allow)
        self._places: dict[str, _ServerSession] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def manifest(self) -> McpManifest:
        """The servers that there are."""
        return self._manifest

    async def call_tool(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        tenant: str = "",
    ) -> dict[str, Any]:
        """The result of a tool: its structured content, else its text as `text`, else its `content`.

        Raises:
            CallFailed: it gave nothing; `code` is one of the MCP codes of workflows.
        """
        entry = self._entry(server, tool, arguments, tenant)
        place = self._place(server)
        try:
            async with asyncio.timeout(timeout_s), place.entered(tenant):
                session = await place.session(entry, self._manifest.folder)
                found = await session.call(tool, dict(arguments))
        except TimeoutError:
            place.look_after()
            raise CallFailed(
                f"{tool} of {server} did not answer within {timeout_s:g} s", code=TIMEOUT
            ) from None
        return _result(found, f"{tool} of {server}")

    async def list_tools(
        self, server: str, timeout_s: float = DEFAULT_TIMEOUT_S, *, tenant: str = ""
    ) -> list[dict[str, Any]]:
        """The tools of a server, as MCP describes them; without a name the servers.

        Raises:
            CallFailed: there is no such server, or it does not tell.
        """
        if not server:
            return [{"name": name} for name in self._manifest.servers_of(tenant)]
        entry = self._entry(server, "list", {}, tenant)
        place = self._place(server)
        try:
            async with asyncio.timeout(timeout_s), place.entered(tenant):
                return await (await place.session(entry, self._manifest.folder)).tools()
        except TimeoutError:
            place.look_after()
            raise CallFailed(f"{server} did not answer within {timeout_s:g} s", code=TIMEOUT) from None

    def _place(self, server: str) -> _ServerSession:
        return self._places.setdefault(server, _ServerSession(server))

    def _entry(self, server: str, tool: str, arguments: object, tenant: str) -> McpServerEntry:
        if not isinstance(arguments, Mapping) or not server or not tool:
            raise CallFailed(
                "a tool call names server and tool, and its arguments are an object", code=INVALID_CONFIG
            )
        usable = self._manifest.servers_of(tenant)
        entry = usable.get(server)
        if entry is None:
            known = ", ".join(usable) or "none for this tenant"
            raise CallFailed(f"the manifest has no server {server!r}; it has {known}", code=NOT_CONFIGURED)
        if entry.command is not None and not is_allowed(entry.command, self._allow):
            raise CallFailed(
                f"the command of server {server!r} is none of {', '.join(self._allow) or 'those allowed'}",
                code=NOT_ALLOWED,
            )
        return entry

    def take(self, manifest: McpManifest) -> None:
        """Go on with another manifest; sessions with servers that it changes or leaves out are ended."""
        for name in [*self._places]:
            if manifest.servers.get(name) != self._manifest.servers.get(name):
                ending = asyncio.create_task(self._places.pop(name).close())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
        self._manifest = manifest

    async def close(self) -> None:
        """End all sessions, and the processes of those that are commands."""
        places = list(self._places.values())
        self._places.clear()
        await asyncio.gather(*[place.close() for place in places], *self._ending)


class _ServerSession:
    """One server: the session with it, and the calls that it has now."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._calls = TenantPlaces(CALLS_LIMIT, CALLS_OF_TENANT)
        self._busy = 0
        self._opening = asyncio.Lock()
        self._session: McpSession | None = None
        self._looking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def entered(self, tenant: str) -> AsyncGenerator[None]:
        """Hold a place among the calls that the server has at a time."""
        async with self._calls.held(tenant):
            if self._looking is not None:
                # Nothing is sent to a server that may be about to be ended.
                await asyncio.wait([self._looking])
            self._busy += 1
            try:
                yield
            finally:
                self._busy -= 1

    def look_after(self) -> None:
        """Have a server ended that gives no sign of life, once nobody waits for it any more."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        session = self._session
        while session is not None and session.is_open:
            try:
                async with asyncio.timeout(ALIVE_S):
                    await session.tools()
                return
            except CallFailed:
                # Also a refusal is a sign of life; and what has ended is begun again by the next call.
                return
            except TimeoutError:
                # Somebody may wait for what takes long.
                if not self._busy:
                    log.warning("mcp.server_silent server=%s", self._server)
                    await session.close()

    async def session(self, entry: McpServerEntry, folder: Path | None) -> McpSession:
        """The session, begun again if it has ended."""
        async with self._opening:
            known = self._session
            if known is not None and known.is_open:
                return known
            if known is not None:
                log.warning("mcp.server_restarted server=%s", self._server)
                await known.close()
            # In a thread: the library takes a while to load, and all others would wait for that.
            self._session = await (await asyncio.to_thread(_session_class)).open(self._server, entry, folder)
            return self._session

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        if self._session is not None:
            await self._session.close()


def _session_class() -> type[McpSession]:
    # The library is the extra `mcp`.
    try:
        from trunkline.mcp.session import McpSession
    except ModuleNotFoundError as error:
        raise CallFailed(
            f"this needs {error.name}: pip install 'trunkline[mcp]'", code=CLIENT_ERROR
        ) from None
    return McpSession


def _result(found: dict[str, Any], what: str) -> dict[str, Any]:
    """A result of `tools/call` as the object that it stands for."""
    text = "\n".join([block["text"] for block in found["content"] if block.get("type") == "text"])
    if found.get("isError"):
        raise CallFailed(f"{what} failed: {text or 'it gives no reason'}", code=TOOL_ERROR)
    if len(msgspec.json.encode(found)) > RESULT_LIMIT:
        raise CallFailed(f"{what} gave more than {RESULT_LIMIT >> 20} MiB", code=TOOL_ERROR)
    structured = found.get("structuredContent")
    if isinstance(structured, dict):
        return structured  # pyright: ignore[reportUnknownVariableType]
    return {"text": text} if text else {"content": found["content"]}
