"""Checks of get, history, list and cancel, also while the task is on its way to another end."""

from __future__ import annotations

from typing import Any

from trunkline.clock import new_id
from trunkline.doctor.check import BOTH, ERROR, V1, WARNING, Family, assume, expect, expect_refusal
from trunkline.doctor.exchange import TERMINAL, Undecided, at, items, members, state_of, text, texts
from trunkline.doctor.probe import (
    BAD_PARAMS,
    NO_METHOD,
    NOT_CANCELABLE,
    NOT_FOUND,
    UNSUPPORTED,
    InterfaceProbe,
    ProbeAnswer,
)

reading = Family("reading", versions=V1)
canceling = Family("canceling")


@reading.interface("get-equals-send", ERROR, "§3.1.3, GET-01, AG-12", versions=BOTH)
async def equals_send(probe: InterfaceProbe) -> None:
    """A get gives what the send has given.

    Means: The task that is kept is not the one that the caller was told of.
    Fix: Keep what is sent: id, contextId, state and artifacts of a task are the same in every answer.
    """
    task = await probe.fixtures.ended()
    answer = await probe.call("get", {"id": task["id"]})
    kept = answer.task
    for name in ("id", "contextId"):
        before, after = task.get(name), kept.get(name)
        expect(before == after, f"{name} was {before!r} and is {after!r}", answer)
    before, after = state_of(task), state_of(kept)
    expect(before == after, f"the state was {before} and is {after}", answer)
    same = texts(kept.get("artifacts")) == texts(task.get("artifacts"))
    expect(same, "the artifacts are not those of the answer", answer)


@reading.interface("get-repeatable", ERROR, "§3.3.1, GET-03", versions=BOTH, first=True)
async def repeatable(probe: InterfaceProbe) -> None:
    """Two gets of an ended task are equal.

    Means: Reading a task changes it.
    Fix: Let a get change nothing: the same ended task is the same answer.
    """
    task = await probe.fixtures.ended()
    one, other = [await probe.call("get", {"id": task["id"]}) for _ in range(2)]
    expect(one.result == other.result, "two gets differ", one, other)


@reading.interface("history-zero", WARNING, "§3.2.4, HIS-01")
async def history_zero(probe: InterfaceProbe) -> None:
    """historyLength 0 gives no history.

    Means: Callers that want no history get it all the same, and pay for it.
    Fix: Leave out history when historyLength is 0.
    """
    await _expect_history(probe, 0)


@reading.interface("history-limit", ERROR, "§3.2.4, HIS-02", versions=BOTH)
async def history_limit(probe: InterfaceProbe) -> None:
    """historyLength 1 gives one message at most.

    Means: Callers get more history than they asked for.
    Fix: Give at most historyLength messages, the newest ones.
    """
    await _expect_history(probe, 1)


async def _expect_history(probe: InterfaceProbe, length: int) -> None:
    """Go on if no more messages than this come with an ended task when no more are asked for."""
    task = await probe.fixtures.ended()
    answer = await probe.call("get", {"id": task["id"], "historyLength": length})
    found = items(answer.task.get("history"))
    expect(len(found) <= length and not answer.refused, f"{len(found)} messages came", answer)


@reading.interface("history-negative", ERROR, "§3.3.2, HIS-05", first=True)
async def history_negative(probe: InterfaceProbe) -> None:
    """A negative historyLength is refused.

    Means: A mistake of the caller goes unnoticed.
    Fix: Refuse a negative historyLength with invalid params (-32602).
    """
    task = await probe.fixtures.task()
    expect_refusal(await probe.call("get", {"id": task["id"], "historyLength": -1}), BAD_PARAMS)


