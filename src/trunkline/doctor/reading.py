"""Checks of get, history and list."""

from __future__ import annotations

from typing import Any

from trunkline.doctor.binding import BAD_PARAMS, NO_METHOD, UNSUPPORTED, ProbeAnswer, ProbeBinding
from trunkline.doctor.finding import ERROR, PASSED, WARNING, CheckVerdict, NotPossible, failed, judge, of_way
from trunkline.doctor.fixtures import task_in
from trunkline.doctor.json_access import items, members, state_of, text, texts

_V1 = ("1.0",)


@of_way(
    "get-equals-send",
    ERROR,
    "§3.1.3, GET-01, AG-12",
    means="The task that is kept is not the one that the caller was told of.",
    fix="Keep what is sent: id, contextId, state and artifacts of a task are the same in every answer.",
    sends=True,
)
async def equals_send(way: ProbeBinding) -> CheckVerdict:
    """A get gives what the send has given."""
    task = await way.subject.trials(way).ended()
    answer = await way.call("get", {"id": task["id"]})
    kept = task_in(answer)
    for name in ("id", "contextId"):
        if kept.get(name) != task.get(name):
            return failed(f"{name} was {task.get(name)!r} and is {kept.get(name)!r}", answer.exchange)
    if state_of(kept) != state_of(task):
        return failed(f"the state was {state_of(task)} and is {state_of(kept)}", answer.exchange)
    same = texts(kept.get("artifacts")) == texts(task.get("artifacts"))
    return judge(same, "the artifacts are not those of the answer", answer.exchange)


@of_way(
    "get-repeatable",
    ERROR,
    "§3.3.1, GET-03",
    means="Reading a task changes it.",
    fix="Let a get change nothing: the same ended task is the same answer.",
    first=True,
    sends=True,
)
async def repeatable(way: ProbeBinding) -> CheckVerdict:
    """Two gets of an ended task are equal."""
    task = await way.subject.trials(way).ended()
    one, other = [await way.call("get", {"id": task["id"]}) for _ in range(2)]
    return judge(one.result == other.result, "two gets differ", one.exchange, other.exchange)


@of_way(
    "history-zero",
    WARNING,
    "§3.2.4, HIS-01",
    means="Callers that want no history get it all the same, and pay for it.",
    fix="Leave out history when historyLength is 0.",
    versions=_V1,
    sends=True,
)
async def history_zero(way: ProbeBinding) -> CheckVerdict:
    """historyLength 0 gives no history."""
    task = await way.subject.trials(way).ended()
    answer = await way.call("get", {"id": task["id"], "historyLength": 0})
    found = items(task_in(answer).get("history"))
    return judge(not found and not answer.refused, f"{len(found)} messages came", answer.exchange)


@of_way(
    "history-limit",
    ERROR,
    "§3.2.4, HIS-02",
    means="Callers get more history than they asked for.",
    fix="Give at most historyLength messages, the newest ones.",
    sends=True,
)
async def history_limit(way: ProbeBinding) -> CheckVerdict:
    """historyLength 1 gives one message at most."""
    task = await way.subject.trials(way).ended()
    answer = await way.call("get", {"id": task["id"], "historyLength": 1})
    found = items(task_in(answer).get("history"))
    return judge(len(found) <= 1 and not answer.refused, f"{len(found)} messages came", answer.exchange)


@of_way(
    "history-negative",
    ERROR,
    "§3.3.2, HIS-05",
    means="A mistake of the caller goes unnoticed.",
    fix="Refuse a negative historyLength with invalid params (-32602).",
    versions=_V1,
    first=True,
    sends=True,
)
async def history_negative(way: ProbeBinding) -> CheckVerdict:
    """A negative historyLength is refused."""
    task = await way.subject.trials(way).task()
    answer = await way.call("get", {"id": task["id"], "historyLength": -1})
    return judge(answer.is_code(BAD_PARAMS), answer.told(), answer.exchange)


@of_way(
    "list-members",
    ERROR,
    "§3.1.4, LST-01, LST-02",
    means="Clients cannot page through the tasks.",
    fix="Put tasks, nextPageToken (empty on the last page), pageSize and totalSize into every page.",
    versions=_V1,
)
async def list_members(way: ProbeBinding) -> CheckVerdict:
    """A page has all four members, also an empty one."""
    answer = await _list(way, contextId="trunkline-doctor-nothing")
    page = members(answer.result)
    lacking = [name for name in ("tasks", "nextPageToken", "pageSize", "totalSize") if name not in page]
    if lacking:
        return failed(f"missing: {', '.join(lacking)}", answer.exchange)
    return judge(page["nextPageToken"] == "", "the last page has a nextPageToken", answer.exchange)


@of_way(
    "list-context-filter",
    ERROR,
    "§3.1.4, LST-05",
    means="A caller that asks for one conversation sees others.",
    fix="Give only tasks of the contextId that is asked for.",
    versions=_V1,
    sends=True,
)
async def context_filter(way: ProbeBinding) -> CheckVerdict:
    """A list of one context has the task of that context, and no other."""
    task = await way.subject.trials(way).ended()
    answer = await _list(way, contextId=task.get("contextId", ""))
    found = items(members(answer.result).get("tasks"))
    if not any(members(one).get("id") == task["id"] for one in found):
        return failed("the task is not in the list of its own context", answer.exchange)
    good = all(members(one).get("contextId") == task.get("contextId") for one in found)
    return judge(good, "tasks of other contexts are in the list", answer.exchange)


