"""The tasks that an examination makes over one interface: few, made when first needed, and shared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from trunkline.clock import new_id, random_bits
from trunkline.doctor.check import assume
from trunkline.doctor.exchange import (
    AT_REST,
    INTERRUPTED,
    TERMINAL,
    NotPossible,
    parsed,
    protocol_object,
    state_of,
    text,
)
from trunkline.webhook.listener import IncomingWebhook, WebhookListener

_READ_S = 5.0
_CLOSE = {"Connection": "close"}


class NotificationProbe:
    """Listens at a port of its own. `host` is the name under which the agent reaches this machine.

    That is on loopback, or on all addresses if the agent comes from elsewhere.
    """

    def __init__(self, host: str) -> None:
        self.token = f"{random_bits(128):032x}"
        self.received: list[IncomingWebhook] = []
        self._arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        path = f"/doctor/{random_bits(64):016x}"

        def answer(webhook: IncomingWebhook) -> tuple[int, dict[str, str]]:
            # The path is this examination's secret: whoever else posts here is nobody's agent.
            if webhook.path != path:
                return 404, _CLOSE
            self.received.append(webhook)
            loop.call_soon_threadsafe(self._arrived.set)
            return 200, _CLOSE

        local = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1"}
        self._listener = WebhookListener(answer, local.get(host, ""), idle_s=_READ_S)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._listener.port}{path}"

    async def wait_for(self, wanted: Callable[[IncomingWebhook], bool], timeout_s: float) -> None:
        """Wait until a notification like this has come, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while not any(map(wanted, self.received)):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Stop the receiver of webhooks."""
        await asyncio.to_thread(self._listener.close)


if TYPE_CHECKING:
    from trunkline.doctor.probe import InterfaceProbe, ProbeAnswer

_Value = TypeVar("_Value")
_POLL_S = 0.1


class Once(Generic[_Value]):
    """A value that takes time and is made once, for the first check that needs it; others wait for it."""

    def __init__(self, make: Callable[[], Awaitable[_Value]]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._made: asyncio.Future[_Value] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> _Value:
        """The value, made by the first call.

        Raises:
            NotPossible: it could not be done, and is not tried again.
        """
        async with self._lock:
            if not self._made.done():
                try:
                    self._made.set_result(await self._make())
                except NotPossible as why:
                    self._made.set_exception(why)
            return self._made.result()


def once(make: Callable[[Any], Awaitable[_Value]]) -> cached_property[Once[_Value]]:
    """A method whose value is made by its first call: see `Once`."""
    return cached_property(lambda self: Once(partial(make, self)))


class CancelRace(Struct, frozen=True):
    """A send without waiting, and a cancel right behind it; `end` is the task a little later."""

    sent: ProbeAnswer
    canceled: ProbeAnswer
    end: ProbeAnswer


class Fixtures:
    """Messages, tasks and streams of one interface, each made at most once."""

    def __init__(self, probe: InterfaceProbe) -> None:
        self._probe = probe
        self._send_s = probe.subject.send_s
        self.context_id = f"doctor-{random_bits(64):016x}"

    def sending(self, members: dict[str, Any] | None = None, **configuration: Any) -> dict[str, Any]:
        """The parameters of a send, labelled as the doctor's. The message has the operator's text.

        It also has these members, or has them in place of its own; None leaves one out.

        Raises:
            NotPossible: the operator wants nothing sent.
        """
        options = self._probe.subject.options
        assume(options.sends, "nothing is sent, as --no-send says")
        metadata = {"trunklineDoctor": "probe"}
        if options.skill:
            metadata |= {"skillHint": options.skill, "skill": options.skill}
        message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": options.text}]}
        message = {name: value for name, value in (message | (members or {})).items() if value is not None}
        found: dict[str, Any] = {"message": message, "metadata": metadata}
        return {**found, "configuration": configuration} if configuration else found

    async def send(self, members: dict[str, Any] | None = None, **configuration: Any) -> ProbeAnswer:
        """Send a message, by itself or with a configuration."""
        return await self._probe.call("send", self.sending(members, **configuration), self._send_s)

    async def send_malformed(self, members: dict[str, Any]) -> ProbeAnswer:
        """Send a message that is wrong on purpose, once a sound one was taken.

        Raises:
            NotPossible: sound messages are not taken either.
        """
        await self.sent()
        answer = await self.send(members)
        # Neither the answer nor the task that came of it says anything about the shape of answers.
        received, found = self._probe.received, answer.object
        received[:] = [one for one in received if one[1] is not answer.exchange]
        if found.kind:
            self._probe.subject.malformed_tasks.add(text(found.value.get("id")))
        return answer

    async def sent(self) -> ProbeAnswer:
        """The answer to a plain send that was not refused.

        Raises:
            NotPossible: there is none.
        """
        answer = await self.first()
        given = not answer.refused and answer.object.kind
        assume(given, f"the send gave neither a task nor a message: {answer.summary()}")
        return answer

    async def task(self) -> dict[str, Any]:
        """The task of a plain send.

        Raises:
            NotPossible: there is none.
        """
        task = (await self.sent()).task
        assume(text(task.get("id")), "the agent answers with a message, not with a task")
        return task

    async def ended(self) -> dict[str, Any]:
        """A task that has ended.

        Raises:
            NotPossible: there is none, or it does not end in time.
        """
        task = await self.task()
        state = state_of(task)
        assume(state not in INTERRUPTED, f"the task waits for its caller ({state}); try another --text")
        found = await self.settled(text(task["id"]), task)
        assume(state_of(found) in TERMINAL, f"the task had not ended within {self._send_s:g} s")
        return found

    async def settled(self, task_id: str, task: dict[str, Any] | None = None) -> dict[str, Any]:
        """A task once it rests; its last known state if it does not in time, or cannot be read."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._send_s / 2
        found = task or {}
        while state_of(found) not in AT_REST and loop.time() < until:
            answer = await self._probe.call("get", {"id": task_id})
            if answer.refused or not answer.object.kind:
                break
            found = answer.object.value
            if state_of(found) not in AT_REST:
                await asyncio.sleep(_POLL_S)
        return found

    async def stream(self) -> ProbeAnswer:
        """The stream of a plain message, with at least one frame.

        Raises:
            NotPossible: none came.
        """
        stream = await self.streamed()
        assume(stream.is_stream and stream.frames, "no stream came; see stream-works")
        return stream

    @once
    async def first(self) -> ProbeAnswer:
        """The answer to a plain send, whatever it is."""
        return await self.send()

    @once
    async def streamed(self) -> ProbeAnswer:
        """What comes of a plain message that asks for a stream, whatever it is."""
        return await self._probe.follow("stream", self.sending(), timeout_s=self._send_s)

    @once
    async def dropped(self) -> ProbeAnswer:
        """A stream that is left after its first frame."""
        await self.stream()
        left = await self._probe.follow(
            "stream", self.sending(), timeout_s=self._send_s, enough=lambda frame: bool(frame.object.kind)
        )
        assume(left.task_id, "the stream names no task")
        return left

    @once
    async def followed(self) -> ProbeAnswer:
        """A subscription to the task of a stream that was left."""
        task_id = (await self.dropped()).task_id
        # A task that waits for its caller may be followed for as long as the caller likes.
        stream = await self._probe.follow(
            "subscribe",
            {"id": task_id},
            timeout_s=self._send_s,
            enough=lambda frame: frame.object.state in INTERRUPTED,
        )
        if stream.refused and state_of(await self.settled(task_id)) in TERMINAL:
            raise NotPossible("the task had ended; give --text something that takes a second or two")
        return stream

    @once
    async def followed_unknown(self) -> ProbeAnswer:
        """A subscription to a task that never was."""
        return await self._probe.follow("subscribe", {"id": new_id()})

    @once
    async def followed_ended(self) -> ProbeAnswer:
        """A subscription to a task that has ended."""
        return await self._probe.follow("subscribe", {"id": (await self.ended())["id"]})

    @once
    async def pushed(self) -> tuple[ProbeAnswer, NotificationProbe]:
        """The answer to a send with a webhook at this machine, and what has come to that."""
        subject = self._probe.subject
        elsewhere = "the agent is elsewhere; say by --local-receiver how it reaches this machine"
        assume(subject.is_reached, elsewhere)
        hook = NotificationProbe(subject.options.receiver)
        try:
            config = {"url": hook.url, "token": hook.token}
            answer = await self.send(taskPushNotificationConfig=config)
            taken = not answer.refused and answer.result is not None
            assume(taken, f"the agent takes no webhook at this machine: {answer.summary()}")
            await hook.wait_for(_tells_end, subject.client.timeout_s)
        finally:
            await hook.close()
        return answer, hook

    @once
    async def race(self) -> CancelRace:
        """A task that is canceled right behind its send."""
        sent = await self.send({"contextId": self.context_id}, returnImmediately=True)
        assume(sent.task, f"a send that does not wait gave no task: {sent.summary()}")
        task_id = text(sent.task.get("id"))
        canceled = await self._probe.call("cancel", {"id": task_id})
        await self.settled(task_id)
        return CancelRace(sent, canceled, await self._probe.call("get", {"id": task_id}))


def _tells_end(notification: IncomingWebhook) -> bool:
    return protocol_object(parsed(notification.body)).state in TERMINAL
