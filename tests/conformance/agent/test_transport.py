"""AG-01 to AG-25: transport and lifecycle, over real HTTP, in both versions."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.agent.conftest import KEY
from tests.conformance.agent.talk import (
    METHODS,
    TERMINAL,
    VERSIONS,
    Talk,
    as_json,
    bodies,
    kinds,
    said,
    states,
    until,
)
from tests.harness import V1, Agent, message, params, plain_state, text_of

CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
NOBODY = "0198f0c0-0000-7000-8000-000000000000"
RACES = 200


def card_of(agent: Agent, **headers: str) -> Any:
    response = agent.http.get(agent.base + CARDS[0], headers=headers)
    assert response.status_code == 200
    return response.json()


@pytest.mark.parametrize("headers", [{}, V1], ids=["no version", "1.0"])
def test_AG_01_both_card_paths_serve_the_same_public_card(stranger: Agent, headers: dict[str, str]) -> None:
    # The agent has a key: the card is public all the same.
    answers = [stranger.http.get(stranger.base + path, headers=headers) for path in CARDS]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert all(answer.headers["content-type"].startswith("application/json") for answer in answers)
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["name"] in ("Trunkline demo", "hub")
    again = stranger.http.get(
        stranger.base + CARDS[0], headers={**headers, "If-None-Match": answers[0].headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


def test_AG_02_card_url_is_the_rpc_endpoint(talk: Talk) -> None:
    hybrid, pure = card_of(talk.agent), card_of(talk.agent, **V1)
    urls = {pure["supportedInterfaces"][0]["url"], hybrid["supportedInterfaces"][0]["url"]}
    if talk.version == "0.3":
        urls = {hybrid["url"]}
        urls |= {
            one["url"]
            for one in hybrid["supportedInterfaces"]
            if (one["protocolBinding"], one["protocolVersion"]) == ("JSONRPC", "0.3")
        }
    assert urls == {talk.agent.url}
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": talk.methods["send"],
        "params": params("echo card", talk.version),
    }
    for url in (*urls, *(url + "/" for url in urls)):
        body["params"] = params("echo card", talk.version)
        answer = talk.agent.post(body, V1 if talk.version == "1.0" else {}, url=url)
        assert answer.status_code == 200
        assert "result" in answer.json()


def test_AG_03_a_true_streaming_flag_is_honest(talk: Talk) -> None:
    assert card_of(talk.agent)["capabilities"]["streaming"] is True
    with talk.stream("echo streamed") as frames:
        assert frames.response.status_code == 200
        assert states(frames.all())[-1] == "completed"


def test_AG_03_a_false_streaming_flag_is_honest(mute: Talk) -> None:
    assert card_of(mute.agent)["capabilities"]["streaming"] is False
    task = mute.send("still sends")
    assert text_of(task) == "still sends"
    before = mute.count()
    assert mute.error("stream", params("nobody hears", mute.version))["code"] == -32004
    assert mute.error("resubscribe", {"id": task["id"]})["code"] == -32004
    assert mute.count() == before


def test_AG_03_a_true_push_flag_is_honest(talk: Talk) -> None:
    assert card_of(talk.agent)["capabilities"]["pushNotifications"] is True
    task_id = talk.send("echo push")["id"]
    assert talk.result("push list", {"id": task_id, "taskId": task_id}) in (
        [],
        {"configs": [], "nextPageToken": ""},
    )


def test_AG_03_a_false_push_flag_is_honest(mute: Talk) -> None:
    talk = mute
    assert card_of(talk.agent)["capabilities"]["pushNotifications"] is False
    task_id = talk.send("echo no push")["id"]
    hook = {"url": "https://example.com/hook", "id": "one"}
    given: dict[str, Any] = {
        "push set": {"taskId": task_id, **hook, "pushNotificationConfig": hook},
        "push get": {"id": task_id, "taskId": task_id},
        "push list": {"id": task_id, "taskId": task_id},
        "push delete": {"id": "one", "taskId": task_id, "pushNotificationConfigId": "one"},
    }
    for operation, arguments in given.items():
        error = talk.error(operation, arguments)
        assert error["code"] == -32003
        assert error["data"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"
    before = talk.count()
    with_push = params("echo no push", talk.version)
    with_push["configuration"] |= {"pushNotificationConfig": hook, "taskPushNotificationConfig": hook}
    assert talk.error("send", with_push)["code"] == -32003
    assert talk.count() == before


def _receipts(talk: Talk, given: list[Any]) -> None:
    for one in given:
        result = talk.result("send", one)
        task = result["task"] if talk.version == "1.0" else result
        if talk.version == "0.3":
            assert task["kind"] == "task"
        assert task["id"]
        assert task["contextId"]
        assert plain_state(task) in ("submitted", "working")


def test_AG_04_fast_receipt_when_the_client_does_not_wait(talk: Talk) -> None:
    _receipts(talk, [params("sleep 5", talk.version, wait=False) for _ in range(20)])


def test_AG_04_fast_receipt_of_an_agent_that_replies_with_receipts(receipt: Talk) -> None:
    _receipts(receipt, [{"message": message("sleep 5", receipt.version)} for _ in range(20)])


def test_AG_04_a_client_that_waits_is_not_given_a_receipt(receipt: Talk) -> None:
    assert plain_state(receipt.send("sleep 0.05", wait=True)) == "completed"


def test_AG_05_legacy_stream_alias(demo: Agent) -> None:
    found: list[list[str]] = []
    for method in ("message/stream", "message/sendStream"):
        with demo.stream(method, params("chunks 3", "0.3"), version="0.3") as frames:
            found.append(kinds(frames.all()))
    assert found[0] == found[1] == ["task", "status-update", *["artifact-update"] * 3, "status-update"]


@pytest.mark.parametrize(
    ("version", "method"),
    [(version, method) for version in VERSIONS for method in METHODS[version].values()]
    + [("0.3", "message/sendStream")],
)
def test_AG_06_all_methods_are_routed(demo: Agent, version: str, method: str) -> None:
    if "list" in method.lower() and "push" not in method.lower():
        assert "tasks" in demo.result(method, {}, version=version)
        return
    assert demo.error(method, {}, version=version)["code"] == -32602


def test_AG_07_unknown_method(talk: Talk) -> None:
    body = {"jsonrpc": "2.0", "id": "an id", "method": "tasks/dance", "params": {}}
    response = talk.agent.post(body, V1 if talk.version == "1.0" else {})
    assert response.status_code == 200
    assert response.json()["id"] == "an id"
    assert response.json()["error"]["code"] == -32601


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b'{"jsonrpc": "2.0", "id": 1,',
        b"\xff\xfe",
        b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
    ],
)
def test_AG_08_unparsable_body(talk: Talk, body: bytes) -> None:
    response = talk.agent.post(body, V1 if talk.version == "1.0" else {})
    answer = response.json()
    assert response.status_code == 200
    assert answer["error"]["code"] == -32700
    assert answer["id"] is None
    assert answer["jsonrpc"] == "2.0"


@pytest.mark.parametrize(
    ("body", "echoed"),
    [
        ([1, 2, 3], None),
        ([], None),
        ("text", None),
        (7, None),
        (None, None),
        ({"jsonrpc": "2.0", "id": 4}, 4),
        ({"id": 5, "method": "tasks/get"}, 5),
        ({"jsonrpc": "1.0", "id": "six", "method": "tasks/get"}, "six"),
        ({"jsonrpc": "2.0", "id": 7, "method": 8}, 7),
        ({"jsonrpc": "2.0", "id": {"not": "an id"}, "method": "tasks/get"}, None),
    ],
    ids=as_json,
)
def test_AG_09_invalid_envelope(talk: Talk, body: Any, echoed: Any) -> None:
    response = talk.agent.post(body, V1 if talk.version == "1.0" else {})
    assert response.status_code == 200
    assert response.json()["error"]["code"] == -32600
    assert response.json()["id"] == echoed


def _part(version: str, **one: Any) -> Any:
    if version == "1.0":
        return (
            {"data": one["data"]} if "data" in one else {"raw": "aGVsbG8=", "mediaType": one.get("mime", "")}
        )
    if "data" in one:
        return {"kind": "data", "data": one["data"]}
    return {
        "kind": "file",
        "file": {"bytes": "aGVsbG8=", **({"mimeType": one["mime"]} if "mime" in one else {})},
    }


@pytest.mark.parametrize(
    ("part", "code"),
    [({"data": {"nothing": "that a skill reads"}}, -32602), ({}, -32602), ({"mime": "image/png"}, -32005)],
    ids=["data", "file", "file of a type"],
)
def test_AG_10_parts_that_no_skill_reads(talk: Talk, part: dict[str, Any], code: int) -> None:
    # -32005 is what the specification has for a media type that is not read.
    before = talk.count()
    error = talk.send_error("", parts=[_part(talk.version, **part)])
    assert error["code"] == code
    assert "message.parts" in as_json(error["data"])
    assert talk.count() == before


def test_AG_10_no_parts_at_all(talk: Talk) -> None:
    assert talk.send_error("", parts=[])["code"] == -32602


@pytest.mark.parametrize("task_id", [NOBODY, "no-such-task"])
def test_AG_11_unknown_task(talk: Talk, task_id: str) -> None:
    for operation in ("get", "cancel", "resubscribe"):
        error = talk.error(operation, {"id": task_id})
        assert error["code"] == -32001
        assert error["data"][0]["reason"] == "TASK_NOT_FOUND"
    for operation in ("push set", "push get", "push list", "push delete"):
        hook = {"url": "https://hooks.example/"}
        given = {"id": task_id, "taskId": task_id, **hook, "pushNotificationConfig": hook}
        assert talk.error(operation, given)["code"] == -32001


def test_AG_12_result_is_retrievable(talk: Talk) -> None:
    task = talk.until(talk.send("echo out and back", wait=False)["id"], "completed")
    assert task["artifacts"][0]["artifactId"]
    assert text_of(task) == "echo out and back"
    assert talk.get(task["id"]) == task


def test_AG_13_cancel_works(subject: Talk) -> None:
    key = str(uuid.uuid4())
    task_id = subject.send(f"tick {key}", wait=False)["id"]
    first = until(lambda: _done(subject, key))
    result = subject.result("cancel", {"id": task_id})
    assert plain_state(result) == "canceled"
    stopped = _done(subject, key)
    assert stopped >= first
    # Forty more calls are time for many ticks of 2 ms, if anything still ticked.
    assert {_done(subject, key) for _ in range(40)} == {stopped}
    assert plain_state(subject.get(task_id)) == "canceled"


def _done(subject: Talk, key: str) -> int:
    return int(text_of(subject.send(f"done {key}")))


def test_AG_13_cancel_of_a_long_sleep(talk: Talk) -> None:
    task_id = talk.send("sleep 600", wait=False)["id"]
    assert plain_state(talk.result("cancel", {"id": task_id})) == "canceled"
    assert plain_state(talk.get(task_id)) == "canceled"


def test_AG_13_cancel_of_a_question(talk: Talk) -> None:
    task_id = talk.send("ask Who?")["id"]
    assert plain_state(talk.result("cancel", {"id": task_id})) == "canceled"
    assert talk.send_error("too late", taskId=task_id)["code"] == -32004


@pytest.mark.parametrize("text", ["echo over", "fail over", "reject over"])
def test_AG_14_cancel_after_terminal(talk: Talk, text: str) -> None:
    task = talk.send(text)
    error = talk.error("cancel", {"id": task["id"]})
    assert error["code"] == -32002
    assert talk.get(task["id"]) == task


def test_AG_14_cancel_twice(talk: Talk) -> None:
    task_id = talk.send("sleep 600", wait=False)["id"]
    talk.result("cancel", {"id": task_id})
    assert talk.error("cancel", {"id": task_id})["code"] == -32002


def _race(talk: Talk, place: int) -> tuple[str, str, str]:
    """Cancel a task at about the moment when it completes: its id, the cancel's answer, the first end seen."""
    length_s = 0.03
    # The first is surely canceled and the last one surely too late; chance decides the races between them.
    task_id = talk.send(f"sleep {length_s if place else 600}", wait=False)["id"]
    if place == RACES - 1:
        talk.until(task_id, *TERMINAL)
    time.sleep(length_s * 1.5 * place / RACES)
    answer = talk.agent.rpc(talk.methods["cancel"], {"id": task_id}, version=talk.version)
    answered = plain_state(answer["result"]) if "result" in answer else str(answer["error"]["code"])
    return task_id, answered, plain_state(talk.until(task_id, *TERMINAL))


