"""Reads tasks as far as their topics need it, and makes frames of their events."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from trunkline.errors import StoreError
from trunkline.fleet.call import ApiStruct
from trunkline.fleet.topics.names import NAMED, NamedTask, Payload, ends, named_task, topics_of
from trunkline.fleet.topics.patterns import matches
from trunkline.log.events import Recorded, Status, Submitted
from trunkline.store.base import Log
from trunkline.wire.spellings import timestamp
from trunkline.wire.types import INTERRUPTED

log = logging.getLogger("trunkline.fleet")
# Tasks that are remembered; the beginning of any other is read again.
KNOWN_LIMIT = 1000
# How far back the log of a task is read to know whether it asks.
_BACK = 200
# What a task gave, by its tenant and id; empty if it cannot be read.
AnswerOf = Callable[[str, str], Awaitable[str]]


class TopicFrame(ApiStruct, frozen=True):
    """An event under the name of a topic."""

    topic: str
    correlation_id: str
    timestamp: str
    payload: Payload


class TopicSource(Struct, frozen=True):
    """Where the events of tasks are, and whose tasks name no agent."""

    log: Log
    answer_of: AnswerOf
    origin: str


class TopicReader:
    """Gives the frames of one tenant's events that a pattern stands for; each reader is on its own."""

    def __init__(self, source: TopicSource, tenant: str, pattern: Sequence[str]) -> None:
        self._source = source
        self._tenant = tenant
        self._pattern = pattern
        self._known: dict[str, NamedTask] = {}

    async def frames(self, task_id: str, recorded: Recorded) -> list[TopicFrame]:
        """The frames of the next event of a task.

        Raises:
            StoreError: the store does not answer.
        """
        event = recorded.event
        if not isinstance(event, NAMED):
            return []
        task = await self._task(task_id, recorded)
        if task is None:
            return []
        answer = ""
        is_over = ends(event)
        if is_over:
            answer = await self._source.answer_of(self._tenant, task_id)
            self._known.pop(task_id, None)
        return [
            TopicFrame(topic, task.correlation_id, timestamp(recorded.at), payload)
            for topic, payload in topics_of(task, event, answer)
            if matches(self._pattern, topic)
        ]

    async def _task(self, task_id: str, recorded: Recorded) -> NamedTask | None:
        found = self._known.get(task_id)
        if found is None:
            found = (
                named_task(task_id, recorded.event, self._source.origin)
                if isinstance(recorded.event, Submitted)
                else await self._looked_up(task_id, recorded.seq)
            )
            if found is None:
                return None
            while len(self._known) >= KNOWN_LIMIT:
                del self._known[next(iter(self._known))]
            self._known[task_id] = found
        return found

    async def _looked_up(self, task_id: str, seq: int) -> NamedTask | None:
        """A task as it was before an event; None if it is no longer there, or cannot be read."""
        read = self._source.log.read
        try:
            first = await read(self._tenant, task_id, 0, 1)
            before = await read(self._tenant, task_id, max(0, seq - 1 - _BACK), _BACK)
        except StoreError as error:
            if error.damaged_task != task_id:
                raise
            log.warning("topics.unnamed task=%s error=%s", task_id, error)
            return None
        if not first or not isinstance(first[0].event, Submitted):
            return None
        found = named_task(task_id, first[0].event, self._source.origin)
        told = [one.event.state for one in before if one.seq < seq and isinstance(one.event, Status)]
        found.asks = told[-1] if told and told[-1] in INTERRUPTED else None
        return found
