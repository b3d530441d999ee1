"""One HTTP connection of `trunkline serve`: as uvicorn has it, but what comes before a body has a bound."""

from __future__ import annotations

from asyncio import TimerHandle

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_LIMIT = 64 << 10
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(HttpToolsProtocol):
    """Uvicorn bounds bodies by asking the application; the request line and the headers by nothing."""

    write_limit_s = 10.0
    _counted: object = None
    _head = 0
    _stuck: TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Read on; a head that does not end is not read further."""
        super().data_received(data)
        # The path is known when the head is complete, and every head has a scope of its own.
        if "path" not in (self.scope or ()):
            self._count(len(data))

    def _count(self, size: int) -> None:
        # The piece in which a head begins may hold the body before it, so counting starts with the next one.
        if self._counted is not self.scope:
            self._counted, self._head = self.scope, 0
            return
        self._head += size
        if self._head > HEAD_LIMIT and not self.transport.is_closing():
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def pause_writing(self) -> None:
        """The reader is behind; from now on it has to read something within each limit."""
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        """The reader has caught up."""
        super().resume_writing()
        self._look_away()

    def _look_again(self) -> None:
        self._look_away()
        self._stuck = self.loop.call_later(
            self.write_limit_s, self._judge, self.transport.get_write_buffer_size()
        )

    def _look_away(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _judge(self, before: int) -> None:
        # A close would wait for the reader to take the rest, and one that stands still never does.
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the last request: the two hold each other, and with them a body that nobody read."""
        super().connection_lost(exc)
        self._look_away()
        self.cycle = None  # type: ignore[assignment]