def test_AG_15_terminal_states_are_immutable(talk: Talk) -> None:
    with ThreadPoolExecutor(8) as pool:
        races = list(pool.map(lambda place: _race(talk, place), range(RACES)))
    seen_at = time.monotonic()
    assert {answered for _, answered, _ in races} == {"canceled", "-32002"}, "no race was run"
    for task_id, answered, first in races:
        assert first == ("canceled" if answered == "canceled" else "completed"), task_id
    while time.monotonic() < seen_at + 1:
        assert [plain_state(talk.get(task_id)) for task_id, _, _ in races] == [first for _, _, first in races]
    for task_id, _, first in races:
        # The log itself has one end and nothing behind it.
        frames = talk.log(task_id)
        assert [state for state in states(frames) if state in TERMINAL] == [first]
        assert kinds(frames)[-1] == "status-update"


@pytest.mark.parametrize("holder", ["message", "params"])
def test_AG_16_context_continuity(talk: Talk, holder: str) -> None:
    context = f"engagement-{uuid.uuid4()}"
    for text in ("echo one", "echo two"):
        given = params(text, talk.version)
        (given["message"] if holder == "message" else given)["contextId"] = context
        result = talk.result("send", given)
        task = result["task"] if talk.version == "1.0" else result
        assert task["contextId"] == context
    listed = talk.result("list", {"contextId": context})
    assert listed["totalSize"] == 2


