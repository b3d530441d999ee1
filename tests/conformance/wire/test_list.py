"""ListTasks: pages, filters, order, tokens, and whose tasks are seen."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.wire.bindings import Binding
from tests.conformance.wire.conftest import KEYS
from tests.conformance.wire.tasks import held
from tests.harness import ServerProcess

MEMBERS = {"tasks", "nextPageToken", "pageSize", "totalSize"}


@pytest.fixture
def context() -> str:
    return f"list-{uuid.uuid4()}"


def _filled(binding: Binding, context: str, count: int) -> list[str]:
    """Ids of as many tasks in the context, newest first."""
    return [binding.send(f"echo {place}", contextId=context)["id"] for place in range(count)][::-1]


def _ids(page: Any) -> list[str]:
    return [task["id"] for task in page["tasks"]]


def _walk(binding: Binding, size: int, **filters: Any) -> list[str]:
    """Every id, page by page."""
    seen: list[str] = []
    token = ""
    while True:
        page = binding.list(**filters, pageSize=size, **({"pageToken": token} if token else {})).result
        assert len(page["tasks"]) <= size
        seen += _ids(page)
        token = page["nextPageToken"]
        if not token:
            return seen


def test_LST_01_all_four_members_are_always_there(v1: Binding, context: str) -> None:
    empty = v1.list(contextId=context).result
    assert empty == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    _filled(v1, context, 1)
    assert set(v1.list(contextId=context).result) == MEMBERS


def test_LST_02_the_last_page_has_an_empty_token(v1: Binding, context: str) -> None:
    ids = _filled(v1, context, 4)
    first = v1.list(contextId=context, pageSize=2).result
    assert first["nextPageToken"] != "" and first["totalSize"] == 4 and first["pageSize"] == 2
    last = v1.list(contextId=context, pageSize=2, pageToken=first["nextPageToken"]).result
    assert (_ids(first) + _ids(last), last["nextPageToken"], last["totalSize"]) == (ids, "", 4)


def test_LST_03_the_newest_status_is_first(v1: Binding, context: str) -> None:
    asked = v1.send("ask", contextId=context)["id"]
    echoed = v1.send("echo between", contextId=context)["id"]
    assert _ids(v1.list(contextId=context).result) == [echoed, asked]
    v1.send("answer", taskId=asked)
    page = v1.list(contextId=context).result
    assert _ids(page) == [asked, echoed]
    times = [task["status"]["timestamp"] for task in page["tasks"]]
    assert times == sorted(times, reverse=True)


def test_LST_04_artifacts_only_when_asked_for(v1: Binding, context: str) -> None:
    task = v1.send("echo hi", contextId=context)
    (bare,) = v1.list(contextId=context).result["tasks"]
    (unasked,) = v1.list(contextId=context, includeArtifacts=False).result["tasks"]
    (whole,) = v1.list(contextId=context, includeArtifacts=True).result["tasks"]
    assert "artifacts" not in bare and bare == unasked
    assert whole == task


def test_LST_05_filters_alone_and_together(v1: Binding, context: str) -> None:
    done = v1.send("echo", contextId=context)
    failed = v1.send("fail", contextId=context)
    open_ = held(v1, contextId=context)

    def found(**filters: Any) -> set[str]:
        return set(_ids(v1.list(contextId=context, **filters).result))

    everything = {done["id"], failed["id"], open_["id"]}
    assert found() == everything
    assert found(status="TASK_STATE_FAILED") == {failed["id"]}
    assert found(status="TASK_STATE_WORKING") == {open_["id"]}
    assert found(status="TASK_STATE_REJECTED") == set()
    at = failed["status"]["timestamp"]
    later = {task["id"] for task in (done, failed, open_) if task["status"]["timestamp"] >= at}
    # Inclusive: the task of that very millisecond is found.
    assert failed["id"] in later and found(statusTimestampAfter=at) == later
    assert found(statusTimestampAfter=at, status="TASK_STATE_FAILED") == {failed["id"]}
    assert found(statusTimestampAfter="2999-01-01T00:00:00Z") == set()
    assert found(statusTimestampAfter="1999-01-01T00:00:00+02:00") == everything
    v1.cancel(open_["id"])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_LST_06_a_paged_walk_is_the_whole_list(v1: Binding, context: str, size: int) -> None:
    ids = _filled(v1, context, 7)
    assert _walk(v1, size, contextId=context) == ids == _ids(v1.list(contextId=context).result)


def test_LST_06_tasks_added_during_the_walk_disturb_nothing(v1: Binding, context: str) -> None:
    ids = _filled(v1, context, 6)
    seen: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = v1.list(contextId=context, pageSize=2, **token).result
        seen += _ids(page)
        v1.send("echo newer", contextId=context)
        if not page["nextPageToken"]:
            break
        token = {"pageToken": page["nextPageToken"]}
    assert seen == ids


def test_LST_07_the_default_page_is_50(v1: Binding) -> None:
    assert v1.list().result["pageSize"] == 50


@pytest.mark.parametrize("size", [1, 100])
def test_LST_07_sizes_1_to_100_are_taken(v1: Binding, size: int) -> None:
    assert v1.list(pageSize=size).result["pageSize"] == size


@pytest.mark.parametrize("size", [0, 101, -1, 2**40, "many", 1.5])
def test_LST_07_other_sizes_are_refused(v1: Binding, size: Any) -> None:
    answer = v1.list(pageSize=size)
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["pageSize"]


def test_LST_08_a_token_of_another_list_is_refused(v1: Binding, context: str) -> None:
    _filled(v1, context, 3)
    token = v1.list(contextId=context, pageSize=1).result["nextPageToken"]
    for other in ({}, {"contextId": "another"}, {"contextId": context, "status": "TASK_STATE_COMPLETED"}):
        answer = v1.list(**other, pageToken=token)
        v1.expect(answer, "INVALID_PARAMS")
        assert answer.fields == ["pageToken"]
    assert len(v1.list(contextId=context, pageToken=token, pageSize=2).result["tasks"]) == 2


def test_LST_08_no_changed_token_is_taken(v1: Binding, context: str) -> None:
    _filled(v1, context, 2)
    token = v1.list(contextId=context, pageSize=1).result["nextPageToken"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    flipped = [bytes([*raw[:at], raw[at] ^ 1, *raw[at + 1 :]]) for at in range(0, len(raw), 5)]
    mutants = [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in flipped]
    for mutant in (*mutants, token[:-1], token + "A", token + "=", token[::-1], "x", "1", "%%%", "ü"):
        v1.expect(v1.list(contextId=context, pageSize=1, pageToken=mutant), "INVALID_PARAMS")


@pytest.mark.parametrize("status", ["TASK_STATE_DONE", "done", "7", "TASK_STATE_"])
def test_LST_09_an_unknown_status_is_refused(v1: Binding, status: str) -> None:
    answer = v1.list(status=status)
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["status"]


@pytest.mark.parametrize("when", ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "1769860800"])
def test_LST_09_an_unreadable_time_is_refused(v1: Binding, when: str) -> None:
    answer = v1.list(statusTimestampAfter=when)
    v1.expect(answer, "INVALID_PARAMS")
    assert answer.fields == ["statusTimestampAfter"]


def test_LST_10_nobody_sees_anothers_tasks(
    speak1: Callable[..., Binding], keyed: ServerProcess, context: str
) -> None:
    mine, other = (speak1(keyed.base, {"X-API-Key": key}) for key in KEYS)
    ids = _filled(mine, context, 2)
    token = mine.list(contextId=context, pageSize=1).result["nextPageToken"]
    nothing = {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    for filters in ({"contextId": context}, {"contextId": context, "status": "TASK_STATE_COMPLETED"}):
        assert other.list(**filters).result == nothing
    assert not set(ids) & set(_walk(other, 50))
    other.expect(other.list(contextId=context, pageSize=1, pageToken=token), "INVALID_PARAMS")
    assert mine.list(contextId=context).result["totalSize"] == 2
    # The same context id in two hands is two contexts.
    own = other.send("echo mine", contextId=context)["id"]
    assert _ids(other.list(contextId=context).result) == [own]
    assert _ids(mine.list(contextId=context).result) == ids
