"""The crowd: clients that do a seeded mix of everything callers do, and come back after every break."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.chaos.client import BROKEN, Client, NotSent, Refusal, note, now_ms, plain_state, seen
from tests.chaos.fleet import KEYS, Server
from tests.chaos.history import OK, REFUSED, History, Reading, Told

OVER = {"completed", "failed", "canceled", "rejected"}
SETTLE_S = 60.0
# The server says that it cannot now; whoever asks again may be served.
LATER = ("-32603",)


class Crowd:
    """All clients of a run."""

    def __init__(
        self, servers: Sequence[Server], history: History, seed: int, count: int = 50, pause_s: float = 0
    ) -> None:
        self.servers = servers
        # The longest rest between two acts of one client.
        self.pause_s = pause_s
        self.history = history
        self.stopping = asyncio.Event()
        self.acks = 0
        self.last_ack = 0.0
        # Ids that anybody may try to pry into.
        self.ids: list[tuple[str, str]] = []
        names = list(KEYS)
        self.callers = [Caller(self, names[place % len(names)], seed, place) for place in range(count)]
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._work = asyncio.create_task(self._all())

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for caller in self.callers:
                group.create_task(caller.run())

    async def settle(self) -> None:
        """No new work; everybody reads and answers to the end."""
        self.stopping.set()
        assert self._work is not None
        await self._work

    def acked(self) -> None:
        """A write was acknowledged."""
        self.acks += 1
        self.last_ack = time.monotonic()

    async def until_ack(self, after: int, limit_s: float = 30.0) -> None:
        """Until one more write was acknowledged."""
        deadline = time.monotonic() + limit_s
        while self.acks <= after and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class Caller:
    """One client."""

    def __init__(self, crowd: Crowd, who: str, seed: int, place: int) -> None:
        self.crowd = crowd
        self.who = who
        self.random = random.Random(f"{seed}-{place}")
        self.client = Client(who, KEYS[who], crowd.history)
        self.open: list[str] = []
        self.asked: list[str] = []
        self._deadline = 0.0

    async def run(self) -> None:
        """Work until the crowd is told to stop, then bring everything to an end."""
        acts: list[tuple[Callable[[Server], Awaitable[None]], int]] = [
            (self.quick, 5), (self.receipt, 2), (self.stream, 5), (self.watch, 2), (self.cancel, 2),
            (self.question, 2), (self.get, 2), (self.list, 1), (self.pry, 1), (self.slow, 1), (self.steady, 2),
        ]  # fmt: skip
        each, weights = zip(*acts, strict=True)
        try:
            while not self.crowd.stopping.is_set():
                server = await self._server()
                try:
                    await self.random.choices(each, weights)[0](server)
                except NotSent:
                    await asyncio.sleep(0.02)
                if self.crowd.pause_s:
                    await asyncio.sleep(self.random.random() * self.crowd.pause_s)
            await self._finish()
        finally:
            self.client.close()

    async def _server(self) -> Server:
        """Any server that is up."""
        while True:
            up = [server for server in self.crowd.servers if server.up.is_set()]
            if up:
                return self.random.choice(up)
            await asyncio.sleep(0.005)

    @property
    def _late(self) -> bool:
        """Whether even the settling takes too long."""
        if self._deadline:
            return time.monotonic() > self._deadline
        if self.crowd.stopping.is_set():
            self._deadline = time.monotonic() + SETTLE_S
        return False

    def _id(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def _message(self, text: str, skill: str, message_id: str, **more: str) -> dict[str, Any]:
        return {
            "messageId": message_id,
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **({"metadata": {"skillHint": skill}} if skill else {}),
            **more,
        }

    async def _send(
        self,
        text: str,
        skill: str,
        *,
        wait: bool,
        wants: str | None = None,
        must: str = "",
        task_id: str = "",
    ) -> Any:
        """Send until there is an answer: a repeat is the same message, and must find the same task."""
        message_id = self._id()
        more = {"taskId": task_id} if task_id else {}
        params = {
            "message": self._message(text, skill, message_id, **more),
            "configuration": {"returnImmediately": not wait},
        }
        repeat = False
        while not self._late:
            told = Told(
                "say" if task_id else "send", self.who, "", now_ms(),
                message_id=message_id, task_id=task_id, wants=wants, must=must, repeat=repeat,
            )  # fmt: skip
            try:
                result = await self.client.call(await self._server(), "SendMessage", params, told)
            except NotSent:
                await asyncio.sleep(0.02)
                continue
            if result is not None:
                task = result["task"]
                told.task_id = task["id"]
                told.seen = [seen(task)]
                self.crowd.acked()
                if not task_id:
                    self.crowd.ids.append((self.who, task["id"]))
                return task
            if told.outcome == REFUSED and not told.error.startswith(LATER):
                return None
            repeat = True
            await asyncio.sleep(0.02)
        return None

    # What a caller does

    async def quick(self, _: Server) -> None:
        """A question and its answer."""
        text = f"canary-{self.who} {self.random.random()}"
        await self._send(text, "quick", wait=True, wants=text)

    async def slow(self, _: Server) -> None:
        """A skill that holds a thread."""
        text = f"{self.random.randrange(80)} canary-{self.who}"
        await self._send(text, "slow", wait=True, wants=text)

    def _pieces(self) -> tuple[str, str, str]:
        """A text, the skill it is for, and what that writes."""
        count = self.random.randrange(3, 40)
        skill, word = self.random.choice(
            [("pieces", "p."), ("pieces", "p."), ("again", "p."), ("steady", "")]
        )
        places = [place if word else place * place for place in range(count)]
        wants = "".join(f"{word}{place} " for place in places)
        return f"{count} {self.random.choice((0, 1, 5, 20))} canary-{self.who}", skill, wants

    async def receipt(self, _: Server) -> None:
        """Work that is asked after later."""
        text, skill, wants = self._pieces()
        task = await self._send(text, skill, wait=False, wants=wants)
        if task is not None:
            self.open.append(task["id"])

    async def steady(self, _: Server) -> None:
        """Work that no crash may stop: steps with a question in the middle."""
        task = await self._send(f"canary-{self.who}", "talk", wait=True, must="completed")
        if task is not None:
            # Nobody cancels these.
            self.asked.append(task["id"])
            if plain_state(task) == "input-required" and self.random.random() < 0.9:
                await self._answer(task["id"], "9 {} 16 ")

    async def question(self, _: Server) -> None:
        """Work that asks back."""
        task = await self._send(f"canary-{self.who}", "ask", wait=True)
        if task is None:
            return
        self.asked.append(task["id"])
        if plain_state(task) == "input-required" and (chance := self.random.random()) < 0.9:
            watching = self._watch(await self._server(), task["id"]) if chance < 0.3 else _nothing()
            await asyncio.gather(watching, self._answer(task["id"], "{}"))

    async def _answer(self, task_id: str, wants: str = "") -> None:
        text = f"canary-{self.who} {self.random.random()}"
        await self._send(text, "", wait=True, wants=wants.format(text) if wants else None, task_id=task_id)

    async def _ask(self, kind: str, method: str, server: Server, task_id: str) -> Any:
        told = Told(kind, self.who, "", now_ms(), task_id=task_id)
        task = await self.client.call(server, method, {"id": task_id}, told)
        if task is not None:
            told.seen = [seen(task)]
        elif told.outcome == REFUSED and told.error.startswith("-32001") and kind != "pry":
            self._lost(task_id, told.error)
        return task

    def _lost(self, task_id: str, error: str) -> None:
        """An acknowledged task that a server does not know."""
        self.crowd.history.told.append(
            Told("lost", self.who, "", now_ms(), outcome=REFUSED, task_id=task_id, error=error)
        )

    async def get(self, server: Server) -> None:
        """How is it going?"""
        if self.open:
            await self._ask("get", "GetTask", server, self.random.choice(self.open))

    async def cancel(self, server: Server) -> None:
        """Stop something that may run or not."""
        if self.random.random() < 0.5:
            task = await self._send(f"200 20 canary-{self.who}", "pieces", wait=False)
            if task is None:
                return
            self.open.append(task["id"])
            await asyncio.sleep(self.random.random() / 5)
        if self.open:
            await self._ask("cancel", "CancelTask", server, self.random.choice(self.open[-3:]))

    async def list(self, server: Server) -> None:
        """A page of everything."""
        told = Told("list", self.who, "", now_ms())
        page = await self.client.call(server, "ListTasks", {"pageSize": 20}, told)
        if page is not None:
            told.seen = [seen(task) for task in page["tasks"]]

    async def pry(self, server: Server) -> None:
        """Somebody else's task."""
        if self.crowd.ids:
            owner, task_id = self.random.choice(self.crowd.ids)
            if owner != self.who:
                method = self.random.choice(("GetTask", "CancelTask"))
                await self._ask("pry", method, server, task_id)

    async def watch(self, server: Server) -> None:
        """Join a task that already runs: first the task, then what follows."""
        if self.open:
            await self._watch(server, self.random.choice(self.open[-3:]))

    async def _watch(self, server: Server, task_id: str) -> None:
        reading = Reading(self.who, task_id, snapshot=True)
        try:
            await self._read(server, reading, "SubscribeToTask", {"id": task_id})
        except (Refusal, NotSent):
            return
        if reading.frames:
            await self._read_on(reading)

    async def stream(self, server: Server) -> None:
        """Send and read to the end, over every break."""
        message_id = self._id()
        text, skill, wants = self._pieces()
        message = self._message(text, skill, message_id)
        told = Told("send", self.who, "", now_ms(), message_id=message_id, wants=wants)
        reading = Reading(self.who, "", snapshot=False)
        self.crowd.history.told.append(told)
        try:
            await self._read(server, reading, "SendStreamingMessage", {"message": message}, told)
        except NotSent:
            self.crowd.history.told.pop()
            raise
        except Refusal as refusal:
            told.outcome, told.error = REFUSED, str(refusal)
            return
        if not reading.task_id:
            # It broke before the first word; the same message again is the same task.
            task = await self._send_again(message)
            if task is None:
                return
            reading.task_id, reading.snapshot = task["id"], True
        await self._read_on(reading)

    async def _send_again(self, message: dict[str, Any]) -> Any:
        while not self._late:
            told = Told("send", self.who, "", now_ms(), message_id=message["messageId"], repeat=True)
            params = {"message": message, "configuration": {"returnImmediately": True}}
            try:
                result = await self.client.call(await self._server(), "SendMessage", params, told)
            except NotSent:
                result = None
            if result is not None:
                told.task_id, told.seen = result["task"]["id"], [seen(result["task"])]
                self.crowd.acked()
                return result["task"]
            if told.outcome == REFUSED and not told.error.startswith(LATER):
                return None
            await asyncio.sleep(0.02)
        return None

    async def _read(
        self, server: Server, reading: Reading, method: str, params: Any, told: Told | None = None
    ) -> None:
        """One connection's worth of frames; a break is no error, the next one goes on."""
        hang_up = self.random.randrange(1, 30) if self.random.random() < 0.2 else 0
        headers = []
        if reading.frames and method == "SubscribeToTask":
            headers = [f"Last-Event-ID: {reading.frames[-1].seq}"]
        count = 0
        try:
            async for frame, result, data in self.client.frames(server, method, params, *headers, told=told):
                if frame.seq is None:
                    continue
                if not reading.frames:
                    task = result["task"]
                    if not reading.task_id:
                        reading.task_id = task["id"]
                        self.crowd.ids.append((self.who, task["id"]))
                    if told is not None:
                        told.outcome, told.task_id, told.returned = OK, task["id"], now_ms()
                        self.crowd.acked()
                    self.crowd.history.readings.append(reading)
                note(reading, frame, data)
                if frame.state in OVER:
                    reading.ended = True
                count += 1
                if count == hang_up:
                    return
        except BROKEN:
            return

    async def _read_on(self, reading: Reading) -> None:
        """Resume anywhere until the end."""
        while not reading.ended:
            if self._late:
                reading.starved = True
                return
            reading.resumes += 1
            try:
                await self._read(await self._server(), reading, "SubscribeToTask", {"id": reading.task_id})
            except NotSent:
                await asyncio.sleep(0.02)
            except Refusal as refusal:
                if not reading.frames and refusal.code == -32004:
                    # Ended before we saw a word of it: there is nothing to follow.
                    return
                if not str(refusal).startswith(LATER):
                    self._lost(reading.task_id, f"Last-Event-ID refused: {refusal}")
                    return
                await asyncio.sleep(0.02)

    async def _finish(self) -> None:
        """Everything that is open comes to rest; what is asked is answered."""
        for task_id in (*self.open, *self.asked):
            while not self._late:
                try:
                    task = await self._ask("get", "GetTask", await self._server(), task_id)
                except NotSent:
                    await asyncio.sleep(0.02)
                    continue
                if task is None:
                    await asyncio.sleep(0.05)
                    if self.crowd.history.told[-1].kind == "lost":
                        break
                elif plain_state(task) == "input-required":
                    await self._answer(task_id)
                elif plain_state(task) in OVER:
                    break
                else:
                    await asyncio.sleep(0.05)


async def _nothing() -> None:
    """For whoever does not watch."""
