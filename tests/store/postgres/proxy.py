"""A TCP proxy in front of a database that can cut, silence or swallow."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards both ways; `silent` forwards nothing, `swallow` cuts a connection at the server's next answer."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self.silent = False
        self.swallow = False
        self.swallowed = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._served: set[asyncio.Task[object]] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        login = self._target.netloc.rpartition("@")[0]
        self.url = urlunsplit(self._target._replace(netloc=f"{login}@127.0.0.1:{port}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        # One that was just taken may still be on its way to the database.
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)
        await asyncio.sleep(0)

    def close(self) -> None:
        """End all connections and take no more."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        writers = [writer]
        self._writers.add(writer)
        try:
            target = await asyncio.open_connection(self._target.hostname, self._target.port)
            writers.append(target[1])
            self._writers.add(target[1])
            with suppress(OSError):
                await asyncio.gather(
                    self._pass(reader, target[1], answers=False), self._pass(target[0], writer, answers=True)
                )
        finally:
            for each in writers:
                self._writers.discard(each)
                each.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            if self.silent:
                continue
            if answers and self.swallow:
                self.swallow = False
                self.swallowed += 1
                break
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
