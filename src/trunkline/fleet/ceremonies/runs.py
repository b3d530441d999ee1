"""The runs of a ceremony, and what is to be done about them next. Pure.

A run is decided in the journal of its ceremony, by compare-and-set, before its tasks are opened; their ids
follow from it. So each planned moment has one run, whoever dies and however many replicas there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from trunkline.fleet.ceremonies.ceremony import Ceremony
from trunkline.fleet.ceremonies.schedule import GRACE_MS, MISSED_MS, due_moments, planned_id
from trunkline.fleet.journal import Journal, JournalRow, read_state
from trunkline.log.head import Head
from trunkline.wire.spellings import plain_state, timestamp
from trunkline.wire.types import TERMINAL, TaskState

# How many runs of a ceremony may be open: those that wait for their turn are among them.
OPEN_LIMIT = 50
ENDED, OPENED, SKIPPED, MISSED, TIMEOUT = "ended", "opened", "skipped", "missed", "timeout"
# What became of a task whose log is gone, or that could not be opened.
_GONE = "unknown"
_BAD = frozenset({TaskState.FAILED, TaskState.REJECTED})
Heads = Mapping[str, Head | None]
_NONE = Raw(b"null")


def subject(ceremony_id: str) -> str:
    """Return the name of a schedule's journal."""
    return f"ceremony:{ceremony_id}"


class CeremonyRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that has not ended; `opened` is when its first task was opened, or 0; `by` started it by hand.

    `refused` is when a task could not be opened for a reason that passes, or 0. Such a run stays due.
    """

    id: str
    planned: int
    targets: tuple[str, ...]
    opened: int = 0
    refused: int = 0
    by: str = ""
    timed_out: bool = False
    error: str = ""

    def task_id(self, target: str) -> str:
        """The id of its task for a target."""
        return planned_id(self.planned, self.id, target)

    @property
    def is_due(self) -> bool:
        """Return whether a task of it is still to be opened."""
        return not self.opened or (self.refused > 0 and not self.timed_out)

    @property
    def first_task(self) -> str:
        """The id of its first task, which is the only one unless it has several targets."""
        return self.task_id(self.targets[0])


class CeremonyReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that has ended and of which somebody is to be told; `due` is when that is tried next."""

    about: dict[str, Any]
    due: int
    attempts: int = 0


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a schedule: the last run time that was judged, by which `mark`, and the open runs.

    `ceremony` is the schedule of the latest run, by which open runs are followed once it was removed. A newer
    version may have written it, which must not make the rest unreadable.
    """

    cursor: int = 0
    mark: str = ""
    since: int = 0
    open: tuple[CeremonyRun, ...] = ()
    reports: tuple[CeremonyReport, ...] = ()
    ceremony: Raw = _NONE

    @property
    def latest(self) -> Ceremony | None:
        """The schedule of the latest run; None if there was none, or if this version cannot read it."""
        try:
            return msgspec.json.decode(self.ceremony, type=Ceremony | None)
        except msgspec.ValidationError:
            return None


def progress_of(journal: Journal) -> Progress:
    """The progress that a journal holds."""
    return read_state(journal, Progress, Progress())


def journal_with(journal: Journal, progress: Progress, rows: Sequence[JournalRow]) -> Journal:
    """A journal with another progress, and with rows added."""
    return replace(journal.with_rows(rows), state=Raw(msgspec.json.encode(progress)))


def planned_run(one: Ceremony, planned: int, targets: tuple[str, ...]) -> CeremonyRun:
    """The run of a planned moment."""
    return CeremonyRun(id=planned_id(planned, *one.key), planned=planned, targets=targets)


def opened_in(journal: Journal) -> frozenset[str]:
    """The ids of the runs that a journal has as opened."""
    return frozenset([str(row.about.get("runId")) for row in journal.rows if row.kind == OPENED])


def plan(
    one: Ceremony,
    known: Progress,
    now: int,
    targets: tuple[str, ...],
    opened: Collection[str] = (),
    *,
    loaded: int = 0,
) -> tuple[Progress, list[JournalRow]]:
    """Judge the run times that have come since the last call; return the progress and the rows to record.

    Run times that come again because the clock was set back begin no run that was `opened` before or waits.
    `loaded` is when this process loaded the schedule: earlier times of a changed schedule were never missed.
    """
    if one.owner == "api" and one.since < known.since:
        # This replica has not heard of the latest change; whoever has goes on. A file has no such time.
        return known, []
    if known.mark != one.mark:
        # The cursor is ahead of a change that was made while the clock was set back.
        begin = one.changed_at or max(known.cursor, one.since or loaded or now)
        known = replace(known, mark=one.mark, since=one.since, cursor=begin)
    if not one.form.enabled:
        return known, []
    if known.cursor > now + GRACE_MS:
        # The clock was set back. What lies between was judged, but by a time that was wrong.
        known = replace(known, cursor=now)
    due = due_moments(one.schedule, known.cursor, now, one.form.misfire, one.jitter)
    rows: list[JournalRow] = []
    if due.missed:
        rows.append(JournalRow(now, MISSED, {"count": due.missed, "since": timestamp(due.since)}))
    runs = list(known.open)
    begun = {*opened, *[run.id for run in runs]}
    for planned in [at for at in due.fires if planned_id(at, *one.key) not in begun]:
        reason = refusal(one, runs)
        if reason:
            rows.append(JournalRow(now, SKIPPED, {"plannedAt": timestamp(planned), "reason": reason}))
        else:
            runs.append(planned_run(one, planned, targets))
    return with_runs(one, replace(known, cursor=max(known.cursor, due.through)), runs), rows


def with_runs(one: Ceremony, known: Progress, runs: Sequence[CeremonyRun]) -> Progress:
    """Return a progress with these open runs, and with what follows them if the schedule goes away."""
    form = replace(one.form, message="", data=UNSET, description="")
    latest = Raw(msgspec.json.encode(replace(one, form=form))) if runs else known.ceremony
    return replace(known, open=tuple(runs), ceremony=latest)


def without_misfires(one: Ceremony, known: Progress, now: int) -> tuple[Progress, list[JournalRow]]:
    """Drop the runs that were refused for longer than the misfire policy lets them be late.

    With `skip` that is a minute, otherwise a day. With `once` and overlapping runs only the newest stays due.
    """
    newest = max([run.planned for run in known.open if not run.by], default=0)
    left: list[CeremonyRun] = []
    rows: list[JournalRow] = []
    for run in known.open:
        limit = GRACE_MS if one.form.misfire == "skip" and not run.by else MISSED_MS
        replaced = one.form.misfire == "once" and one.form.overlap == "allow" and run.planned < newest
        if not run.refused or not (now - run.refused >= limit or (replaced and not run.by)):
            left.append(run)
        elif run.opened:
            # Some of its tasks were opened: they are followed to their end.
            left.append(replace(run, refused=0))
        else:
            about = {"count": 1, "since": timestamp(run.planned), "runId": run.id, "reason": run.error}
            rows.append(JournalRow(now, MISSED, about))
    return (replace(known, open=tuple(left)) if tuple(left) != known.open else known), rows


def with_opened(known: Progress, heads: Mapping[str, Heads], now: int) -> tuple[Progress, list[JournalRow]]:
    """Mark the runs as opened that have a task, which a crash may have kept from being recorded."""
    runs: list[CeremonyRun] = []
    rows: list[JournalRow] = []
    for run in known.open:
        if not run.opened and any([head is not None for head in heads.get(run.id, {}).values()]):
            runs.append(replace(run, opened=now))
            rows.append(JournalRow(now, OPENED, {"runId": run.id, "taskId": run.first_task}))
        else:
            runs.append(run)
    return replace(known, open=tuple(runs)), rows


def without_unopened(known: Progress, now: int) -> tuple[Progress, list[JournalRow]]:
    """Drop the runs of a schedule that is gone whose tasks were never opened, and expect no further ones."""
    rows = [
        JournalRow(now, SKIPPED, {"plannedAt": timestamp(run.planned), "reason": "the ceremony was removed"})
        for run in known.open
        if not run.opened
    ]
    left = tuple(replace(run, refused=0) for run in known.open if run.opened)
    return replace(known, open=left, mark="", since=0), rows


def refusal(one: Ceremony, runs: Sequence[CeremonyRun]) -> str:
    """Why no further run may begin; empty if one may."""
    if one.form.overlap == "skip" and runs:
        return f"run {runs[-1].id} has not ended"
    if len(runs) >= OPEN_LIMIT:
        return f"{OPEN_LIMIT} runs have not ended"
    return ""


def to_open(one: Ceremony, known: Progress) -> list[CeremonyRun]:
    """Return the runs with tasks to open now: with `queue` only once all before have ended."""
    runs = known.open[:1] if one.form.overlap == "queue" else known.open
    return [run for run in runs if run.is_due]


def rebased(known: Progress, now: int) -> Progress:
    """Return a progress whose runs were not refused in the future.

    The clock was set back since: the time that they stay due is counted from now, not from then.
    """
    if not any([run.refused > now for run in known.open]):
        return known
    return replace(known, open=tuple([replace(run, refused=min(run.refused, now)) for run in known.open]))


def to_stop(one: Ceremony, known: Progress, elapsed_ms: Mapping[str, int]) -> list[CeremonyRun]:
    """Return the runs that have taken longer than they may, by how long each run has worked."""
    limit = one.form.timeout_ms
    return [run for run in known.open if run.timed_out or (limit and elapsed_ms.get(run.id, -1) >= limit)]


def updated_run(known: Progress, run_id: str, **changes: Any) -> Progress:
    """A progress with one run changed."""
    return replace(
        known, open=tuple(replace(run, **changes) if run.id == run_id else run for run in known.open)
    )


def run_item(run: CeremonyRun, heads: Heads) -> dict[str, Any]:
    """A run as its tasks stand: what the API shows of it, and the journal once it has ended.

    The status is `queued` or `running`, then `success`, `failure`, `timeout` or `canceled`; `state` is that
    of the first task.
    """
    states = [_state(heads.get(run.task_id(target))) for target in run.targets] if run.opened else []
    known = [state for state in states if state is not None]
    item: dict[str, Any] = {
        "runId": run.id,
        "taskId": run.first_task,
        "status": _status(run, states),
        "plannedAt": timestamp(run.planned),
    }
    if run.opened:
        item["startedAt"] = timestamp(run.opened)
        item["state"] = _GONE if states[0] is None else plain_state(states[0])
    if is_over(run, heads):
        ends = [head.status_at for head in heads.values() if head is not None]
        item["completedAt"] = timestamp(max(ends, default=run.opened) if known else run.opened)
    if run.by:
        item["startedBy"] = run.by
    if run.error:
        item["error"] = run.error
    if len(run.targets) > 1:
        item["tasks"] = [
            {"agent": target, "taskId": run.task_id(target)}
            | ({"state": _GONE if state is None else plain_state(state)} if run.opened else {})
            for target, state in zip(run.targets, states or [None] * len(run.targets), strict=True)
        ]
    return item


def is_over(run: CeremonyRun, heads: Heads) -> bool:
    """Return whether every task of a run has been opened and has ended."""
    states = [_state(heads.get(run.task_id(target))) for target in run.targets]
    return not run.is_due and all(state is None or state in TERMINAL for state in states)


def _state(head: Head | None) -> TaskState | None:
    return None if head is None else head.state


def _status(run: CeremonyRun, states: Sequence[TaskState | None]) -> str:
    if not run.opened:
        return "queued"
    if run.is_due or any(state is not None and state not in TERMINAL for state in states):
        return "running"
    if all(state is TaskState.COMPLETED for state in states):
        return "success"
    if run.timed_out and TaskState.CANCELED in states:
        return "timeout"
    return "failure" if None in states or _BAD.intersection(states) else "canceled"
