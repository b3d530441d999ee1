"""Lists of runs: pages of tasks that are runs, by the moment at which they last came to rest."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import FlowRefused
from trunkline.flow.definitions import Definitions
from trunkline.flow.engine.run_messages import order_of, read_awaited, run_task_id
from trunkline.flow.results import PHASES, ListedRun, RunPage, moment_text, read_moment
from trunkline.log.fold import State
from trunkline.log.head import Head
from trunkline.log.ids import Position
from trunkline.run.tasks import Tasks
from trunkline.store.records import ASKING, Where
from trunkline.wire.types import TaskState

LIMIT, MOST = 50, 100
# How many runs are looked at for one page, whatever the filter; the next page goes on behind them.
SEEN_LIMIT = 2000
_STATES: dict[str, TaskState | tuple[TaskState, ...]] = {
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
    "cancelled": TaskState.CANCELED,
    "running": TaskState.WORKING,
    **dict.fromkeys(PHASES.values(), ASKING),
}


class RunListQuery(Struct, frozen=True, kw_only=True):
    """Which runs: what is empty does not matter."""

    phase: str = ""
    definition_name: str = ""
    updated_after: str = ""
    updated_before: str = ""
    limit: int = LIMIT
    cursor: str = ""


async def list_runs(
    tasks: Tasks, definitions: Definitions, tenant: str, where: Where, query: RunListQuery
) -> RunPage:
    """A page of the runs that are `where`, newest first."""
    if query.phase and query.phase not in _STATES:
        raise FlowRefused("VALIDATION_ERROR", f"phase is one of {', '.join(_STATES)}")
    after, since, until = (
        _position(query.cursor, tenant),
        _bound(query, "updated_after"),
        _bound(query, "updated_before"),
    )
    limit = max(1, min(query.limit, MOST))
    where = replace(where, state=_STATES.get(query.phase), status_from=since or None)
    found: list[ListedRun] = []
    seen = 0
    while True:
        page = await tasks.store.heads.list(tenant, where, size=MOST, after=after)
        for head in page.heads:
            if len(found) == limit or seen >= SEEN_LIMIT:
                return RunPage(executions=found, next_cursor=_cursor(after, found))
            seen += 1
            after = Position(head.status_at, head.task_id)
            if until and head.status_at > until:
                continue
            state = await tasks.listed(tenant, head)
            run = None if state is None else await _listed(definitions, tenant, head, state)
            if run is not None and _fits(run, query):
                found.append(run)
        if page.next is None:
            return RunPage(executions=found)


def _fits(run: ListedRun, query: RunListQuery) -> bool:
    return (not query.phase or run.phase == query.phase) and (
        not query.definition_name or run.definition_name == query.definition_name
    )


async def _listed(definitions: Definitions, tenant: str, head: Head, state: State) -> ListedRun | None:
    order = order_of(tenant, state) if state.seq and state.created_at else None
    name = "" if order is None else order.name
    if order is not None and not name:
        try:
            name = (await definitions.get(tenant, order.definition)).definition.name
        except FlowRefused:
            name = ""
    return ListedRun(
        execution_id=head.task_id if order is None else order.execution,
        phase=_phase(head, state),
        definition_name=name,
        updated_at=moment_text(head.status_at),
    )


def _phase(head: Head, state: State) -> str:
    ends: dict[Any, str] = {_STATES[name]: name for name in ("completed", "failed", "cancelled")}
    if head.state in ends:
        return ends[head.state]
    about = read_awaited(state)
    return "running" if about is None else PHASES[about[1].awaits]


def _cursor(after: Position | None, found: list[ListedRun]) -> str:
    if found:
        return f"{found[-1].updated_at}|{found[-1].execution_id}"
    return "" if after is None else f"{moment_text(after.status_at)}|{after.task_id}"


def _position(cursor: str, tenant: str) -> Position | None:
    if not cursor:
        return None
    moment, _, execution = cursor.partition("|")
    try:
        if not moment or not execution:
            raise ValueError
        # A run that a caller over A2A has asked for is known by its task, whose id begins otherwise.
        task = execution if execution.startswith("run-") and len(execution) == len(run_task_id("")) else ""
        return Position(read_moment(moment), task or run_task_id(execution, tenant))
    except ValueError:
        raise FlowRefused("INVALID_LIST_CURSOR", "cursor is not from this list; start without it") from None


def _bound(query: RunListQuery, name: str) -> int:
    given = getattr(query, name)
    try:
        return read_moment(given) if given else 0
    except ValueError:
        raise FlowRefused("VALIDATION_ERROR", f"{name} is no moment, such as 2026-01-31T12:00:00Z") from None