@reading.interface("list-members", ERROR, "§3.1.4, LST-01, LST-02")
async def list_members(probe: InterfaceProbe) -> None:
    """A page has all four members, also an empty one.

    Means: Clients cannot page through the tasks.
    Fix: Put tasks, nextPageToken (empty on the last page), pageSize and totalSize into every page.
    """
    answer = await _list(probe, contextId="trunkline-doctor-nothing")
    page = members(answer.result)
    lacking = [name for name in ("tasks", "nextPageToken", "pageSize", "totalSize") if name not in page]
    expect(not lacking, f"missing: {', '.join(lacking)}", answer)
    expect(page["nextPageToken"] == "", "the last page has a nextPageToken", answer)


@reading.interface("list-context-filter", ERROR, "§3.1.4, LST-05")
async def context_filter(probe: InterfaceProbe) -> None:
    """A list of one context has the task of that context, and no other.

    Means: A caller that asks for one conversation sees others.
    Fix: Give only tasks of the contextId that is asked for.
    """
    task = await probe.fixtures.ended()
    answer = await _list(probe, contextId=task.get("contextId", ""))
    there = any(one.get("id") == task["id"] for one in answer.tasks)
    expect(there, "the task is not in the list of its own context", answer)
    only = all(one.get("contextId") == task.get("contextId") for one in answer.tasks)
    expect(only, "tasks of other contexts are in the list", answer)


@reading.interface("list-artifacts-hidden", ERROR, "§3.1.4, LST-04")
async def artifacts_hidden(probe: InterfaceProbe) -> None:
    """Artifacts are in a list when they are asked for, and only then.

    Means: Lists are as large as all results together.
    Fix: Leave artifacts out of lists unless includeArtifacts is true.
    """
    task = await probe.fixtures.ended()
    context = task.get("contextId", "")
    plain = await _list(probe, contextId=context)
    hidden = not any("artifacts" in one for one in plain.tasks)
    expect(hidden, "artifacts came without being asked for", plain)
    if items(task.get("artifacts")):
        full = await _list(probe, contextId=context, includeArtifacts=True)
        given = any(items(one.get("artifacts")) for one in full.tasks)
        expect(given, "includeArtifacts brings none", full)


# When all is quiet: a task that moves on while a page is made is nobody's fault.
@reading.interface("list-newest-first", ERROR, "§3.1.4, LST-03", late=True)
async def newest_first(probe: InterfaceProbe) -> None:
    """The list is ordered by the time of the status.

    Means: Callers that look at the first page miss what has just happened.
    Fix: Order tasks by the time of their status, the newest first.
    """
    await probe.fixtures.ended()
    answer = await _list(probe, pageSize=20)
    times = [text(at(one, "status", "timestamp")).rstrip("Z") for one in answer.tasks]
    # Fractions of a second may be left out, which does not sort as text.
    stamps = [(one.partition(".")[0], one.partition(".")[2].ljust(9, "0")) for one in times if one]
    expect(stamps == sorted(stamps, reverse=True), "times are not descending", answer)


@reading.interface("list-paging", ERROR, "§3.1.4, LST-06", late=True)
async def paging(probe: InterfaceProbe) -> None:
    """Two pages of one task each are two tasks.

    Means: Callers that page see a task twice, or never.
    Fix: Make the page token a cursor: the next page begins behind the last task of this one.
    """
    await probe.fixtures.ended()
    one = await _list(probe, pageSize=1)
    size, token = len(one.tasks), text(at(one.result, "nextPageToken"))
    expect(size <= 1, f"pageSize 1 gives {size} tasks", one)
    assume(token, "there is only one page")
    other = await _list(probe, pageSize=1, pageToken=token)
    ids = [[task.get("id") for task in page.tasks] for page in (one, other)]
    expect(not other.refused and ids[1], f"the second page: {other.summary()}", one, other)
    expect(ids[0] != ids[1], "both pages have the same task", one, other)


@reading.interface("list-bad-page-size", ERROR, "§3.1.4, LST-07")
async def bad_page_size(probe: InterfaceProbe) -> None:
    """Page sizes of 0 and 101 are refused.

    Means: A mistake of the caller goes unnoticed, or loads everything at once.
    Fix: Refuse a pageSize below 1 or over 100 with invalid params (-32602).
    """
    for size in (0, 101):
        answer = await _list(probe, pageSize=size, refusals=True)
        expect_refusal(answer, BAD_PARAMS, request=f"pageSize {size}")


