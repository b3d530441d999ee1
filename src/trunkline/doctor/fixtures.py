"""The tasks that an examination makes one way: few, made when first asked for, and shared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from trunkline.clock import random_bits
from trunkline.doctor.finding import NotPossible
from trunkline.doctor.json_access import INTERRUPTED, TERMINAL, JsonPiece, parsed, state_of, text, unwrapped
from trunkline.doctor.webhook import HeardNotification, WebhookListener

if TYPE_CHECKING:
    from trunkline.doctor.binding import FrameLog, ProbeAnswer, ProbeBinding

_Value = TypeVar("_Value")
_POLL_S = 0.1


def new_id() -> str:
    """An id nobody has seen, in the form of a UUID."""
    digits = f"{random_bits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


class Once(Generic[_Value]):
    """Something that takes time and is done once, by whoever asks first."""

    def __init__(self, make: Callable[[], Awaitable[_Value]]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._made: list[_Value] = []
        self._why = ""

    async def __call__(self) -> _Value:
        """What came of it.

        Raises:
            NotPossible: it could not be done, and is not tried again.
        """
        async with self._lock:
            if self._why:
                raise NotPossible(self._why)
            if not self._made:
                try:
                    self._made.append(await self._make())
                except NotPossible as why:
                    self._why = str(why)
                    raise
            return self._made[0]


class Race(Struct, frozen=True):
    """A send without waiting, and a cancel right behind it; `end` is the task a little later."""

    sent: ProbeAnswer
    canceled: ProbeAnswer
    end: ProbeAnswer


class Pushed(Struct, frozen=True):
    """A send with a webhook on this machine, and what it heard."""

    answer: ProbeAnswer
    url: str
    token: str
    heard: tuple[HeardNotification, ...]


class Fixtures:
    """Sends in one way."""

    def __init__(self, way: ProbeBinding) -> None:
        self._way = way
        self.first = Once(self._first)
        self.streamed = Once(self._streamed)
        self.race = Once(self._race)
        self.dropped = Once(self._dropped)
        self.pushed = Once(self._pushed)
        self.context_id = f"doctor-{random_bits(64):016x}"

    def message(self, **more: Any) -> dict[str, Any]:
        """A message to send."""
        said = self._way.subject.options.text
        return {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": said}], **more}

    def sending(self, message: dict[str, Any] | None = None, **configuration: Any) -> dict[str, Any]:
        """The parameters of a send; each is labelled as the doctor's.

        Raises:
            NotPossible: the operator wants nothing sent.
        """
        options = self._way.subject.options
        if not options.sends:
            raise NotPossible("nothing is sent, as --no-send says")
        metadata = {"trunklineDoctor": "probe"}
        if options.skill:
            metadata |= {"skillHint": options.skill, "skill": options.skill}
        found: dict[str, Any] = {"message": message or self.message(), "metadata": metadata}
        return {**found, "configuration": configuration} if configuration else found

    async def send(self, message: dict[str, Any] | None = None, **configuration: Any) -> ProbeAnswer:
        """Send, and give what comes."""
        sent = self.sending(message, **configuration)
        return await self._way.call("send", sent, timeout_s=self._way.subject.send_s)

    async def send_odd(self, message: dict[str, Any]) -> ProbeAnswer:
        """Send a message that is wrong on purpose."""
        sent = self.sending(message)
        return await self._way.call("send", sent, timeout_s=self._way.subject.send_s, odd=True)

    async def sent(self) -> ProbeAnswer:
        """The answer to a plain send that was not refused.

        Raises:
            NotPossible: there is none.
        """
        answer = await self.first()
        if answer.refused or unwrapped(answer.result) is None:
            raise NotPossible(f"the send gave neither a task nor a message: {answer.told()}")
        return answer

    async def task(self) -> dict[str, Any]:
        """The task of a plain send.

        Raises:
            NotPossible: there is none.
        """
        found = unwrapped((await self.sent()).result)
        if found is None or found.kind != "task" or not text(found.value.get("id")):
            raise NotPossible("the agent answers with a message, not with a task")
        return found.value

    async def ended(self) -> dict[str, Any]:
        """A task that has ended.

        Raises:
            NotPossible: there is none, or it does not end in time.
        """
        task = await self.task()
        if state_of(task) in INTERRUPTED:
            raise NotPossible(f"the task waits for its caller ({state_of(task)}); try another --text")
        found = await self.settled(text(task["id"]), task)
        if state_of(found) not in TERMINAL:
            raise NotPossible(f"the task had not ended within {self._way.subject.send_s:g} s")
        return found

    async def settled(self, task_id: str, task: dict[str, Any] | None = None) -> dict[str, Any]:
        """A task once it rests; as it stands if it does not in time, or cannot be read."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._way.subject.send_s / 2
        found = task or {}
        while state_of(found) not in TERMINAL | INTERRUPTED and loop.time() < until:
            answer = await self._way.call("get", {"id": task_id})
            piece = unwrapped(answer.result)
            if answer.refused or piece is None:
                break
            found = piece.value
            if state_of(found) not in TERMINAL | INTERRUPTED:
                await asyncio.sleep(_POLL_S)
        return found

    async def tape(self) -> FrameLog:
        """A stream that was one.

        Raises:
            NotPossible: streams are not declared, or none came.
        """
        self._way.subject.needs("streaming")
        tape = await self.streamed()
        if not tape.is_stream or tape.answer is not None or not tape.frames:
            raise NotPossible("no stream came; see stream-works")
        return tape

    async def _first(self) -> ProbeAnswer:
        return await self.send()

    async def _streamed(self) -> FrameLog:
        return await self._way.follow("stream", self.sending())

    async def _dropped(self) -> FrameLog:
        """A stream that is left after its first frame."""
        await self.tape()
        tape = await self._way.follow("stream", self.sending(), enough=lambda frame: bool(frame.piece))
        if not tape.task_id:
            raise NotPossible("the stream names no task")
        return tape

    async def _pushed(self) -> Pushed:
        """A task whose end is told to this machine."""
        subject = self._way.subject
        if not subject.is_reached:
            raise NotPossible("the agent is elsewhere; say by --local-receiver how it reaches this machine")
        hook = WebhookListener(subject.options.receiver)
        await hook.open()
        try:
            config = {"url": hook.url, "token": hook.token}
            answer = await self.send(self.message(), taskPushNotificationConfig=config)
            if answer.refused or answer.result is None:
                raise NotPossible(f"the agent takes no webhook at this machine: {answer.told()}")
            await hook.wait_for(_tells_end, subject.line.timeout_s)
        finally:
            await hook.close()
        return Pushed(answer, hook.url, hook.token, tuple(hook.heard))

    async def _race(self) -> Race:
        sent = await self.send(self.message(contextId=self.context_id), returnImmediately=True)
        found = unwrapped(sent.result)
        if found is None or found.kind != "task":
            raise NotPossible(f"a send that does not wait gave no task: {sent.told()}")
        task_id = text(found.value.get("id"))
        canceled = await self._way.call("cancel", {"id": task_id})
        await self.settled(task_id)
        return Race(sent, canceled, await self._way.call("get", {"id": task_id}))


def _tells_end(heard: HeardNotification) -> bool:
    found = unwrapped(parsed(heard.body))
    return found is not None and state_of(found.value) in TERMINAL


def task_in(answer: ProbeAnswer) -> dict[str, Any]:
    """The task of an answer; empty if it has none."""
    found = unwrapped(answer.result)
    return found.value if found is not None and found.kind == "task" else {}


def piece_in(answer: ProbeAnswer) -> JsonPiece | None:
    """The object of the protocol in an answer."""
    return unwrapped(answer.result)
