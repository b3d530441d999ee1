"""One agent out there: where it is, how it is spoken to, and how it has behaved of late.

Finds the card and chooses the interface at the first call, once; knows what to do when a call fails.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import sleep
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trunkline.client.negotiation import Negotiation
from trunkline.client.options import Options
from trunkline.client.retry import Budget, Fate, fate_of, is_peer_failure, may_be_taken, pause_s
from trunkline.client.transport import Call, Transport
from trunkline.clock import random_bits
from trunkline.errors import (
    PushNotSupported,
    Refused,
    TaskNotCancelable,
    TimedOut,
    TrunklineError,
    Unauthenticated,
    Uncertain,
    Unreachable,
    Unreadable,
)
from trunkline.net.breaker import Breaker
from trunkline.net.egress import shown
from trunkline.net.http import Headers
from trunkline.telemetry.traces import traceparent
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.service_parameters import IDEMPOTENT_SEND
from trunkline.wire.types import Task, TaskQuery, TaskState

log = logging.getLogger("trunkline.client")
FAILURES = (Refused, Unreachable, Unreadable)
_TARGET = "peer"
_CHANCES = 1 << 20

T = TypeVar("T")
Work = Callable[[Transport, Call], Awaitable[T]]


class Attempts:
    """The attempts of one call so far."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class AgentSession:
    """Makes calls to one agent."""

    def __init__(self, url: str, options: Options, negotiation: Negotiation) -> None:
        self.url = url
        self.options = options
        self.negotiation = negotiation
        self._breaker = Breaker(targets=1)
        self._troubled = False
        self._trouble = ""
        self._budget = Budget()
        self._judged: PeerCard | None = None
        self._declared = False

    @property
    def streams(self) -> bool:
        """Whether the card says that there are streams; without a card it is tried."""
        card = self.negotiation.known
        return card is None or card.streaming

    @property
    def deduplicates(self) -> bool:
        """Whether the agent knows a message that comes twice."""
        said = self.options.deduplicates
        if said is not None:
            return said
        # Asked with every message; the card changes once in a while.
        return self._declared if self.negotiation.known is self._judged else self._declares_idempotence()

    def _declares_idempotence(self) -> bool:
        card = self._judged = self.negotiation.known
        self._declared = card is not None and any(one.uri == IDEMPOTENT_SEND for one in card.extensions)
        return self._declared

    @property
    def follows_safely(self) -> bool:
        """Whether a second stream of a task leaves it as it is.

        Agents on the SDK of 0.3 record for each stream what the task makes, so that they store it twice.
        """
        return self.negotiation.version.startswith("1") or self._declares_idempotence()

    async def ready(self, deadline: float | None = None) -> Transport:
        """The way to speak to it, found and chosen if that has not been done; no work is asked for yet."""
        if (transport := self.negotiation.transport) is not None:
            return transport
        attempts = Attempts()
        while True:
            try:
                return await self.negotiation.open()
            except FAILURES as error:
                self.failed(error)
                if fate_of(error) is Fate.ANSWERED:
                    raise
                await self.pause(error, attempts, deadline)

    async def check_push(self) -> None:
        """Let a caller pass who wants to be told of a task.

        Raises:
            PushNotSupported: the card says that the agent tells nobody.
        """
        await self.ready()
        card = self.negotiation.known
        if card is not None and not card.push:
            raise PushNotSupported(f"{card.name} sends no push notifications; its card says so")

    async def enter(
        self, headers: Headers, message_id: str = "", deadline: float | None = None
    ) -> tuple[Transport, Call]:
        """The transport and headers of one request, once the breaker allows it."""
        transport = self.negotiation.transport or await self.ready(deadline)
        if self._troubled:
            self._admit()
        if (trace := traceparent("")) and not any([name == "traceparent" for name, _ in headers]):
            headers = (*headers, ("traceparent", trace))
        if message_id and self.deduplicates:
            headers = (*headers, ("idempotency-key", message_id))
        return transport, Call(headers, self.options.idle_s)

    async def call(
        self, work: Work[T], *, headers: Headers = (), deadline: float | None = None, message_id: str = ""
    ) -> T:
        """The result of the work, which is tried again where that is safe.

        With `message_id` it is a message: what may have been taken is not sent again, unless the agent knows
        a message that comes twice.
        """
        self._budget.earn()
        attempts: Attempts | None = None
        while True:
            transport, call = await self.enter(headers, message_id, deadline)
            try:
                found = await work(transport, call)
            except FAILURES as error:
                attempts = attempts or Attempts()
                await self.recover(error, attempts, deadline=deadline, message_id=message_id)
                continue
            if self._troubled or not self.negotiation.proven:
                self.fine()
            return found

    async def recover(
        self, error: TrunklineError, attempts: Attempts, *, deadline: float | None, message_id: str = ""
    ) -> None:
        """Make ready for another attempt.

        Raises:
            TrunklineError: there will be none; the error itself, or `Uncertain` for a message that is lost.
        """
        negotiation, fate = self.negotiation, fate_of(error)
        if isinstance(error, Unauthenticated):
            raise Unauthenticated(negotiation.describe_refusal(error.message), **error.details) from error
        # A message that may have been taken is not offered to anybody else.
        is_lost = bool(message_id) and may_be_taken(error)
        failed = negotiation.transport
        if not is_lost and failed is not None and await negotiation.reconsider(failed, error):
            return
        self.failed(error)
        if fate is Fate.ANSWERED:
            raise error
        if is_lost and not self.deduplicates:
            raise _lost(error, message_id) from error
        await self.pause(error, attempts, deadline)

    async def pause(self, error: TrunklineError, attempts: Attempts, deadline: float | None) -> None:
        """Wait before another attempt; raises the error where there may be none."""
        if attempts.count >= self.options.retries or not self._budget.spend():
            raise error
        await self.rest(error, attempts, deadline)

    async def rest(self, error: TrunklineError, attempts: Attempts, deadline: float | None) -> None:
        """Wait as before an attempt; raises the error if that would take too long."""
        attempts.count += 1
        wait = pause_s(error, attempts.count, random_bits(20) / _CHANCES)
        if deadline is not None and asyncio.get_running_loop().time() + wait >= deadline:
            raise error
        log.info(
            "client.retry peer=%a attempt=%d wait_s=%.2f why=%a",
            shown(self.url),
            attempts.count,
            wait,
            str(error),
        )
        await sleep(wait)

    def fine(self) -> None:
        """Note that the agent has answered."""
        self.negotiation.proven = True
        if self._troubled:
            self._forgive()

    def _forgive(self) -> None:
        if self._troubled:
            self._troubled = False
            self._breaker.succeeded(_TARGET)

    def failed(self, error: TrunklineError) -> None:
        """A request failed; whether that speaks against the agent is judged here."""
        if not is_peer_failure(error):
            # Who refuses is there.
            if isinstance(error, Refused):
                self._forgive()
            return
        self._troubled = True
        self._trouble = str(error)
        if self._breaker.failed(_TARGET, asyncio.get_running_loop().time()):
            log.warning("client.peer.down peer=%a why=%a", shown(self.url), str(error))

    @property
    def closed_s(self) -> float:
        """How long the agent is left alone, as it has failed again and again; 0 if it is not."""
        return max(0.0, self._breaker.due(_TARGET) - asyncio.get_running_loop().time())

    def _admit(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._breaker.allows(_TARGET, now):
            why = f"{shown(self.url)} has failed again and again, of late with: {self._trouble}"
            raise Unreachable(
                f"{why}; it is left alone for another {self.closed_s:.0f} seconds", reason="breaker"
            )


class CancelAttempt:
    """The work of one cancel; each attempt is a call of it."""

    __slots__ = ("_lost", "_query")

    def __init__(self, task_id: str) -> None:
        self._query = TaskQuery(task_id)
        self._lost = False

    async def __call__(self, transport: Transport, call: Call) -> Task:
        """The task as it was stopped.

        Raises:
            TaskNotCancelable: it has already ended, and not by an earlier attempt.
        """
        try:
            return await transport.cancel(self._query, call)
        except TaskNotCancelable:
            if not self._lost:
                raise
            # An attempt whose answer was lost may have worked.
            task = await transport.get(self._query, call)
            if task.status.state is TaskState.CANCELED:
                return task
            raise
        except FAILURES as error:
            self._lost = self._lost or may_be_taken(error)
            raise


def _lost(error: TrunklineError, message_id: str) -> TrunklineError:
    """The error for a message whose answer was lost."""
    said = (
        f"{error}; the agent may be doing the work, so message {message_id} is not sent again: look for it "
        "with list, or give deduplicates=True if the agent knows a message that comes twice"
    )
    if isinstance(error, Unreadable):
        return Unreadable(said)
    reason = error.reason if isinstance(error, Unreachable) else "sent"
    return Uncertain(said, reason=reason, message_id=message_id)


def out_of_time(seconds: float, task_id: str, message_id: str) -> TimedOut:
    """The error of a call that took too long as a whole."""
    if task_id:
        rest = f"; task {task_id} goes on: come back with wait or get, or stop it with cancel"
    elif message_id:
        rest = f"; the agent may still work on message {message_id}"
    else:
        rest = ""
    return TimedOut(f"no answer within {seconds:g} seconds{rest}", reason="total")


def with_task(error: TrunklineError, task_id: str) -> TrunklineError:
    """The same error, with how to go on."""
    said = f"{error}; the task is {task_id}: go on with wait or get"
    if isinstance(error, Unreachable):
        kind = TimedOut if isinstance(error, TimedOut) else Unreachable
        return kind(said, reason=error.reason)
    return Unreadable(said) if isinstance(error, Unreadable) else error
