"""A session with one MCP server, over the pipes of a process or streamable HTTP, by the library `mcp`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import EndOfStream
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, CallToolResult
from pydantic import ValidationError

from trunkline.errors import CallFailed, Misuse
from trunkline.mcp.manifest import McpServerEntry
from trunkline.net.egress import Egress, target
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse
from trunkline.net.http_client import SocketHttpClient
from trunkline.net.httpx_transport import guarded_client

log = logging.getLogger("trunkline.mcp")
CLOSED = "MCP_CONNECTION_CLOSED"
PROTOCOL_ERROR = "MCP_PROTOCOL_ERROR"
CLIENT_ERROR = "MCP_CLIENT_ERROR"
# A result has at most 4 MiB, and is longer on the wire where its characters are escaped.
ANSWER_BYTES = 8 << 20
LISTEN_S = 1.0
_SAID = 1000
# The second is what the library says of an HTTP session that its server has forgotten.
_OVER = (CONNECTION_CLOSED, INVALID_REQUEST)


class McpSession:
    """An open session. A task of its own holds it, as the library wants it closed where it was opened."""

    def __init__(self, server: str, entry: McpServerEntry, folder: Path | None = None) -> None:
        self._server = server
        self._ended = asyncio.Event()
        self._closing = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(_transport(entry, folder, self._ended)))

    @classmethod
    async def open(cls, server: str, entry: McpServerEntry, folder: Path | None = None) -> McpSession:
        """Begin a session with a server of the manifest in a folder.

        Raises:
            CallFailed: the server was not started, not reached or does not speak MCP.
        """
        session = cls(server, entry, folder)
        try:
            await asyncio.shield(session._client)
        except asyncio.CancelledError:
            await session.close()
            raise
        return session

    @property
    def is_open(self) -> bool:
        """Whether the server is still there, as far as can be told without asking it."""
        return not (self._ended.is_set() or self._closing.is_set() or self._task.done())

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer to `tools/call`, as it is on the wire.

        Raises:
            CallFailed: there is none.
        """
        try:
            client = await asyncio.shield(self._client)
            found = await client.call_tool(tool, arguments)
        except Exception as error:  # noqa: BLE001 — the library's transports raise what theirs do
            if isinstance(error, MCPError) and error.code in _OVER:
                self._ended.set()
            raise self._failure(error) from None
        return found.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def tools(self) -> list[dict[str, Any]]:
        """The first page of the tools of the server, as it is on the wire.

        Raises:
            CallFailed: the server does not tell.
        """
        try:
            client = await asyncio.shield(self._client)
            found = await client.list_tools()
        except Exception as error:  # noqa: BLE001 — as for a call
            raise self._failure(error) from None
        return [
            one.model_dump(mode="json", by_alias=True, include={"name", "description", "input_schema"})
            for one in found.tools
        ]

    async def close(self) -> None:
        """End the session, and its process if it has one."""
        self._closing.set()
        if not self._client.done():
            self._task.cancel()
        await asyncio.wait([self._task])

    async def _hold(self, transport: AbstractAsyncContextManager[Any]) -> None:
        try:
            async with Client(transport) as client:
                client.session.validate_tool_result = _accept_result
                self._client.set_result(client)
                await self._closing.wait()
        except asyncio.CancelledError:
            self._client.cancel()
            raise
        except Exception as error:  # noqa: BLE001 — whatever the library raises is told to who waits, or logged
            if self._client.done():
                log.warning("mcp.session_failed server=%s error=%r", self._server, _leaf(error))
            else:
                self._client.set_exception(self._failure(error))
        finally:
            self._ended.set()

    def _failure(self, error: BaseException) -> CallFailed:
        error = _leaf(error)
        if isinstance(error, CallFailed):
            return error
        said = str(error)[:_SAID]
        if isinstance(error, MCPError):
            code = CLOSED if error.code == CONNECTION_CLOSED else PROTOCOL_ERROR
            return CallFailed(f"server {self._server}: {said}", code=code)
        if isinstance(error, ValidationError | RuntimeError):
            return CallFailed(f"server {self._server} answered what is no MCP: {said}", code=PROTOCOL_ERROR)
        if isinstance(error, Misuse):
            return CallFailed(f"server {self._server}: {said}", code=CLIENT_ERROR)
        return CallFailed(f"server {self._server} was not reached: {said}", code=CLIENT_ERROR)


async def _accept_result(name: str, result: CallToolResult) -> None:
    """Accept a result of a tool without a check against the output schema of its server.

    The library would check it in this process, and a pattern of the server could hold that for ever.
    """
    del name, result


def _leaf(error: BaseException) -> BaseException:
    """The first error within the groups that task groups make."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return error  # pyright: ignore[reportUnknownVariableType]


@asynccontextmanager
async def _transport(entry: McpServerEntry, folder: Path | None, ended: asyncio.Event) -> AsyncGenerator[Any]:
    async with contextlib.AsyncExitStack() as stack:
        if entry.command is not None:
            command = StdioServerParameters(
                command=entry.command, args=list(entry.args), env=entry.variables(folder), cwd=folder
            )
            opened = stdio_client(command, errlog=sys.__stderr__ or sys.stderr)
        else:
            url = entry.url or ""
            # The operator's word is the server, and none that it leads to.
            dialled = _Unhurried(SocketHttpClient(Egress(hosts=[target(url).host])))
            http_client = guarded_client(dialled, answer_bytes=ANSWER_BYTES)
            http_client.headers.update(entry.sent_headers(folder))
            await stack.enter_async_context(http_client)
            opened = streamable_http_client(url, http_client=http_client)
        read, write = await stack.enter_async_context(opened)
        yield _Watched(read, ended), write


class _Unhurried:
    """An HTTP client that listens to a server once in a second, however often that ends the stream."""

    def __init__(self, http_client: HttpClient) -> None:
        self._http_client = http_client
        self._next = 0.0

    async def open(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            # The library opens it again as soon as the server likes, for as long as the session lasts.
            now = asyncio.get_running_loop().time()
            self._next, wait_s = max(self._next, now) + LISTEN_S, self._next - now
            await asyncio.sleep(wait_s)
        return await self._http_client.open(request)

    async def close(self) -> None:
        await self._http_client.close()


class _Watched:
    """A stream of messages that says when it has come to its end, as the library keeps that to itself."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended.set()
            raise

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except EndOfStream:
            self._ended.set()
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *given: Any) -> bool | None:
        return await self._stream.__aexit__(*given)
