"""Bare HTTP for the tests of processes: hundreds of streams, and whether each one ended as it should."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from trunkline.wire import sse


def rpc(method: str, params: Any, path: str = "/a2a", **headers: str) -> bytes:
    """A whole request of a JSON-RPC method."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "A2A-Version: 1.0",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Stream:
    """One stream, read to its end: the ids it got, the text, and whether it was cut."""

    def __init__(
        self, port: int, method: str, params: Any, after: int | None = None, path: str = "/a2a"
    ) -> None:
        self._port = port
        known = {} if after is None else {"Last_Event_ID": str(after)}
        self._request = rpc(method, params, path, **known)
        self._begun = asyncio.Event()
        self.task_id = ""
        self.ids: list[int] = []
        self.text = ""
        self.state = ""
        self.clean = False
        self.frames: list[Any] = []

    @property
    def last(self) -> int:
        """The id to resume from."""
        return self.ids[-1]

    async def first(self) -> None:
        """Until the first frame is here."""
        await asyncio.wait_for(self._begun.wait(), 60)

    async def read(self) -> None:
        """Read to the end, clean or not."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            assert b"text/event-stream" in head, head
            parser = sse.SseParser()
            while size := int(await reader.readuntil(b"\r\n"), 16):
                for event in parser.feed((await reader.readexactly(size + 2))[:-2]):
                    self._take(event.id, json.loads(event.data))
            self.clean = await reader.readexactly(2) == b"\r\n"
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _take(self, seq: str, data: Any) -> None:
        result = data["result"]
        self.frames.append(result)
        if seq:
            self.ids.append(int(seq))
        match result:
            case {"task": task}:
                self.task_id = task["id"]
                for artifact in task.get("artifacts", ()):
                    self.text += "".join(part["text"] for part in artifact["parts"])
            case {"artifactUpdate": update}:
                # One that does not append tells the artifact whole.
                self.text = self.text if update.get("append") else ""
                self.text += "".join(part["text"] for part in update["artifact"]["parts"])
            case {"statusUpdate": update}:
                self.state = update["status"]["state"].removeprefix("TASK_STATE_").lower()
            case _:
                pass
        self._begun.set()