def test_AG_17_context_is_generated_when_absent(talk: Talk) -> None:
    with talk.stream("chunks 2") as frames:
        found = frames.all()
    contexts = {
        body["contextId"]
        for kind in ("task", "status-update", "artifact-update")
        for body in bodies(found, kind)
    }
    task_id = bodies(found, "task")[0]["id"]
    assert len(contexts) == 1
    assert all(contexts)
    assert {talk.get(task_id)["contextId"]} == contexts
    assert talk.send("echo another")["contextId"] not in contexts


@pytest.mark.parametrize("by", ["send", "stream"])
def test_AG_18_resume_by_task_id(talk: Talk, by: str) -> None:
    asked = talk.send("ask Which colour?")
    assert plain_state(asked) == "input-required"
    assert said(asked) == "Which colour?"
    if by == "send":
        task = talk.send("teal", taskId=asked["id"])
    else:
        with talk.stream("teal", taskId=asked["id"]) as frames:
            assert bodies(frames.all(), "task")[0]["id"] == asked["id"]
        task = talk.get(asked["id"])
    assert (task["id"], task["contextId"]) == (asked["id"], asked["contextId"])
    assert plain_state(task) == "completed"
    assert text_of(task) == "teal"
    assert [part["text"] for one in task["history"] for part in one["parts"]] == [
        "ask Which colour?",
        "Which colour?",
        "teal",
    ]


