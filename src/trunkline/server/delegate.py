"""The task API of workflow engines under `/delegate`, where it cannot collide with A2A's own paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from trunkline.errors import RouteNotFound
from trunkline.http.exchange import Exchange
from trunkline.server.caller import Caller
from trunkline.server.operations import Operations
from trunkline.wire.delegate import read_submission, record, request_of
from trunkline.wire.types import TaskQuery

PREFIX = "/delegate/"
_TASKS = PREFIX + "tasks"
# Which verb each path takes.
ROUTES = {_TASKS: "POST", _TASKS + "/{task}": "GET"}
_CREATED = 201


async def perform(
    operations: Operations,
    exchange: Exchange,
    caller: Caller,
    read_body: Callable[[Exchange], Awaitable[bytes]],
) -> tuple[int, bytes]:
    """Submit or poll; gives status and body."""
    path, method = exchange.path, exchange.method
    task_id = path.removeprefix(_TASKS + "/")
    verb = ROUTES[_TASKS] if path == _TASKS else ROUTES[_TASKS + "/{task}"]
    if path != _TASKS and (task_id == path or not task_id or "/" in task_id):
        raise RouteNotFound("no such path here; submit to /delegate/tasks, poll /delegate/tasks/{id}")
    if method != verb:
        raise RouteNotFound(f"this path takes {verb} only", allow=verb)
    if path == _TASKS:
        submission = read_submission(await read_body(exchange))
        request = request_of(submission, _skill_named(operations, submission.agent_id))
        # The correlation id is the engine's word for "the same step again": it never starts a second task.
        known = replace(caller, idempotency_key=submission.correlation_id)
        return _CREATED, record(await operations.submit(known, request))
    return 200, record(await operations.get(caller, TaskQuery(task_id)))


def _skill_named(operations: Operations, name: str) -> str:
    """The skill that a workflow engine means; the agent's own name means its default one.

    Raises:
        RouteNotFound: there is neither a skill nor an agent of that name.
    """
    # Of several agents, which skills there are is known to whoever opens the task.
    return name if operations.executor is None else operations.executor.named(name)
