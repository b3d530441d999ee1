"""Row 88: the same kills while callers of A2A, of both versions, have their tasks done by agents behind the hub."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from tests.chaos.checker import Violation
from tests.chaos.elsewhere import OVER, SKILLS, STREAMS, Orders, endure, wanted
from tests.chaos.peer import FORGETS, KNOWS, OLD
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row
from tests.harness import message, plain_state

_METHODS = {
    "1.0": ("SendMessage", "SendStreamingMessage", "SubscribeToTask"),
    "0.3": ("message/send", "message/stream", "tasks/resubscribe"),
}
_PAUSE_S = 0.1


class Call:
    """One message of a caller, and what it has heard of its task."""

    def __init__(self, orders: Relayed, agent: str, text: str, version: str) -> None:
        self._orders = orders
        self._agent = agent
        self._version = version
        self._message = message(text, version, metadata={"skillHint": SKILLS.get(agent, agent)})
        self.wanted = wanted(agent, text)
        self.task_id = ""
        self.state = ""
        self.text = ""
        self._last = -1

    async def send(self) -> None:
        """Have a receipt; what broke is said again with the same id."""
        waits = {"returnImmediately": True} if self._version == "1.0" else {"blocking": False}
        method, params = _METHODS[self._version][0], {"message": self._message, "configuration": waits}
        while not self.task_id:
            try:
                answer = await self._orders.http.post(await self._url(), **self._asking(method, params))
            except httpx2.HTTPError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.status_code == 200:
                result = answer.json()["result"]
                self._hear(result.get("task", result))

    async def read(self) -> None:
        """Read the stream to a rest; one that breaks goes on behind the last event that came."""
        _, stream, subscribe = _METHODS[self._version]
        while self.state not in (*OVER, "input-required"):
            asked = self._asking(stream, {"message": self._message})
            if self.task_id:
                asked = self._asking(subscribe, {"id": self.task_id})
                asked["headers"]["Last-Event-ID"] = str(self._last)
                self._orders.resumed += 1
            try:
                async with self._orders.http.stream("POST", await self._url(), **asked) as response:
                    await self._follow(response)
            except httpx2.HTTPError:
                await asyncio.sleep(_PAUSE_S)
        self._orders.read += 1
        if self.state == "completed" and self.text.strip() != self.wanted:
            self._violate("STREAM", f"{self.text!r} was read, not {self.wanted!r}")

    async def _follow(self, response: httpx2.Response) -> None:
        if response.status_code != 200:
            await asyncio.sleep(_PAUSE_S)
            return
        async for seq, data in _frames(response):
            if "error" in data:
                self._violate("STREAM", f"resumed after {self._last}: {data['error']}")
                self.state = "failed"
                return
            if seq <= self._last:
                self._violate("STREAM", f"event {seq} came after {self._last}")
            self._last = seq
            result = data["result"]
            inner = result if "kind" in result else next(iter(result.values()))
            self._hear(inner)

    def _hear(self, told: dict[str, Any]) -> None:
        """Take a task or an update of one."""
        self.task_id = told.get("taskId") or told.get("id") or self.task_id
        if "artifact" in told:
            self.text = (self.text if told.get("append") else "") + _text(told["artifact"])
        elif told.get("artifacts"):
            self.text = "".join([_text(one) for one in told["artifacts"]])
        if "status" in told:
            self.state = plain_state(told)

    def _violate(self, kind: str, what: str) -> None:
        self._orders.broken.append(Violation(kind, self.task_id, f"{self._agent} {self._version}: {what}"))

    async def _url(self) -> str:
        hub = self._orders.random.choice(self._orders.hubs)
        await hub.up.wait()
        return f"{hub.base}/v1/a2a/agents/{self._agent}"

    def _asking(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {"A2A-Version": "1.0"} if self._version == "1.0" else {}
        body = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params}
        return {"json": body, "headers": headers}


class Relayed(Orders):
    """Orders of callers at the address of each agent; half of them read streams."""

    agents = (KNOWS, FORGETS, STREAMS, OLD)
    read = resumed = 0

    async def begin(self, agent: str, text: str) -> tuple[str, str]:
        """See `Orders`."""
        call = Call(self, agent, text, self.random.choice(("1.0", "0.3")))
        await (call.read() if self.random.random() < 0.5 else call.send())
        return call.task_id, call.state

    def more(self) -> str:
        """See `Orders`."""
        return f", {self.read} streams read, {self.resumed} times resumed"


async def _frames(response: httpx2.Response) -> AsyncIterator[tuple[int, Any]]:
    seq, data = -1, ""
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            seq = int(line[3:])
        elif line.startswith("data:"):
            data = line[5:]
        elif not line and data:
            yield seq, json.loads(data)
            data = ""


def _text(artifact: dict[str, Any]) -> str:
    return "".join([part.get("text", "") for part in artifact["parts"]])


@row(
    88, "gateway, agent or both killed in the middle of relayed tasks; agents of 0.3 and 1.0, with and without dedup; two gateways on PostgreSQL",
    "200 kills a store: nothing lost, nothing sent twice, every stream resumed by its last id without gap or repetition",
    SQLITE, POSTGRES, name="relay",
)  # fmt: skip
async def row_88(run: Run) -> Result:
    return await endure(run, Relayed, 200)
