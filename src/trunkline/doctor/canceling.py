"""Checks of cancel, also while the task is on its way to another end."""

from __future__ import annotations

from trunkline.doctor.binding import NOT_CANCELABLE, NOT_FOUND, ProbeBinding
from trunkline.doctor.finding import ERROR, CheckVerdict, failed, judge, of_way, unknown
from trunkline.doctor.fixtures import new_id, task_in
from trunkline.doctor.json_access import TERMINAL, state_of


@of_way(
    "cancel-unknown-task",
    ERROR,
    "§3.1.5, CAN-03, AG-11",
    means="Callers believe that something was stopped.",
    fix="Answer a cancel of a task that nobody knows with TaskNotFound (-32001).",
)
async def unknown_task(way: ProbeBinding) -> CheckVerdict:
    """A cancel of a task that never was is refused."""
    answer = await way.call("cancel", {"id": new_id()})
    return judge(answer.is_code(NOT_FOUND), answer.told(), answer.exchange)


@of_way(
    "cancel-ended-task",
    ERROR,
    "§3.1.5, CAN-02, AG-14",
    means="Callers believe that work was stopped which was done, or a finished result is lost.",
    fix="Answer a cancel of an ended task with TaskNotCancelable (-32002), and leave the task as it is.",
    sends=True,
)
async def ended_task(way: ProbeBinding) -> CheckVerdict:
    """A cancel of an ended task is refused, and the task stays as it is."""
    task = await way.subject.trials(way).ended()
    answer = await way.call("cancel", {"id": task["id"]})
    if not answer.is_code(NOT_CANCELABLE):
        return failed(answer.told(), answer.exchange)
    after = await way.call("get", {"id": task["id"]})
    kept = state_of(task_in(after)) == state_of(task)
    return judge(kept, f"it was {state_of(task)} and is {state_of(task_in(after))}", after.exchange)


@of_way(
    "cancel-race",
    ERROR,
    "§3.1.5, CAN-01, AG-15",
    means="What a caller was told is not what is kept: cancelled work shows up as done, or never ends.",
    fix="Decide the end once: write a terminal state only if there is none, and answer what was written.",
    first=True,
    sends=True,
)
async def race(way: ProbeBinding) -> CheckVerdict:
    """A cancel right behind a send: one end, and the same for everybody."""
    found = await way.subject.trials(way).race()
    end = state_of(task_in(found.end))
    shown = (found.canceled.exchange, found.end.exchange)
    told = state_of(task_in(found.canceled))
    if not found.canceled.refused and told in TERMINAL and end != told:
        return failed(f"the cancel said {told}, the task is {end or 'not to be read'}", *shown)
    if found.canceled.refused and not found.canceled.is_code(NOT_CANCELABLE):
        return failed(f"the cancel gives {found.canceled.told()}", *shown)
    if found.canceled.refused and end and end not in TERMINAL:
        return unknown(f"the agent does not cancel this task, which is still {end}", *shown)
    return judge(end in TERMINAL, f"the task is {end or 'not to be read'} after its cancel", *shown)
