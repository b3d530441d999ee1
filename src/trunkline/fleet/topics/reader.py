"""Makes frames of the events of tasks, and reads of each task what its topics show."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import StoreError
from trunkline.fleet.call import ApiStruct
from trunkline.fleet.topics.names import (
    NAMED,
    PREVIEW,
    NamedTask,
    Payload,
    TextPiece,
    ends,
    named_task,
    pieces_of,
    progress_of,
    progress_topic,
    topics_of,
)
from trunkline.fleet.topics.patterns import matches
from trunkline.log.events import Recorded, Submitted
from trunkline.store.base import Log
from trunkline.wire.spellings import timestamp

log = logging.getLogger("trunkline.fleet")
# Size limit of the cache of tasks. The first event of any other task is read again.
KNOWN_LIMIT = 1000
# How many events of a task are read again to find out whether it asks, and what it has spent.
_BACK = 200
# Joined text of this length is sent without waiting for more, so that a preview rarely cuts it.
_FULL = PREVIEW // 2
# The answer of a task by its tenant and ID; empty if the task cannot be read.
AnswerOf = Callable[[str, str], Awaitable[str]]


class TopicFrame(ApiStruct, frozen=True):
    """An event under the name of a topic."""

    topic: str
    correlation_id: str
    timestamp: str
    payload: Payload


class TopicSource(Struct, frozen=True):
    """The log of the tasks, what returns their answers, and the agent of tasks that name none."""

    log: Log
    answer_of: AnswerOf
    origin: str


class TopicReader:
    """Makes the frames of one tenant's events that match a pattern; no two subscribers share a reader.

    The text of artifacts comes in many small events. It is joined until another frame of the tenant
    follows, or the caller flushes it.
    """

    def __init__(self, source: TopicSource, tenant: str, pattern: Sequence[str]) -> None:
        self._source = source
        self._tenant = tenant
        self._pattern = pattern
        self._known: dict[str, NamedTask] = {}
        # The text that is in no frame yet, by task and artifact: its task, itself, and when it was written.
        self._held: dict[tuple[str, str], tuple[NamedTask, TextPiece, int]] = {}

    def flush(self) -> list[TopicFrame]:
        """Return the frames of all text that was held back to be joined."""
        held, self._held = self._held, {}
        return [
            _frame(progress_topic(task), task, at, progress_of(task, piece))
            for task, piece, at in held.values()
        ]

    async def frames(self, task_id: str, recorded: Recorded) -> list[TopicFrame]:
        """Return the frames up to the next event of a task, or none while there is only text to join.

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
        is_full = self._join(task, recorded)
        found = [
            _frame(topic, task, recorded.at, payload)
            for topic, payload in topics_of(task, recorded.at, event, answer)
            if matches(self._pattern, topic)
        ]
        return [*self.flush(), *found] if found or is_full else []

    def _join(self, task: NamedTask, recorded: Recorded) -> bool:
        """Hold the text of an event back; return whether what is held is long enough to be sent."""
        pieces = pieces_of(recorded.event)
        if not pieces or not matches(self._pattern, progress_topic(task)):
            return False
        is_full = False
        for piece in pieces:
            key = task.task_id, piece.artifact_id
            if key in self._held and piece.append:
                before = self._held[key][1]
                piece = replace(before, text=(before.text + piece.text)[:PREVIEW])
            self._held[key] = task, piece, recorded.at
            is_full = is_full or len(piece.text) >= _FULL
        return is_full

    async def _task(self, task_id: str, recorded: Recorded) -> NamedTask | None:
        found = self._known.get(task_id)
        if found is None:
            found = (
                named_task(task_id, recorded.at, recorded.event, self._source.origin)
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
        """Return a task as it was before an event; None if it is deleted or cannot be read."""
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
        found = named_task(task_id, first[0].at, first[0].event, self._source.origin)
        for one in before:
            if one.seq < seq:
                # Replayed for what it changes in the task; its topics were sent before.
                deque(topics_of(found, one.at, one.event), maxlen=0)
        return found


def _frame(topic: str, task: NamedTask, at: int, payload: Payload) -> TopicFrame:
    return TopicFrame(topic, task.correlation_id, timestamp(at), payload)
