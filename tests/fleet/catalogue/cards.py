"""Agents that serve nothing but their cards, over real HTTP, and remember who asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any


def card(name: str, *skills: str, url: str = "", **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"{name} of the tests",
        "version": "1",
        "url": url or f"http://{name}.example/a2a",
        "protocolVersion": "0.3.0",
        "capabilities": {"streaming": False, "pushNotifications": False, **members},
        "skills": [{"id": one, "name": one, "description": one, "tags": []} for one in skills],
        "defaultInputModes": ["text"],
        "defaultOutputModes": ["text"],
    }


class CardServer:
    """Cards by path; `asked` has each request: path and headers."""

    def __init__(self) -> None:
        self.cards: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.url = ""
        # Who asks for what begins so hears nothing.
        self.silent: str | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> CardServer:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    def paths(self, part: str) -> list[str]:
        return [path for path, _ in self.asked if part in path]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        path = first.split()[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.asked.append((path, headers))
        if self.silent is not None and path.startswith(self.silent):
            await reader.read()
            writer.close()
            return
        found = self.cards.get(path)
        body = b"" if found is None else json.dumps(found).encode()
        etag = f'"{hash(body)}"'
        status = "404 Not Found" if found is None else "200 OK"
        if found is not None and headers.get("if-none-match") == etag:
            status, body = "304 Not Modified", b""
        told = (
            f"HTTP/1.1 {status}\r\nETag: {etag}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(told.encode() + body)
        await writer.drain()
        writer.close()
