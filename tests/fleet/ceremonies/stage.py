"""A scheduler on a store, with agents that do nothing but end when they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from trunkline.errors import Refused
from trunkline.fleet.ceremonies.ceremony import Ceremony, CeremonyForm, ceremony_of, file_ceremony
from trunkline.fleet.ceremonies.report_sender import Tell
from trunkline.fleet.ceremonies.runs import CeremonyReport, progress_of, run_item, subject
from trunkline.fleet.ceremonies.scheduler import Fire, Scheduler
from trunkline.fleet.journal import Journal, Journals
from trunkline.log.events import Status, Submitted
from trunkline.run.tasks import Tasks
from trunkline.store.base import Store
from trunkline.store.records import Where
from trunkline.wire.types import TaskState

# A whole minute.
NOON = 1_800_000_000_000
MINUTE = 60_000
LEAST = {
    "id": "standup",
    "name": "Stand-up",
    "schedule": "* * * * *",
    "skill": "report",
    "targets": ["writer"],
}


def ceremony(**members: Any) -> Ceremony:
    return ceremony_of(msgspec.convert({**LEAST, **members}, CeremonyForm), "north", NOON)


def filed(**members: Any) -> Ceremony:
    return file_ceremony({**LEAST, "tenant": "north", **members}, "standup")


class Killed(BaseException):
    """The end of a process."""


class Stage:
    """One replica: its scheduler, the tasks that it opened, and where it dies."""

    def __init__(self, store: Store, *ceremonies: Ceremony) -> None:
        self.store = store
        self.tasks = Tasks(store)
        self.ceremonies = {one.key: one for one in ceremonies}
        self.agents = ["writer", "reader"]
        self.is_settled = True
        self.is_draining = False
        # What opening a task for one of these agents raises.
        self.refusal: Refused | None = None
        self.refused = {"writer", "reader", "all"}
        self.steps = 0
        self.dies_at = -1
        # What happens at a step, by its number.
        self.at_step: dict[int, Callable[[], None]] = {}
        self.told: list[CeremonyReport] = []
        self.listens = True
        self.stopped: list[str] = []
        self.monotonic_ms = 0
        self.tell: Tell = self._tell
        self.scheduler = Scheduler(
            cast("Store", _Mortal(store, self)),
            lambda: self.ceremonies,
            open_task=self.step(self.open_task),
            stop_task=self.step(self.stop_task),
            agents_of=lambda tenant, skill: self.agents,
            tell=lambda one, report: self.tell(one, report),
            knows=lambda tenant, agent: agent in self.agents,
            is_settled=lambda: self.is_settled,
            is_draining=lambda: self.is_draining,
            monotonic_ms=lambda: self.monotonic_ms,
        )

    def step(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call that the process may die before, or after."""

        async def counted(*args: Any, **named: Any) -> Any:
            self._count()
            found = await call(*args, **named)
            self._count()
            return found

        return counted

    def _count(self) -> None:
        self.steps += 1
        self.at_step.get(self.steps, lambda: None)()
        if self.steps == self.dies_at:
            raise Killed

    async def open_task(self, fire: Fire) -> None:
        if self.refusal is not None and fire.target in self.refused:
            raise self.refusal
        event = Submitted(
            message=fire.message, context_id=fire.run_id, principal=fire.principal, node="", agent=fire.target
        )
        await self.tasks.append(self.tasks.begin(fire.tenant, fire.task_id), [event])

    async def stop_task(self, tenant: str, task_id: str, by: str) -> None:
        self.stopped.append(task_id)
        await self.end(task_id, TaskState.CANCELED)

    async def _tell(self, one: Ceremony, report: CeremonyReport) -> bool:
        self.told.append(report)
        return self.listens

    async def end(self, task_id: str, state: TaskState = TaskState.COMPLETED) -> None:
        feed = await self.tasks.load("north", task_id)
        assert feed is not None
        await self.tasks.append(feed, [Status(state)])

    async def opened(self) -> dict[str, TaskState]:
        """Every task that there is, by its id."""
        page = await self.store.heads.list("north", Where(), size=200)
        return {head.task_id: head.state for head in page.heads}

    async def journal(self) -> Journal:
        return await Journals(self.store.docs).read("north", subject("standup"))

    async def rows(self, kind: str) -> list[dict[str, Any]]:
        return [row.about for row in (await self.journal()).rows if row.kind == kind]

    async def items(self) -> list[dict[str, Any]]:
        """The open runs as the API shows them."""
        journal = await self.journal()
        return [
            run_item(run, await self.scheduler.heads(ceremony(), run)) for run in progress_of(journal).open
        ]

    async def open_runs(self) -> list[str]:
        return [run.first_task for run in progress_of(await self.journal()).open]


class _Mortal:
    """A store whose calls are steps."""

    def __init__(self, part: Any, stage: Stage) -> None:
        self._part = part
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name in ("docs", "heads"):
            return _Mortal(found, self._stage)
        return self._stage.step(found) if name in ("get", "put") else found
