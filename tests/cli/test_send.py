"""`trunkline send` and `trunkline stream`, against our own agent and against scripted ones."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted, task
from trunkline.mock.scenario import Reply

Make = Callable[..., Scripted]


def fields(out: str) -> dict[str, str]:
    """The labelled fields of an output; of several with the same label the last."""
    lines = [line for line in out.splitlines() if line and not line.startswith(" ")]
    return {label: value.strip() for label, _, value in (line.partition(":") for line in lines)}


def blocks(out: str, label: str) -> list[str]:
    """The contents of the blocks with this label."""
    found: list[str] = []
    lines = iter(out.splitlines())
    for line in lines:
        if line == f"{label}:":
            found.append("\n".join(inner.removeprefix("  ") for inner in iter(lambda: next(lines), "")))
    return found


def documents(out: str) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_send_waits_and_names_task_context_and_state(trunkline: Run, demo_url: str) -> None:
    code, out, err = trunkline("send", demo_url, "hello there")
    shown = fields(out)
    assert (code, err) == (0, "")
    assert shown["State"] == "TASK_STATE_COMPLETED"
    assert blocks(out, "Text") == ["hello there"]
    assert shown["Next"] == f"trunkline send -a {demo_url} --context-id {shown['Context']} '<reply>'"
    assert shown["Task"]


def test_long_wait_for_a_retry_is_reported(
    trunkline: Run, scripted: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, sleep = list[float](), asyncio.sleep

    async def skip(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    agent = scripted()
    refusals = [(-32012, "the limit concurrent_tasks of this tenant is met: 1")] * 2

    def send(_: Any) -> Any:
        if refusals:
            raise RuntimeError(refusals.pop())
        return {"task": task("COMPLETED")}

    agent.methods["SendMessage"] = send
    # The agent runs in a thread of its own, with another module's sleep.
    monkeypatch.setattr("trunkline.client.session.sleep", skip)
    code, out, err = trunkline("send", agent.url, "hello")
    assert (code, fields(out)["State"], len(waits)) == (0, "TASK_STATE_COMPLETED", 2)
    why = "the limit concurrent_tasks of this tenant is met: 1"
    assert err.splitlines()[0] == (
        f"Warning: {agent.url}: attempt 1 failed; waiting {waits[0]:.0f} s before the next: {why}"
    )
    assert "attempt 2 failed" in err
    refusals.append((-32012, why))
    waits.clear()

    def pause_s(*_: object) -> float:
        return 0.5

    monkeypatch.setattr("trunkline.client.session.pause_s", pause_s)
    assert "attempt" not in trunkline("send", agent.url, "hello")[2] and waits == [0.5]


def test_both_spellings_mean_the_same(trunkline: Run, demo_url: str) -> None:
    first = trunkline("send", "echo me", "-a", demo_url)[1]
    second = trunkline("send", demo_url, "echo me")[1]
    assert blocks(first, "Text") == blocks(second, "Text") == ["echo me"]


def test_with_an_agent_named_a_url_is_a_text(trunkline: Run, demo_url: str) -> None:
    code, out, _ = trunkline("send", "https://example.com/page", "-a", demo_url)
    assert code == 0
    assert blocks(out, "Text") == ["https://example.com/page"]


def test_two_words_without_a_url_are_refused(trunkline: Run, demo_url: str) -> None:
    code, _, err = trunkline("send", "localhost", "hello", "-a", demo_url)
    assert code == 2
    assert "quote the text" in err


def test_json_is_one_document_with_the_answer_of_a_send(trunkline: Run, demo_url: str) -> None:
    code, out, err = trunkline("send", demo_url, "hello", "-o", "json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert list(answer) == ["task"]
    assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert answer["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]


def test_async_gives_the_ids_at_once_and_the_wait_comes_later(trunkline: Run, demo_url: str) -> None:
    _, out, _ = trunkline("send", demo_url, "sleep 0.5", "--async", "-o", "json")
    begun = json.loads(out)["task"]
    assert begun["id"] and begun["contextId"]
    assert begun["status"]["state"] in {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
    code, out, _ = trunkline("task", "get", demo_url, begun["id"], "--wait")
    assert code == 0
    assert fields(out)["State"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("alias", ["--return-immediately", "--no-wait"])
def test_async_has_aliases(trunkline: Run, demo_url: str, alias: str) -> None:
    out = trunkline("send", demo_url, "sleep 30", alias)[1]
    shown = fields(out)
    assert shown["State"] in {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
    assert shown["Next"] == f"trunkline task get -a {demo_url} {shown['Task']} --wait"
    trunkline("cancel", demo_url, shown["Task"])


def test_a_stream_is_a_line_per_event_and_ends_with_the_end(trunkline: Run, demo_url: str) -> None:
    code, out, _ = trunkline("send", demo_url, "chunks 3", "--stream", "-o", "json")
    events = documents(out)
    assert code == 0
    assert "task" in events[0]
    assert [
        event["artifactUpdate"]["artifact"]["artifactId"] for event in events if "artifactUpdate" in event
    ]
    last = events[-1]["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_COMPLETED"
    assert last["taskId"] == events[0]["task"]["id"] and last["contextId"]


def test_stream_is_send_with_a_flag(trunkline: Run, demo_url: str) -> None:
    out = trunkline("stream", demo_url, "chunks 2")[1]
    shown = fields(out)
    assert shown["State"] == "TASK_STATE_COMPLETED"
    assert shown["Task"] and shown["Context"] and shown["Next"]
    assert "".join(blocks(out, "Text")).startswith("chunk-000000")


def test_a_stream_shows_the_skill_that_was_named_beside_the_state(trunkline: Run, scripted: Make) -> None:
    peer = scripted(capabilities={"streaming": True})
    ended = {"taskId": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}
    peer.methods["SendStreamingMessage"] = lambda _: [{"task": task("WORKING")}, {"statusUpdate": ended}]
    lines = trunkline("stream", peer.url, "hi", "--skill", "translate")[1].splitlines()
    states = [place for place, line in enumerate(lines) if line.startswith("State:")]
    assert len(states) == 2
    for place in states:
        assert lines[place + 1].split() == ["Skill:", "translate"]
    # Nobody says it of a task that was begun before.
    assert "Skill" not in fields(trunkline("stream", peer.url, "hi")[1])
    going_on = trunkline("stream", peer.url, "hi", "--task-id", "t1", "--skill", "translate")[1]
    assert fields(going_on)["State"] and "Skill" not in fields(going_on)


def test_the_environment_never_streams(
    trunkline: Run, demo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A2ACLI_STREAM", "true")
    _, out, err = trunkline("send", demo_url, "chunks 2", "-o", "json")
    assert list(json.loads(out)) == ["task"]
    assert "A2ACLI_STREAM sets nothing" in err


def test_a_stream_of_an_agent_without_streams_is_one_line(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    code, out, _ = trunkline("stream", peer.url, "hi", "-o", "json")
    assert code == 0
    assert documents(out) == [{"task": task("COMPLETED")}]


def test_a_message_without_a_task_is_a_clean_end(trunkline: Run, scripted: Make) -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "straight"}]}
    peer = scripted(capabilities={"streaming": True})
    peer.methods["SendStreamingMessage"] = lambda _: [{"message": message}]
    code, out, err = trunkline("send", peer.url, "hi", "--stream", "-o", "json")
    assert (code, err) == (0, "")
    assert documents(out) == [{"message": message}]
    code, out, _ = trunkline("send", peer.url, "hi", "-o", "json")
    assert json.loads(out) == {"message": message}
    assert blocks(trunkline("send", peer.url, "hi")[1], "Text") == ["straight"]


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"])
def test_the_exit_code_is_the_tools_and_the_outcome_the_agents(
    trunkline: Run, scripted: Make, state: str
) -> None:
    said = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "so it is"}]}}
    peer = scripted()
    peer.methods["SendMessage"] = lambda _: {
        "task": {**task(state), "status": {"state": f"TASK_STATE_{state}", **said}}
    }
    code, out, err = trunkline("send", peer.url, "hi")
    assert code == 0
    assert fields(out)["State"] == f"TASK_STATE_{state}"
    assert f"TASK_STATE_{state}: so it is" in err


def test_a_question_says_how_to_answer_it_and_the_answer_goes_there(trunkline: Run, demo_url: str) -> None:
    _, out, err = trunkline("send", demo_url, "ask which colour")
    shown = fields(out)
    assert shown["State"] == "TASK_STATE_INPUT_REQUIRED"
    assert blocks(out, "Status") == ["which colour"]
    going_on = f"--context-id {shown['Context']} --task-id {shown['Task']}"
    assert shown["Next"] == f"trunkline send -a {demo_url} {going_on} '<reply>'"
    assert "which colour" in err
    code, after, _ = trunkline("send", demo_url, "--task-id", shown["Task"], "blue")
    assert code == 0
    assert (fields(after)["Task"], fields(after)["State"]) == (shown["Task"], "TASK_STATE_COMPLETED")


@pytest.mark.parametrize(
    ("wanted", "reply", "shown"),
    [
        (
            {"choices": ["red", "blue"], "deadline": "2026-01-31T12:00:00Z"},
            "'<red|blue>'",
            "Choices: red, blue",
        ),
        ({"schema": {"type": "integer"}}, "--data '<json>'", '"type": "integer"'),
    ],
)
def test_a_question_says_which_answer_it_wants(
    trunkline: Run, scripted: Make, wanted: dict[str, Any], reply: str, shown: str
) -> None:
    peer = scripted()
    kind = "application/vnd.trunkline.question+json"
    parts = [{"text": "Which?"}, {"data": wanted, "mediaType": kind}]
    said = {"messageId": "q", "role": "ROLE_AGENT", "parts": parts}
    peer.methods["SendMessage"] = lambda _: {
        "task": {**task("INPUT_REQUIRED"), "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": said}}
    }
    code, out, _ = trunkline("send", peer.url, "hi")
    assert code == 0 and shown in out
    assert fields(out)["Next"].endswith(reply)
    assert fields(out).get("Deadline", "") == wanted.get("deadline", "")


@pytest.mark.parametrize("words", [(), ("--stream",)])
def test_an_answer_is_followed_past_the_question_that_it_answers(
    trunkline: Run, a2a_mock: Any, words: tuple[str, ...]
) -> None:
    """The first event of the stream is the task as it was, which still asks."""
    url = a2a_mock(Reply(ask="Which one?", then=Reply(text="This one.", delay=0.4))).listen()
    task = fields(trunkline("send", url, "begin")[1])["Task"]
    code, out, err = trunkline("send", "-a", url, "--task-id", task, "the red one", *words)
    assert (code, err) == (0, "")
    assert "This one." in out
    assert out.rindex("TASK_STATE_COMPLETED") > out.find("TASK_STATE_INPUT_REQUIRED")


def test_a_context_is_gone_on_in_with_a_new_task(trunkline: Run, demo_url: str) -> None:
    first = fields(trunkline("send", demo_url, "one")[1])
    second = fields(trunkline("send", demo_url, "--context-id", first["Context"], "two")[1])
    assert second["Context"] == first["Context"]
    assert second["Task"] != first["Task"]


@pytest.mark.parametrize(
    ("stale", "name"), [("none", "TaskNotFoundError"), ("ended", "UnsupportedOperationError")]
)
def test_a_rejected_task_id_fails_and_begins_nothing(
    trunkline: Run, demo_url: str, stale: str, name: str
) -> None:
    known = fields(trunkline("send", demo_url, "hello")[1])
    before = json.loads(trunkline("list", demo_url, "-o", "json")[1])["totalSize"]
    chosen = known["Task"] if stale == "ended" else "no-such-task"
    code, out, _ = trunkline("send", demo_url, "--task-id", chosen, "more", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (1, name)
    next_send = f"trunkline send -a {demo_url} '<text>'"
    assert error["hint"].startswith("trunkline task list" if name == "TaskNotFoundError" else next_send)
    assert json.loads(trunkline("list", demo_url, "-o", "json")[1])["totalSize"] == before


def test_a_context_that_is_not_the_tasks_is_the_agents_to_refuse(trunkline: Run, demo_url: str) -> None:
    asked = fields(trunkline("send", demo_url, "ask what")[1])
    other = ("--task-id", asked["Task"], "--context-id", "another")
    code, out, _ = trunkline("send", demo_url, *other, "x", "-o", "json")
    assert (code, json.loads(out)["error"]["code"]) == (1, "InvalidParamsError")


def test_the_tool_invents_no_ids_of_the_agents(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    for _ in range(2):
        trunkline("send", peer.url, "hi")
    sent = [params["message"] for params in peer.params("SendMessage")]
    # Nor is the task of the first call brought into the second.
    assert all("taskId" not in message and "contextId" not in message for message in sent)
    assert sent[0]["messageId"] != sent[1]["messageId"]


def test_parts_keep_their_order_and_their_types(
    trunkline: Run, scripted: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = scripted()
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    (tmp_path / "report.bin").write_bytes(b"\x00\x01")
    (tmp_path / "notes.txt").write_text("plain")
    (tmp_path / "trip.json").write_text('["Rome"]')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"b": 2}')))
    trunkline(
        "send", peer.url, "first",
        "--file", "report.bin", "--media-type", "application/pdf",
        "--text", "second", "--data", "-", "--data", '{"a": [1]}', "--data", "@trip.json", "--data", "trip.json", "--file", "notes.txt",
        "--file", "https://example.com/big.zip", "--text", "third", "--media-type", "text/markdown",
    )  # fmt: skip
    parts = peer.params("SendMessage")[0]["message"]["parts"]
    raw = base64.b64encode(b"\x00\x01").decode()
    assert parts == [
        {"text": "first"},
        {"raw": raw, "filename": "report.bin", "mediaType": "application/pdf"},
        {"text": "second"},
        {"data": {"b": 2}, "mediaType": "application/json"},
        {"data": {"a": [1]}, "mediaType": "application/json"},
        {"data": ["Rome"], "mediaType": "application/json"},
        {"data": ["Rome"], "mediaType": "application/json"},
        {"raw": base64.b64encode(b"plain").decode(), "filename": "notes.txt", "mediaType": "text/plain"},
        {"url": "https://example.com/big.zip", "filename": "big.zip", "mediaType": "application/zip"},
        {"text": "third", "mediaType": "text/markdown"},
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("hi", "--media-type", "a/b"), "follows no --text"),
        ((), "nothing to send"),
        (("--file", "none.txt"), "--file none.txt: no such file"),
        (("--data", "bad.json"), "--data bad.json: invalid JSON"),
        (("--data", '{"a": '), "--data: invalid JSON: input data was truncated"),
        (("--data", "@bad.json"), "--data bad.json: invalid JSON"),
        (("--data", "@none.json"), "--data none.json: no such file"),
        (("--data", "@/dev/zero"), "--data /dev/zero is larger than 64 MiB"),
        (("--file", "/dev/zero"), "--file /dev/zero is larger than 64 MiB"),
        (("hi", "--metadata", "[1]"), "--metadata: invalid JSON object"),
        (("hi", "--wait", "--async"), "choose one"),
        (("hi", "--stream", "--async"), "choose one"),
        (("hi", "--svc-param", "novalue"), "NAME:VALUE"),
        (("hi", "-o", "yaml"), "choose text or json"),
        (("hi", "--a2a-version", "7.1"), "7.1"),
    ],
)
def test_usage_that_is_wrong(
    trunkline: Run, demo_url: str, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "bad.json").write_text("{")
    code, out, err = trunkline("send", demo_url, *words)
    assert (code, out) == (2, "")
    assert says in err and "Code: A2ACLI_ERR_USAGE" in err


def test_a_host_is_no_url(trunkline: Run) -> None:
    code, _, err = trunkline("send", "localhost:8000", "hello")
    assert (code, "give -a localhost:8000" in err) == (2, True)


def test_metadata_goes_in_the_payload_and_parameters_in_headers(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    more = ("--metadata", '{"tenant": ["acme"]}', "--svc-param", "x-trace-id: abc", "--svc-param", "X-B:c:d")
    trunkline("send", peer.url, "hi", *more, "--skill", "s")
    ((_, params, headers),) = [one for one in peer.asked if one[0] == "SendMessage"]
    assert params["metadata"] == {"tenant": ["acme"]}
    assert params["message"]["metadata"]["skillId"] == "s"
    assert (headers["x-trace-id"], headers["x-b"]) == ("abc", "c:d")
    assert "x-trace-id" not in params.get("metadata", {})


@pytest.mark.parametrize("command", ["send", "chat", "tools"])
def test_a_0_3_agent_reads_the_work_in_both_metadata(
    trunkline: Run, scripted: Make, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    peer = scripted()
    own = {"url": f"{peer.url}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
    peer.card = {"supportedInterfaces": [own], "name": "n", "skills": [{"id": "s", "name": "s"}]}
    peer.methods["message/send"] = lambda _: {
        "kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"},
    }  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    given = {
        "send": ("hi", "--skill", "s"),
        "chat": ("--skill", "s"),
        "tools": ("--call", "a2a__n__s", "--arguments", '{"query": "hi"}'),
    }
    work = ("--correlation-id", "co", "--parent-id", "pa")
    code, _, err = trunkline(command, peer.url, *given[command], "--a2a-version", "0.3", *work)
    assert code == 0, err
    (params,) = peer.params("message/send")
    named = {"skillHint": "s", "correlationId": "co", "parentId": "pa"}
    assert params["metadata"] == named
    assert params["message"]["metadata"] == {**named, "skillId": "s"}


def test_verbose_shows_what_was_sent_and_received(trunkline: Run, demo_url: str) -> None:
    short = trunkline("send", demo_url, "hello")[1]
    long = trunkline("send", demo_url, "hello", "--verbose")[1]
    assert "Sent:" not in short and "Role:" not in short
    assert "Sent:" in long and "Role: ROLE_USER" in long and "Updated:" in long


def test_an_agent_without_streams_is_asked_until_it_rests(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    states = iter(["WORKING", "WORKING", "COMPLETED"])
    peer.methods["SendMessage"] = lambda _: {"task": task("SUBMITTED")}
    peer.methods["GetTask"] = lambda _: task(next(states, "COMPLETED"))
    code, out, _ = trunkline("send", peer.url, "hi", "--poll-interval", "50ms", "--timeout", "5s")
    assert code == 0
    assert fields(out)["State"] == "TASK_STATE_COMPLETED"
    # The id is wanted at once, so that whoever is interrupted can come back.
    assert peer.params("SendMessage")[0]["configuration"]["returnImmediately"] is True


def test_a_flag_waits_where_the_environment_does_not(
    trunkline: Run, demo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A2ACLI_ASYNC", "true")
    begun = fields(trunkline("send", demo_url, "sleep 0.3")[1])
    assert begun["State"] in {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
    assert fields(trunkline("send", demo_url, "sleep 0.3", "--wait")[1])["State"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize(("text", "code"), [("fail on purpose", 1), ("hello", 0), ("ask which", 0)])
@pytest.mark.parametrize("command", ["send", "stream"])
def test_a_failed_task_fails_the_script_that_says_so(
    trunkline: Run, demo_url: str, command: str, text: str, code: int
) -> None:
    assert trunkline(command, demo_url, text, "--fail")[0] == code
    assert trunkline(command, demo_url, text)[0] == 0


def test_json_has_a_flag_of_its_own(trunkline: Run, demo_url: str) -> None:
    assert "task" in json.loads(trunkline("send", demo_url, "hello", "--json")[1])
    assert json.loads(trunkline("card", demo_url, "--json")[1])["name"]
    assert (
        json.loads(trunkline("send", demo_url, "--json", "--nothing")[1])["error"]["code"]
        == "A2ACLI_ERR_USAGE"
    )
    code, out, _ = trunkline("store", "check", "--store", "sqlite:///none.db", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "TRUNKLINE_STORE")


def test_a_credential_may_be_named_by_its_variable(
    trunkline: Run, scripted: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = scripted()
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    monkeypatch.setenv("WORD_OF_MINE", "open-sesame")
    parameter = "x-word: env:WORD_OF_MINE"
    trunkline("send", peer.url, "hi", "--bearer", "env:WORD_OF_MINE", "--svc-param", parameter)
    headers = peer.asked[-1][2]
    assert (headers["authorization"], headers["x-word"]) == ("Bearer open-sesame", "open-sesame")