@reading.interface("list-bad-page-token", ERROR, "§3.3.2, LST-08")
async def bad_page_token(probe: InterfaceProbe) -> None:
    """A page token that was never given is refused.

    Means: A caller with an old token starts again at the first page and never comes to an end.
    Fix: Refuse a pageToken that was never given with invalid params (-32602).
    """
    answer = await _list(probe, pageToken="trunkline-doctor", refusals=True)  # noqa: S106 - no password
    expect_refusal(answer, BAD_PARAMS)


@reading.interface("list-bad-status", ERROR, "§3.3.2, LST-09")
async def bad_status(probe: InterfaceProbe) -> None:
    """A status that does not exist is refused.

    Means: A filter that is spelled wrong gives everything, and nobody notices.
    Fix: Refuse a status that is no state with invalid params (-32602).
    """
    expect_refusal(await _list(probe, status="TASK_STATE_NOWHERE", refusals=True), BAD_PARAMS)


async def _list(probe: InterfaceProbe, *, refusals: bool = False, **query: Any) -> ProbeAnswer:
    """The answer to a list; one that is refused only if the check is about refusals.

    Raises:
        NotPossible: the agent does not list, or refuses what it should not.
    """
    answer = await probe.call("list", query)
    absent = answer.is_code(NO_METHOD) or answer.is_code(UNSUPPORTED) and not answer.is_code(BAD_PARAMS)
    assume(not absent, f"there is no list here: {answer.summary()}")
    assume(refusals or not answer.refused, f"the list was refused: {answer.summary()}")
    return answer


@canceling.interface("cancel-unknown-task", ERROR, "§3.1.5, CAN-03, AG-11")
async def unknown_task(probe: InterfaceProbe) -> None:
    """A cancel of a task that never was is refused.

    Means: Callers believe that something was stopped.
    Fix: Answer a cancel of a task that nobody knows with TaskNotFound (-32001).
    """
    expect_refusal(await probe.call("cancel", {"id": new_id()}), NOT_FOUND)


@canceling.interface("cancel-ended-task", ERROR, "§3.1.5, CAN-02, AG-14")
async def ended_task(probe: InterfaceProbe) -> None:
    """A cancel of an ended task is refused, and the task stays as it is.

    Means: Callers believe that work was stopped which was done, or a finished result is lost.
    Fix: Answer a cancel of an ended task with TaskNotCancelable (-32002), and leave the task as it is.
    """
    task = await probe.fixtures.ended()
    expect_refusal(await probe.call("cancel", {"id": task["id"]}), NOT_CANCELABLE)
    after = await probe.call("get", {"id": task["id"]})
    kept = state_of(after.task) == state_of(task)
    expect(kept, f"it was {state_of(task)} and is {state_of(after.task)}", after)


@canceling.interface("cancel-race", ERROR, "§3.1.5, CAN-01, AG-15", first=True)
async def cancel_race(probe: InterfaceProbe) -> None:
    """A cancel right behind a send: one end, and the same for everybody.

    Means: What a caller was told is not what is kept: cancelled work shows up as done, or never ends.
    Fix: Decide the end once: write a terminal state only if there is none, and answer what was written.
    """
    race = await probe.fixtures.race()
    canceled, shown = race.canceled, (race.canceled, race.end)
    answered, end = state_of(canceled.task), state_of(race.end.task)
    if canceled.refused:
        expect(canceled.is_code(NOT_CANCELABLE), f"the cancel gives {canceled.summary()}", *shown)
        if end and end not in TERMINAL:
            raise Undecided(f"the agent does not cancel this task, which is still {end}")
    elif answered in TERMINAL:
        said = f"the cancel said {answered}, the task is {end or 'not to be read'}"
        expect(end == answered, said, *shown)
    expect(end in TERMINAL, f"the task is {end or 'not to be read'} after its cancel", *shown)
