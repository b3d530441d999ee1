"""Receivers of webhooks: many ports that answer 200, and perhaps one that never does.

`python -m bench.sink COUNT HANGING` prints its ports; each line on standard input is answered with how many
posts have arrived, and when: `count` or `times`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import monotonic_ns

from bench.generator import HOST, LENGTH

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
END = b"\r\n\r\n"
ID = b"\r\nwebhook-id: "
arrived: dict[str, int] = {}
posts = 0


class Sink(asyncio.Protocol):
    """One connection."""

    def __init__(self, hanging: bool) -> None:
        self._hanging = hanging
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every post that is whole."""
        global posts  # noqa: PLW0603 - one process, one number
        self._data += data
        while (end := self._data.find(END)) >= 0:
            head = self._data[: end + 2]
            length = LENGTH.search(head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._data) < size:
                return
            self._data = self._data[size:]
            if self._hanging:
                continue
            posts += 1
            lower = head.lower()
            place = lower.find(ID)
            if place >= 0:
                name = head[place + len(ID) : head.find(b"\r\n", place + 2)].decode()
                arrived.setdefault(name, monotonic_ns())
            self._transport.write(OK)


async def main(count: int, hanging: int) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    ports: list[int] = []
    for place in range(count):
        server = await loop.create_server(lambda place=place: Sink(place < hanging), HOST, 0, backlog=256)
        ports.append(server.sockets[0].getsockname()[1])
    print(json.dumps(ports), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(arrived if line.strip() == "times" else posts), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
