"""The children of one task: other tasks of the same store, opened through the runner of its node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from trunkline.errors import InvalidParams, StoreError, TaskNotCancelable, TaskNotFound
from trunkline.log.fold import State
from trunkline.run.buffer import RETRY_S
from trunkline.run.feed import Feed
from trunkline.run.tasks import not_found
from trunkline.telemetry import traces
from trunkline.wire.types import Message, SendRequest

if TYPE_CHECKING:
    from trunkline.run.runner import Runner

log = logging.getLogger("trunkline.run")


class OpenedTasks:
    """The children of one task, which its executor opens through the runner of its node."""

    __slots__ = ("_parent", "_runner")

    def __init__(self, runner: Runner, parent: Feed) -> None:
        self._runner = runner
        self._parent = parent

    async def open(self, child: str, agent: str, request: SendRequest, *, is_new: bool = False) -> None:
        """Open a task of an agent under this id, unless that was done before.

        Raises:
            Refused: nobody here takes it, or the id is that of a task which is no child of this one.
        """
        tenant, parent = self._parent.tenant, self._parent.state
        feed = None if is_new else await self._load(child)
        while feed is None:
            try:
                _, ack = self._runner.submit(
                    tenant,
                    parent.principal,
                    request,
                    agent=agent,
                    parent=parent.task_id,
                    task_id=child,
                    trace=traces.traceparent(parent.trace),
                )
            except KeyError:
                raise InvalidParams(f"there is no agent {agent!r} here", field="target") from None
            try:
                await ack
            except StoreError as error:
                # Whether it was written is seen by the next look; its parent waits for it in any case.
                await self._wait(child, error)
            feed = await self._load(child)
        if feed.state.seq and feed.state.parent != parent.task_id:
            raise InvalidParams(f"there is a task {child} already, and it is not this one's", field="task.id")

    async def state(self, child: str) -> State:
        """A child as its log stands."""
        return (await self._feed(child)).state

    async def answer(self, child: str, message: Message) -> None:
        """Say something to a child."""
        while True:
            try:
                return await self._runner.say(await self._feed(child), message)
            except StoreError as error:
                await self._wait(child, error)

    async def cancel(self, child: str) -> None:
        """Have a child end, unless it has."""
        feed = await self._load(child)
        if feed is not None and not feed.state.over:
            with contextlib.suppress(TaskNotCancelable, TaskNotFound):
                await self._runner.cancel(feed, self._parent.state.principal)

    async def _feed(self, child: str) -> Feed:
        feed = await self._load(child)
        if feed is None:
            raise not_found(child)
        return feed

    async def _load(self, child: str) -> Feed | None:
        while True:
            try:
                return await self._runner.tasks.load(self._parent.tenant, child)
            except StoreError as error:
                await self._wait(child, error)

    async def _wait(self, child: str, error: StoreError) -> None:
        """Wait for a store that is away: like every word of the parent, a call outlasts that."""
        if error.damaged_task:
            raise error
        log.error("child.unreached task=%s child=%s error=%s", self._parent.state.task_id, child, error)
        await asyncio.sleep(RETRY_S)
