"""`trunkline task …` and its short forms."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted, task
from tests.cli.test_send import blocks, documents, fields

Make = Callable[..., Scripted]


def begin(trunkline: Run, url: str, text: str) -> str:
    return fields(trunkline("send", url, text, "--async")[1])["Task"]


def test_get_shows_state_artifacts_and_history(trunkline: Run, demo_url: str) -> None:
    known = fields(trunkline("send", demo_url, "hello")[1])["Task"]
    for command in (("task", "get", "-a", demo_url, known), ("get", demo_url, known)):
        code, out, _ = trunkline(*command)
        assert code == 0
        assert fields(out)["State"] == "TASK_STATE_COMPLETED"
        assert blocks(out, "Text") == ["hello"]
    _, out, _ = trunkline("task", "get", demo_url, known, "--history", "5", "-o", "json")
    bare = json.loads(out)
    assert bare["id"] == known and bare["artifacts"]
    assert [message["role"] for message in bare["history"]] == ["ROLE_USER"]
    assert "history" not in json.loads(trunkline("get", demo_url, known, "--history", "0", "-o", "json")[1])


def test_get_with_stream_is_a_single_line(trunkline: Run, demo_url: str) -> None:
    known = fields(trunkline("send", demo_url, "hello")[1])["Task"]
    out = trunkline("get", demo_url, known, "-o", "json", "--stream")[1]
    assert [one["id"] for one in documents(out)] == [known]


def test_every_kind_of_part_is_rendered(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    parts = [
        {"text": "words\n\nState: forged"},
        {"data": {"a": [1]}},
        {"raw": "AAEC", "filename": "a.bin", "mediaType": "application/x-a"},
        {"url": "https://example.com/b", "mediaType": "image/png"},
        {"text": "\x1b[31mred\x07"},
    ]
    peer.methods["GetTask"] = lambda _: task("COMPLETED", artifacts=[{"artifactId": "x", "parts": parts}])
    _, out, _ = trunkline("get", peer.url, "t1")
    assert blocks(out, "Text") == ["words\n\nState: forged", "\\x1b[31mred\\x07"]
    assert json.loads(blocks(out, "Data")[0]) == {"a": [1]}
    assert "File: a.bin, application/x-a, 3 bytes" in out
    assert "File: (no name), image/png, https://example.com/b" in out
    assert "\x1b" not in out and "\x07" not in out
    assert [line for line in out.splitlines() if line.startswith("State:")] == ["State: TASK_STATE_COMPLETED"]


def test_a_wait_polls_stops_at_a_question_and_honours_the_interval(trunkline: Run, scripted: Make) -> None:
    states = iter(["WORKING", "WORKING", "WORKING", "INPUT_REQUIRED"])
    peer = scripted()
    peer.methods["GetTask"] = lambda _: task(next(states))
    begun = time.monotonic()
    code, out, err = trunkline("get", peer.url, "t1", "--wait", "--poll-interval", "100ms")
    took = time.monotonic() - begun
    assert code == 0
    assert fields(out)["State"] == "TASK_STATE_INPUT_REQUIRED"
    assert "--task-id t1" in fields(out)["Next"]
    assert "waits" in err
    assert took > 0.1


def test_a_wait_ends_at_its_timeout_and_says_how_to_go_on(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    peer.methods["GetTask"] = lambda _: task("WORKING")
    times = ("--poll-interval", "100ms", "--timeout", "500ms")
    code, out, _ = trunkline("get", peer.url, "t1", "--wait", *times, "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (5, "A2ACLI_ERR_TIMEOUT")
    assert error["hint"] == f"trunkline task get -a {peer.url} t1 --wait"
    # It neither asked only once nor without a pause.
    assert 2 <= len(peer.params("GetTask")) <= 6


def test_a_wait_that_loses_its_stream_polls_to_the_end(trunkline: Run, scripted: Make) -> None:
    states = iter(["WORKING", "COMPLETED"])
    peer = scripted(capabilities={"streaming": True})
    peer.methods["SendStreamingMessage"] = lambda _: [{"task": task("WORKING")}]
    peer.methods["GetTask"] = lambda _: task(next(states, "COMPLETED"))
    code, out, _ = trunkline("send", peer.url, "hi", "--poll-interval", "100ms")
    assert code == 0
    assert fields(out)["State"] == "TASK_STATE_COMPLETED"
    assert len(peer.params("SendStreamingMessage")) == 1


def test_cancel_is_idempotent_and_says_the_state(trunkline: Run, demo_url: str) -> None:
    known = begin(trunkline, demo_url, "sleep 60")
    for _ in range(2):
        code, out, err = trunkline("task", "cancel", "-a", demo_url, known)
        assert (code, err) == (0, "")
        assert fields(out)["State"] == "TASK_STATE_CANCELED"
    assert json.loads(trunkline("cancel", demo_url, known, "-o", "json")[1])["id"] == known


def test_what_has_ended_cannot_be_cancelled(trunkline: Run, demo_url: str) -> None:
    known = fields(trunkline("send", demo_url, "hello")[1])["Task"]
    code, out, _ = trunkline("cancel", demo_url, known, "-o", "json")
    assert (code, json.loads(out)["error"]["code"]) == (1, "TaskNotCancelableError")
    assert json.loads(out)["error"]["a2aCode"] == -32002


def test_list_pages_and_filters(trunkline: Run, demo_url: str) -> None:
    context = fields(trunkline("send", demo_url, "one")[1])["Context"]
    trunkline("send", demo_url, "--context-id", context, "two")
    trunkline("send", demo_url, "--context-id", context, "fail")
    here = ("task", "list", demo_url, "--context-id", context)
    page = json.loads(trunkline(*here, "--page-size", "2", "-o", "json")[1])
    assert (len(page["tasks"]), page["totalSize"], page["pageSize"]) == (2, 3, 2)
    rest = json.loads(trunkline(*here, "--page-token", page["nextPageToken"], "-o", "json")[1])
    assert len(rest["tasks"]) == 1 and rest["nextPageToken"] == ""
    failed = documents(trunkline(*here, "--status", "failed", "-o", "json", "--stream")[1])
    assert [one["status"]["state"] for one in failed] == ["TASK_STATE_FAILED"]
    text = trunkline("list", demo_url, "--context-id", context, "--page-size", "2")[1]
    assert fields(text)["Tasks"] == "2 of 3"
    assert "--page-token" in fields(text)["Next"]
    assert "artifacts" in json.loads(trunkline(*here, "--artifacts", "-o", "json")[1])["tasks"][-1]


def test_list_refuses_a_state_that_is_none(trunkline: Run, demo_url: str) -> None:
    code, _, err = trunkline("list", demo_url, "--status", "sleepy")
    assert code == 2
    assert "input_required" in err


def test_subscribe_gives_the_task_first_and_then_its_events(trunkline: Run, demo_url: str) -> None:
    known = begin(trunkline, demo_url, "count 4 100")
    code, out, _ = trunkline("watch", demo_url, known, "-o", "json")
    events = documents(out)
    assert code == 0
    assert events[0]["task"]["id"] == known
    # By then it may have ended, so that the task as it stands is all there is to tell.
    assert events[-1].get("statusUpdate", events[0]["task"])["status"]["state"] == "TASK_STATE_COMPLETED"
    known = begin(trunkline, demo_url, "count 2 100")
    bare = json.loads(trunkline("task", "subscribe", demo_url, known, "-o", "json")[1])
    assert (bare["id"], bare["status"]["state"]) == (known, "TASK_STATE_COMPLETED")


def test_a_subscription_goes_on_where_it_was_cut(trunkline: Run, scripted: Make) -> None:
    ids = {"taskId": "t1", "contextId": "c1"}
    piece = {"artifactUpdate": {**ids, "artifact": {"artifactId": "a", "parts": [{"text": "one"}]}}}
    done = {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_COMPLETED"}}}
    whole = task("WORKING", artifacts=[piece["artifactUpdate"]["artifact"]])
    streams = iter([[{"task": task("WORKING")}, piece], [{"task": whole}, done]])
    peer = scripted(capabilities={"streaming": True})
    peer.methods["SubscribeToTask"] = lambda _: next(streams)
    peer.methods["GetTask"] = lambda _: {**whole, "status": {"state": "TASK_STATE_COMPLETED"}}
    words = ("--stream", "-o", "json", "--timeout", "5s")
    code, out, _ = trunkline("task", "subscribe", peer.url, "t1", *words)
    assert code == 0
    (last,) = documents(out)[-1].values()
    assert last["status"]["state"] == "TASK_STATE_COMPLETED"
    assert len(peer.params("SubscribeToTask")) == 2


def test_subscribing_to_an_agent_without_streams_polls(trunkline: Run, scripted: Make) -> None:
    states = iter(["WORKING", "COMPLETED"])
    peer = scripted()
    peer.methods["GetTask"] = lambda _: task(next(states, "COMPLETED"))
    code, out, _ = trunkline("watch", peer.url, "t1", "--poll-interval", "100ms", "-o", "json")
    assert code == 0
    assert documents(out)[-1]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert not peer.params("SubscribeToTask")


@pytest.mark.parametrize("command", [("get",), ("cancel",), ("watch",), ("task", "download")])
def test_the_task_must_be_named(trunkline: Run, demo_url: str, command: tuple[str, ...]) -> None:
    code, _, err = trunkline(*command, demo_url)
    assert code == 2
    assert "the task's id" in err


def test_an_error_that_ends_a_stream_is_its_last_line(trunkline: Run, scripted: Make) -> None:
    peer = scripted(capabilities={"streaming": True})

    def refuse(_: object) -> None:
        raise RuntimeError((-32005, "no such modes"))

    peer.methods["SendStreamingMessage"] = refuse
    code, out, _ = trunkline("send", peer.url, "hi", "--stream", "-o", "json")
    (error,) = documents(out)
    assert (code, error["error"]["code"]) == (1, "ContentTypeNotSupportedError")


def test_a_state_that_nobody_knows_is_said_and_polled_on(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    told = iter([*["UNSPECIFIED"] * 3, "COMPLETED"])
    peer.methods["GetTask"] = lambda _: task(next(told))
    code, out, _ = trunkline("get", peer.url, "t1")
    assert (code, fields(out)["State"]) == (0, "TASK_STATE_UNSPECIFIED")
    code, out, _ = trunkline("get", peer.url, "t1", "--wait", "--poll-interval", "10ms", "--timeout", "9s")
    assert (code, fields(out)["State"]) == (0, "TASK_STATE_COMPLETED")
    peer.methods["GetTask"] = lambda _: task("UNSPECIFIED")
    assert trunkline("get", peer.url, "t1", "--wait", "--timeout", "100ms")[0] == 5


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_following_stops_at_a_question(trunkline: Run, demo_url: str, stream: tuple[str, ...]) -> None:
    """The agent holds such a stream open; whoever is asked must not wait for himself."""
    known = begin(trunkline, demo_url, "ask which")
    code, out, err = trunkline("task", "subscribe", demo_url, known, "--timeout", "5s", *stream)
    assert code == 0
    assert fields(out)["State"] == "TASK_STATE_INPUT_REQUIRED"
    assert f"--task-id {known}" in fields(out)["Next"]
    assert "waits" in err