@of_way(
    "list-artifacts-hidden",
    ERROR,
    "§3.1.4, LST-04",
    means="Lists are as large as all results together.",
    fix="Leave artifacts out of lists unless includeArtifacts is true.",
    versions=_V1,
    sends=True,
)
async def artifacts_hidden(way: ProbeBinding) -> CheckVerdict:
    """Artifacts are in a list when they are asked for, and only then."""
    task = await way.subject.trials(way).ended()
    context = task.get("contextId", "")
    plain = await _list(way, contextId=context)
    if any("artifacts" in members(one) for one in items(members(plain.result).get("tasks"))):
        return failed("artifacts came without being asked for", plain.exchange)
    if not items(task.get("artifacts")):
        return PASSED
    full = await _list(way, contextId=context, includeArtifacts=True)
    found = [members(one) for one in items(members(full.result).get("tasks"))]
    good = any(items(one.get("artifacts")) for one in found)
    return judge(good, "includeArtifacts brings none", full.exchange)


@of_way(
    "list-newest-first",
    ERROR,
    "§3.1.4, LST-03",
    means="Callers that look at the first page miss what has just happened.",
    fix="Order tasks by the time of their status, the newest first.",
    versions=_V1,
    # When all is quiet: a task that moves on while a page is made is nobody's fault.
    late=True,
    sends=True,
)
async def newest_first(way: ProbeBinding) -> CheckVerdict:
    """The list is ordered by the time of the status."""
    await way.subject.trials(way).ended()
    answer = await _list(way, pageSize=20)
    found = [members(one) for one in items(members(answer.result).get("tasks"))]
    times = [text(members(one.get("status")).get("timestamp")).rstrip("Z") for one in found]
    # Fractions of a second may be left out, which does not sort as text.
    stamps = [(one.partition(".")[0], one.partition(".")[2].ljust(9, "0")) for one in times if one]
    return judge(stamps == sorted(stamps, reverse=True), "times are not descending", answer.exchange)


@of_way(
    "list-paging",
    ERROR,
    "§3.1.4, LST-06",
    means="Callers that page see a task twice, or never.",
    fix="Make the page token a cursor: the next page begins behind the last task of this one.",
    versions=_V1,
    late=True,
    sends=True,
)
async def paging(way: ProbeBinding) -> CheckVerdict:
    """Two pages of one task each are two tasks."""
    await way.subject.trials(way).ended()
    one = await _list(way, pageSize=1)
    page = members(one.result)
    if len(items(page.get("tasks"))) > 1:
        return failed(f"pageSize 1 gives {len(items(page['tasks']))} tasks", one.exchange)
    if not text(page.get("nextPageToken")):
        raise NotPossible("there is only one page")
    other = await _list(way, pageSize=1, pageToken=page["nextPageToken"])
    ids = [[members(task).get("id") for task in items(members(a.result).get("tasks"))] for a in (one, other)]
    if other.refused or not ids[1]:
        return failed(f"the second page: {other.told()}", one.exchange, other.exchange)
    return judge(ids[0] != ids[1], "both pages have the same task", one.exchange, other.exchange)


@of_way(
    "list-bad-page-size",
    ERROR,
    "§3.1.4, LST-07",
    means="A mistake of the caller goes unnoticed, or loads everything at once.",
    fix="Refuse a pageSize below 1 or over 100 with invalid params (-32602).",
    versions=_V1,
)
async def bad_page_size(way: ProbeBinding) -> CheckVerdict:
    """Page sizes of 0 and 101 are refused."""
    for size in (0, 101):
        answer = await _list(way, pageSize=size, refusals=True)
        if not answer.is_code(BAD_PARAMS):
            return failed(f"pageSize {size} gives {answer.told()}", answer.exchange)
    return PASSED


@of_way(
    "list-bad-page-token",
    ERROR,
    "§3.3.2, LST-08",
    means="A caller with an old token starts again at the first page and never comes to an end.",
    fix="Refuse a pageToken that was never given with invalid params (-32602).",
    versions=_V1,
)
async def bad_page_token(way: ProbeBinding) -> CheckVerdict:
    """A page token that was never given is refused."""
    answer = await _list(way, pageToken="trunkline-doctor", refusals=True)  # noqa: S106 - no password
    return judge(answer.is_code(BAD_PARAMS), answer.told(), answer.exchange)


@of_way(
    "list-bad-status",
    ERROR,
    "§3.3.2, LST-09",
    means="A filter that is spelled wrong gives everything, and nobody notices.",
    fix="Refuse a status that is no state with invalid params (-32602).",
    versions=_V1,
)
async def bad_status(way: ProbeBinding) -> CheckVerdict:
    """A status that does not exist is refused."""
    answer = await _list(way, status="TASK_STATE_NOWHERE", refusals=True)
    return judge(answer.is_code(BAD_PARAMS), answer.told(), answer.exchange)


async def _list(way: ProbeBinding, *, refusals: bool = False, **query: Any) -> ProbeAnswer:
    answer = await way.call("list", query)
    if answer.is_code(NO_METHOD) or answer.is_code(UNSUPPORTED) and not answer.is_code(BAD_PARAMS):
        raise NotPossible(f"there is no list here: {answer.told()}")
    if answer.refused and not refusals:
        raise NotPossible(f"the list was refused: {answer.told()}")
    return answer