def test_AG_18_resume_after_authorization(talk: Talk) -> None:
    asked = talk.send("auth Log in first")
    assert plain_state(asked) == "auth-required"
    task = talk.send("logged in", taskId=asked["id"], contextId=asked["contextId"])
    assert (plain_state(task), text_of(task)) == ("completed", "logged in")


def test_AG_19_bad_task_id_is_rejected(talk: Talk) -> None:
    over = talk.send("echo over")
    asked = talk.send("ask")
    before = talk.count()
    assert talk.send_error("echo", taskId=NOBODY)["code"] == -32001
    assert talk.send_error("echo", taskId="made-up")["code"] == -32001
    assert talk.error("stream", params("echo", talk.version, taskId=NOBODY))["code"] == -32001
    assert talk.send_error("echo", taskId=over["id"])["code"] == -32004
    assert talk.send_error("echo", taskId=asked["id"], contextId="another-one")["code"] == -32602
    assert talk.count() == before
    assert talk.get(over["id"]) == over
    assert plain_state(talk.get(asked["id"])) == "input-required"


def test_AG_20_all_text_parts_are_used(talk: Talk) -> None:
    kind = {"kind": "text"} if talk.version == "0.3" else {}
    task = talk.send("", parts=[{**kind, "text": "echo Alpha"}, {**kind, "text": "Beta"}])
    assert text_of(task) == "echo Alpha\nBeta"


WORK = [
    ("POST", "/a2a", {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params("echo", "0.3")}),
    ("POST", "/a2a/", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params("echo")}),
    (
        "POST",
        "/a2a",
        {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": params("echo", "0.3")},
    ),
    ("POST", "/a2a", {"jsonrpc": "2.0", "id": 1, "method": "no/such/method", "params": {}}),
    ("POST", "/message:send", params("echo", "0.3")),
    ("POST", "/message:stream", params("echo", "0.3")),
    (
        "POST",
        "/v1/message:send",
        {"request": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "echo"}]}},
    ),
    (
        "POST",
        "/v1/message:stream",
        {"request": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "echo"}]}},
    ),
    ("GET", "/tasks", None),
    ("GET", "/v1/tasks", None),
    ("GET", "/tasks/{id}", None),
    ("GET", "/v1/tasks/{id}", None),
    ("GET", "/tasks/{id}:subscribe", None),
    ("POST", "/tasks/{id}:subscribe", {}),
    ("POST", "/tasks/{id}:cancel", {}),
    ("POST", "/v1/tasks/{id}:cancel", {}),
    ("POST", "/tasks/{id}/pushNotificationConfigs", {"url": "https://example.com"}),
    ("GET", "/tasks/{id}/pushNotificationConfigs", None),
    ("GET", "/tasks/{id}/pushNotificationConfigs/one", None),
    ("DELETE", "/tasks/{id}/pushNotificationConfigs/one", None),
    ("GET", "/extendedAgentCard", None),
    ("GET", "/v1/card", None),
    ("GET", "/no/such/path", None),
]
WRONG = [
    {},
    {"X-API-Key": "a-key-nobody-knows"},
    {"X-API-Key": ""},
    {"Authorization": "Bearer a-key-nobody-knows"},
    {"Authorization": f"Basic {KEY}"},
    {"Authorization": KEY},
]


