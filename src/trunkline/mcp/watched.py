"""The MCP servers of a file, which is read when one is first needed and again when the file has changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trunkline.errors import CallFailed, Misuse
from trunkline.mcp.manifest import load_manifest
from trunkline.mcp.servers import NOT_CONFIGURED, McpServers

log = logging.getLogger("trunkline.mcp")


class WatchedServers:
    """Calls tools of the servers that a file names now; one that is wrong changes nothing while it runs."""

    def __init__(self, file: str | Path) -> None:
        self._file = Path(file)
        self._servers: McpServers | None = None
        self._read: tuple[int, int] | None = None

    def check(self) -> None:
        """Let a file pass that can be read, or that is not there.

        Raises:
            Misuse: it is there and wrong.
        """
        if self._file.exists():
            load_manifest(self._file)

    def has_manifest(self) -> bool:
        """Return whether the file exists or has been read before."""
        return self._servers is not None or self._file.exists()

    async def call_tool(
        self, server: str, tool: str, arguments: Mapping[str, Any], timeout_s: float, *, tenant: str = ""
    ) -> dict[str, Any]:
        """The result of a tool; see `McpServers.call_tool`.

        Raises:
            CallFailed: it gave nothing; `code` says why.
        """
        return await self._usable().call_tool(server, tool, arguments, timeout_s, tenant=tenant)

    async def list_tools(self, server: str, timeout_s: float, *, tenant: str = "") -> list[dict[str, Any]]:
        """The tools of a server; see `McpServers.list_tools`.

        Raises:
            CallFailed: it does not tell; `code` says why.
        """
        return await self._usable().list_tools(server, timeout_s, tenant=tenant)

    def _usable(self) -> McpServers:
        """The servers of the file as it is, or of the last that could be read."""
        try:
            return self._current()
        except Misuse as error:
            log.error("mcp.file_unread error=%s", error)
            if self._servers is None:
                # Where the file is, is no business of those who call tools.
                told = str(error).replace(str(self._file), self._file.name)
                raise CallFailed(told, code=NOT_CONFIGURED) from None
            return self._servers

    def _current(self) -> McpServers:
        try:
            about = self._file.stat()
        except OSError:
            raise Misuse(f"there is no {self._file}; write the MCP servers that may be used there") from None
        stamp = about.st_mtime_ns, about.st_size
        if self._servers is None or stamp != self._read:
            # Noted first, so that a file that is wrong is told of once.
            self._read = stamp
            manifest = load_manifest(self._file)
            if self._servers is None:
                self._servers = McpServers(manifest)
            else:
                self._servers.take(manifest)
        return self._servers

    async def close(self) -> None:
        """End all sessions."""
        servers, self._servers = self._servers, None
        if servers is not None:
            await servers.close()
