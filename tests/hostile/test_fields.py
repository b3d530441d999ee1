"""Rows 37 to 39: every member of every request spoiled in every way; no 5xx, no hang, and the answer says what."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec
import pytest

from tests.harness import Agent, ServerProcess, message
from tests.hostile.shapes import V1, Case, doubly, forms, queries, spoil, torn
from tests.hostile.sockets import Answer, flood, one, post
from trunkline.store.base import Where

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("TRUNKLINE_TEST_SEED", "20260131"))
RANDOM = 3_000
# JSON-RPC's own and A2A's; -32603, our own fault, is not among them.
CODES = {-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004, -32005, -32007, -32008, -32009}
FINE = {200, 201, 202, 204}
REFUSED = {400, 404, 405, 409, 413, 415}
# What 0.3 says of push notifications and of other things that an agent does not do.
NOT_DONE = ("PushNotificationNotSupportedError", "UnsupportedOperationError")


@pytest.fixture(scope="module")
def finished(target: ServerProcess) -> str:
    agent = Agent(target.base)
    task = agent.send("echo to be asked for")
    agent.close()
    return task["id"]


def test_spoiled_members_of_rpc(target: ServerProcess, finished: str) -> None:
    cases = [case for form in forms(finished) if form.rpc for case in spoil(form)]
    assert len(cases) >= 12_000
    _run(target, cases)


def test_spoiled_members_of_rest(target: ServerProcess, finished: str) -> None:
    cases = [case for form in forms(finished) if not form.rpc for case in spoil(form)]
    cases += queries(finished)
    assert len(cases) >= 10_000
    _run(target, cases)


def test_spoiled_at_random(target: ServerProcess, finished: str) -> None:
    print(f"seed {SEED}: set TRUNKLINE_TEST_SEED for another one")
    known = forms(finished)
    cases = list(chain(doubly(known, RANDOM, SEED), torn(known, RANDOM, SEED)))
    assert len(cases) == 2 * RANDOM
    _run(target, cases)


QUOTED: dict[str, dict[str, Any]] = {
    "kind": {"message": message("echo", parts=[{"text": "x", "kind": "z" * 100_000}])},
    "tenant": {"message": message("echo"), "tenant": "z" * 100_000},
    "skill": {"message": message("echo", metadata={"skill": "z" * 100_000})},
    "skill object": {"message": message("echo", metadata={"skillHint": {"z" * 100_000: 1}})},
    "media type": {"message": message("echo", parts=[{"raw": "aGk=", "mediaType": "z" * 100_000}])},
    "task": {"message": message("echo", taskId="z" * 100_000)},
    "role": {"message": message("echo", role="z" * 100_000)},
}


@pytest.mark.parametrize("name", QUOTED)
def test_an_error_does_not_repeat_a_megabyte(target: ServerProcess, name: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": QUOTED[name]}).encode()
    rpc, rest = flood(
        target.port,
        [post("/a2a", body, V1), post("/message:send", json.dumps(QUOTED[name]).encode(), V1)],
        lines=1,
    )
    assert "error" in json.loads(rpc.body) and rest.status in (400, 404)
    assert len(rpc.body) < 8_000 and len(rest.body) < 8_000


FORGED = (
    b'[1,"a"]', b'[99999999999999999999999,"a"]', b'[-99999999999999999999999,"a"]', b'[-1,"a"]', b'[9223372036854775808,"a"]', b'[1e3,"a"]',
    b'[1,"' + b"x" * 100_000 + b'"]', b'[1,"a\\u0000b"]', b"[" * 5000, b'[1,"\xff"]', b"[1]", b"{}", b"",
)  # fmt: skip


@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: repr(forged[:20]))
def test_a_forged_page_token_is_a_page_or_a_refusal(target: ServerProcess, forged: bytes) -> None:
    """The seal has no secret; whoever knows how tokens are made can make any."""
    scope = msgspec.json.encode(("default", Where(owner="anonymous"))).decode()
    key = blake2b(scope.encode(), digest_size=32).digest()
    token = urlsafe_b64encode(blake2b(forged, digest_size=12, key=key).digest() + forged).decode().rstrip("=")
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageToken": token}}
    ).encode()
    answer = one(target.port, post("/a2a", body, V1))
    said = json.loads(answer.body)
    assert answer.status == 200
    assert (
        "tasks" in said["result"]
        if forged == FORGED[0]
        else said.get("error", {"code": -32602})["code"] == -32602
    )


def _run(target: ServerProcess, cases: Sequence[Case]) -> None:
    answers = flood(target.port, [case.raw for case in cases])
    wrong = [
        f"{case.name}: {said}"
        for case, answer in zip(cases, answers, strict=True)
        if (said := _wrong(case, answer))
    ]
    print(len(cases), "cases:", sorted(Counter(answer.status for answer in answers).items()))
    assert wrong == [], f"{len(wrong)} of {len(cases)}: {wrong[:10]}"


def _wrong(case: Case, answer: Answer) -> str:
    """What is not right about an answer; nothing if all is."""
    if answer.status == 0:
        return "no answer"
    if answer.status >= 500 and not any(name.encode() in answer.body for name in NOT_DONE):
        return f"{answer.status} {answer.body[:300]!r}"
    if case.rpc:
        return _wrong_rpc(answer)
    if answer.status in FINE or answer.status == 501:
        return ""
    if answer.status not in REFUSED:
        return f"status {answer.status}"
    said = json.loads(answer.body)
    return "" if said.get("message") or said.get("error", {}).get("message") else f"no message in {said}"


def _wrong_rpc(answer: Answer) -> str:
    if answer.status == 204 and not answer.body:
        return ""
    if answer.status != 200:
        return f"status {answer.status}"
    if answer.header(b"content-type") == b"text/event-stream":
        return ""
    said = json.loads(answer.body)
    if "result" in said:
        return ""
    return "" if said["error"]["code"] in CODES and said["error"]["message"] else f"{said}"
