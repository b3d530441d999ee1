"""Keys on every operation, foreign tasks like unknown ones, bad input, nothing secret in the log."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator

import httpx2
import pytest

from tests.conformance.wire.bindings import EVERY, UNKNOWN, Answer, Binding, Refusal, Rpc
from tests.conformance.wire.conftest import KEYS, Serve
from tests.harness import V1, ServerProcess

Operation = Callable[[Binding, str], Answer]


def _opened(opening: object) -> Answer:
    try:
        with opening as frames:  # type: ignore[attr-defined]
            next(iter(frames))
    except Refusal as refusal:
        return refusal.answer
    raise AssertionError("a stream was opened")


OPERATIONS: dict[str, Operation] = {
    "send": lambda spoken, task_id: spoken.send_message(
        spoken.message("hello", messageId="m", taskId=task_id)
    ),
    "stream": lambda spoken, task_id: _opened(
        spoken.stream(spoken.message("hello", messageId="m", taskId=task_id))
    ),
    "get": lambda spoken, task_id: spoken.get(task_id),
    "get with history": lambda spoken, task_id: spoken.get(task_id, historyLength=1),
    "cancel": lambda spoken, task_id: spoken.cancel(task_id),
    "subscribe": lambda spoken, task_id: _opened(spoken.subscribe(task_id)),
    "resume": lambda spoken, task_id: _opened(spoken.subscribe(task_id, last="1")),
    "push set": lambda spoken, task_id: spoken.push("set", task_id),
    "push get": lambda spoken, task_id: spoken.push("get", task_id),
    "push list": lambda spoken, task_id: spoken.push("list", task_id),
    "push delete": lambda spoken, task_id: spoken.push("delete", task_id),
}


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest) -> Operation:
    return OPERATIONS[request.param]


@pytest.fixture
def tasks(keyed: ServerProcess, http: httpx2.Client) -> Iterator[list[str]]:
    """Tasks of the first key: ended, waiting, running."""
    mine = Rpc(keyed.base, http, {"X-API-Key": KEYS[0]})
    running = mine.send("hold 1", wait=False)["id"]
    yield [mine.send("echo mine")["id"], mine.send("ask")["id"], running]
    mine.cancel(running)


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "wrong-key-altogether"}], ids=["none", "wrong"])
def test_SEC_01_no_operation_without_a_key(
    speak: Callable[..., Binding],
    keyed: ServerProcess,
    tasks: list[str],
    operation: Operation,
    headers: dict[str, str],
) -> None:
    answer = operation(speak(keyed.base, headers), tasks[0])
    assert (answer.http, answer.reason) == (401, "UNAUTHENTICATED")
    assert b"echo mine" not in answer.body


def test_SEC_01_neither_list_nor_extended_card_without_a_key(
    speak: Callable[..., Binding], keyed: ServerProcess
) -> None:
    for answer in (speak(keyed.base).list(), speak(keyed.base).extended_card()):
        assert (answer.http, answer.reason) == (401, "UNAUTHENTICATED")


def test_SEC_01_the_card_needs_no_key(keyed: ServerProcess, http: httpx2.Client) -> None:
    for path in ("agent-card.json", "agent.json"):
        assert http.get(f"{keyed.base}/.well-known/{path}").status_code == 200


def test_SEC_02_the_challenge_names_the_scheme(speak: Callable[..., Binding], keyed: ServerProcess) -> None:
    answer = speak(keyed.base).get(UNKNOWN)
    assert answer.headers["www-authenticate"] == "Bearer, ApiKey"


def test_SEC_04_a_foreign_task_is_answered_like_an_unknown_one(
    speak: Callable[..., Binding], keyed: ServerProcess, tasks: list[str], operation: Operation
) -> None:
    other = speak(keyed.base, {"X-API-Key": KEYS[1]})
    unknown = operation(other, UNKNOWN)
    assert unknown.error is not None
    for task_id in tasks:
        foreign = operation(other, task_id)
        assert foreign.body.replace(task_id.encode(), UNKNOWN.encode()) == unknown.body
        assert foreign.http == unknown.http
        names = [name for name in foreign.headers if name != "date"]
        assert {name: foreign.headers[name] for name in names} == {
            name: unknown.headers[name] for name in names
        }


def test_SEC_04_a_foreign_tasks_state_is_not_told_by_a_wrong_context(
    speak1: Callable[..., Binding], keyed: ServerProcess, tasks: list[str]
) -> None:
    other = speak1(keyed.base, {"X-API-Key": KEYS[1]})
    for task_id in (*tasks, UNKNOWN):
        message = other.message("hello", taskId=task_id, contextId="another")
        other.expect(other.send_message(message), "TASK_NOT_FOUND")


def test_SEC_04_a_foreign_context_gives_no_history(serve: Serve, http: httpx2.Client) -> None:
    server = serve("agents:listener", "--key", KEYS[0], "--key", KEYS[1])
    mine, other = (Rpc(server.base, http, {"X-API-Key": key}) for key in KEYS)
    mine.send("a secret", contextId="shared")
    own = mine.send("what was it", contextId="shared")
    assert "a secret" in own["artifacts"][0]["parts"][0]["text"]
    assert other.send("what was it", contextId="shared")["artifacts"][0]["parts"][0]["text"] == "what was it"


def test_SEC_04_the_same_message_id_of_two_callers_is_two_tasks(
    keyed: ServerProcess, http: httpx2.Client
) -> None:
    mine, other = (Rpc(keyed.base, http, {"X-API-Key": key}) for key in KEYS)
    message = mine.message("echo hi")
    assert mine.send_message(message).task["id"] != other.send_message(message).task["id"]
    assert "task" in other.send_message(message, {"Idempotency-Key": "k"}).result
    assert "task" in mine.send_message(mine.message("echo other"), {"Idempotency-Key": "k"}).result


DEEP = 5_000


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b'{"message":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"message":{"metadata":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}}",
        b'{"message":' + b"9" * 5_000 + b"}",
        b'{"message":{"parts":7}}',
        b'{"message":[]}',
        b'{"message":"text"}',
        b'{"message":{"messageId":{},"role":[],"parts":{}}}',
        b'{"message":null,"configuration":[1]}',
        b"\x00\xff\xfe",
        b'"',
        b"{}" * 1000,
    ],
    ids=range(13),
)
def test_SEC_06_odd_bodies_are_refused_and_the_server_lives(
    base: str, http: httpx2.Client, body: bytes
) -> None:
    kind = {"Content-Type": "application/json"}
    enveloped = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":' + body + b"}"
    for content in (body, enveloped):
        answer = http.post(f"{base}/a2a", content=content, headers={**kind, **V1})
        assert answer.status_code == 200
        assert answer.json()["error"]["code"] in (-32700, -32600, -32602)
    for path in ("/message:send", "/message:stream", "/v1/message:send"):
        for headers in (kind, {**kind, **V1}):
            assert http.post(base + path, content=body, headers=headers).status_code == 400
    assert Rpc(base, http).send("echo alive")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_SEC_07_a_body_over_the_limit_is_413(serve: Serve, http: httpx2.Client) -> None:
    server = serve("trunkline.demo:agent", "--set", "body_limit=2000")
    for speaker in EVERY.values():
        spoken = speaker(server.base, http)
        answer = spoken.send_message(spoken.message("echo " + "x" * 2000))
        assert (answer.http, answer.reason) == (413, "BODY_TOO_LARGE")
        assert speaker is not Rpc or answer.error["code"] == -32600
        assert spoken.send_message(spoken.message("echo small")).error is None


def test_SEC_07_a_chunked_body_over_the_limit_is_413(serve: Serve, http: httpx2.Client) -> None:
    server = serve("trunkline.demo:agent", "--set", "body_limit=2000")

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 1000

    answer = http.post(
        f"{server.base}/a2a", content=endless(), headers={"Content-Type": "application/json", **V1}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, -32600)


def test_SEC_10_no_credential_in_the_log(keyed: ServerProcess, http: httpx2.Client) -> None:
    secret = "token-that-nobody-may-log"
    for speaker in EVERY.values():
        for headers in (
            {"X-API-Key": KEYS[0]},
            {"Authorization": f"Bearer {KEYS[1]}"},
            {"X-API-Key": secret},
        ):
            spoken = speaker(keyed.base, http, headers)
            push = {
                "url": f"http://10.0.0.1/?key={secret}",
                "token": secret,
                "authentication": {"scheme": "Bearer", "credentials": secret},
            }
            name = "taskPushNotificationConfig" if spoken.version == "1.0" else "pushNotificationConfig"
            spoken.send_message(spoken.message("echo hi"), **{name: push})
            spoken.send_message(spoken.message("raise hell"), wait=True)
    text = keyed.text()
    # The log is there, and has the refusals in it.
    assert "UNAUTHENTICATED" in text and "INVALID_PARAMS" in text
    assert not [word for word in (*KEYS, secret) if word in text]


def test_SEC_10_no_key_in_any_answer(speak: Callable[..., Binding], keyed: ServerProcess) -> None:
    spoken = speak(keyed.base, {"X-API-Key": KEYS[0]})
    made = spoken.send_message(spoken.message("echo hi"), wait=True)
    text = json.dumps([made.document, spoken.list().document]) + str(made.headers)
    assert KEYS[0] not in text


def test_SEC_11_addresses_in_messages_are_not_fetched(base: str, http: httpx2.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/secret"
        spoken = Rpc(base, http)
        parts = [{"text": "echo"}, {"url": url, "mediaType": "text/plain"}]
        task = spoken.send_message(spoken.message(parts=parts)).task
        assert task["history"][0]["parts"][1]["url"] == url
        # The task is over; whoever had wanted to fetch would stand in the queue by now.
        trap.setblocking(False)
        with pytest.raises(BlockingIOError):
            trap.accept()
