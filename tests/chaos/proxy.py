"""A TCP proxy that can be told to misbehave: stand still, cut after so many bytes, lose a database's bells."""

from __future__ import annotations

import asyncio
from contextlib import suppress

PIECE = 1 << 16
_NOTIFICATION = b"A"


class Proxy:
    """Forwards a port of its own to another one on this machine."""

    def __init__(self, port: int, *, deaf: bool = False) -> None:
        self._target = port
        # To the notifications of PostgreSQL; everything else passes.
        self._deaf = deaf
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self.port = 0
        self.dropped = 0

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Cut everything."""
        if self._server is not None:
            self._server.close()
        self._flowing.set()
        for pipe in list(self._pipes):
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    def stand_still(self) -> None:
        """Half-open: connections stay, nothing passes either way, new ones are taken and never served."""
        self._flowing.clear()

    def flow(self) -> None:
        """Go on where it stood."""
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._flowing.wait()
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        there = self._pipe(reader, back_writer, None)
        back = self._pipe(back_reader, writer, Frames() if self._deaf else None)
        for pipe in (there, back):
            task = asyncio.create_task(pipe)
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: Frames | None
    ) -> None:
        try:
            while piece := await reader.read(PIECE):
                await self._flowing.wait()
                if frames is not None:
                    piece, dropped = frames.without_notifications(piece)
                    self.dropped += dropped
                writer.write(piece)
                await writer.drain()
        except (ConnectionError, OSError):
            pass
        finally:
            with suppress(RuntimeError, OSError):
                writer.close()


class Frames:
    """What a PostgreSQL server sends, cut into messages: a letter, four bytes of length, the rest."""

    def __init__(self) -> None:
        self._left = b""
        self._begun = False

    def without_notifications(self, piece: bytes) -> tuple[bytes, int]:
        """The bytes to pass on, and how many notifications were lost."""
        data = self._left + piece
        passed: list[bytes] = []
        dropped = 0
        if not self._begun:
            self._begun = True
            if data[:1] == b"N":
                # The answer to the question for TLS: a letter alone.
                passed.append(data[:1])
                data = data[1:]
        while len(data) >= 5 and len(data) > (size := int.from_bytes(data[1:5])):
            message, data = data[: size + 1], data[size + 1 :]
            if message[:1] == _NOTIFICATION:
                dropped += 1
            else:
                passed.append(message)
        self._left = data
        return b"".join(passed), dropped
