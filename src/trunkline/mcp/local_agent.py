"""An agent of this host as tool calls need it: through the same typed operations as every other binding."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from trunkline.auth.principal import Principal
from trunkline.client.message import Sending, compose
from trunkline.client.result import Result
from trunkline.server.caller import Caller
from trunkline.server.operations import Operations
from trunkline.wire.types import RESTING, Correlation, Part, Task, TaskQuery
from trunkline.wire.writer import Dialect

# A task that does not move is looked at all the same: it may have moved to another process.
_LOOK_S = 5.0


class LocalAgent:
    """An agent of this host, for one caller."""

    def __init__(self, operations: Operations, principal: Principal, correlation: Correlation | None) -> None:
        self._operations = operations
        self._caller = Caller(principal, Dialect.V1, wait=False, correlation=correlation)

    async def begin(
        self, parts: Sequence[Part], *, skill: str = "", task_id: str = "", question: str = ""
    ) -> Result:
        """Take the parts as a message of the caller."""
        said = Sending(skill=skill, task_id=task_id, question=question)
        found = await self._operations.send(self._caller, compose(list(parts), said, wait=False))
        return Result(found) if isinstance(found, Task) else Result(message=found)

    async def moves(self, task_id: str) -> AsyncGenerator[Result]:
        """The task whenever its log has moved; it ends early when the host goes down."""
        query = TaskQuery(task_id)
        while True:
            found, goes_on = await self._operations.moved(self._caller, query, _LOOK_S)
            yield Result(found)
            if found.status.state in RESTING or not goes_on:
                return

    async def get(self, task_id: str) -> Result:
        """The task as it stands."""
        return Result(await self._operations.get(self._caller, TaskQuery(task_id)))

    async def cancel(self, task_id: str) -> Result:
        """Stop the task."""
        return Result(await self._operations.cancel(self._caller, TaskQuery(task_id)))