@pytest.mark.parametrize(("verb", "path", "body"), WORK, ids=[f"{verb} {path}" for verb, path, _ in WORK])
def test_AG_23_auth_on_every_work_route(
    keyed: Talk, stranger: Agent, verb: str, path: str, body: Any
) -> None:
    task_id = keyed.send("ask")["id"]
    before = keyed.count()
    for headers in WRONG:
        version = V1 if keyed.version == "1.0" else {}
        answer = stranger.http.request(
            verb, stranger.base + path.replace("{id}", task_id), json=body, headers={**headers, **version}
        )
        assert answer.status_code == 401, headers
        assert answer.headers["www-authenticate"]
        assert KEY not in answer.text
    assert keyed.count() == before
    assert plain_state(keyed.get(task_id)) == "input-required"


def test_AG_23_every_scheme_of_the_card_is_accepted(keyed: Talk, stranger: Agent) -> None:
    card = card_of(stranger)
    assert card["security"] == [{name: []} for name in card["securitySchemes"]]
    for scheme in card["securitySchemes"].values():
        if scheme["type"] == "apiKey":
            assert scheme["in"] == "header"
            headers = {scheme["name"]: KEY}
        else:
            assert (scheme["type"], scheme["scheme"].lower()) == ("http", "bearer")
            headers = {"Authorization": f"Bearer {KEY}"}
        friend = Talk(Agent(stranger.base, headers=headers), keyed.version)
        task = friend.send("echo let in")
        assert text_of(task) == "echo let in"
        rest = friend.agent.http.post(
            friend.agent.base + "/message:send", json={"message": message("echo rest", "0.3")}
        )
        assert rest.status_code == 202
        # Both are the same key, so the same caller.
        assert keyed.get(task["id"]) == task
        friend.agent.close()


@pytest.mark.parametrize("member", ["message.skillHint", "message.skill", "params.skillHint", "params.skill"])
def test_AG_24_skill_hint_reaches_the_skill(talk: Talk, member: str) -> None:
    where, name = member.split(".")
    for _ in range(3):
        given = params("fail loudly", talk.version)
        (given["message"] if where == "message" else given)["metadata"] = {name: "echo"}
        result = talk.result("send", given)
        task = result["task"] if talk.version == "1.0" else result
        assert (plain_state(task), text_of(task)) == ("completed", "fail loudly")


@pytest.mark.parametrize("member", ["message.skillHint", "message.skill", "params.skillHint", "params.skill"])
def test_AG_24_a_hint_that_names_no_skill(talk: Talk, member: str) -> None:
    where, name = member.split(".")
    given = params("fail loudly", talk.version)
    (given["message"] if where == "message" else given)["metadata"] = {name: "juggle"}
    if name == "skillHint":
        task = talk.result("send", given)
        task = task["task"] if talk.version == "1.0" else task
        assert said(task) == "loudly", "a hint that names no skill falls to the default one"
        return
    error = talk.error("send", given)
    assert error["code"] == -32602
    assert "juggle" in error["message"]
    assert "echo" in error["message"], "the message names the skills there are"


def test_AG_25_error_text_is_visible(talk: Talk) -> None:
    task = talk.send("fail The printer is on fire")
    assert plain_state(task) == "failed"
    assert said(task) == "The printer is on fire"


def test_AG_25_an_exception_gives_a_reason_and_no_traceback(talk: Talk) -> None:
    task = talk.send("raise secret-inner-detail")
    assert plain_state(task) == "failed"
    assert "Reason id" in said(task)
    shown = as_json({name: value for name, value in task.items() if name != "history"})
    for inner in ("secret-inner-detail", "Traceback", "RuntimeError", ".py"):
        assert inner not in shown


def test_AG_25_the_stream_shows_it_too(talk: Talk) -> None:
    with talk.stream("fail on air") as frames:
        assert said(bodies(frames.all(), "status-update")[-1]) == "on air"
