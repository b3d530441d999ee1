"""Stops a task, also where the answer to that is lost on its way."""

from __future__ import annotations

from trunkline.client.retry import may_be_taken
from trunkline.client.session import FAILURES
from trunkline.client.transport import Call, Transport
from trunkline.errors import TaskNotCancelable
from trunkline.wire.types import Task, TaskQuery, TaskState


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
