"""Rows 37 to 39: every member of every request spoiled in every way; no 5xx, no hang, and the answer says what."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import pytest

from tests.harness import Agent, ServerProcess
from tests.hostile.shapes import Case, doubly, forms, queries, spoil, torn
from tests.hostile.sockets import Answer, flood

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("TRUNKLINE_TEST_SEED", "20260131"))
RANDOM = 3_000
# JSON-RPC's own and A2A's; -32603, our own fault, is not among them.
CODES = {-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004, -32005, -32007, -32008, -32009}
FINE = {200, 202, 204}
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


def _run(target: ServerProcess, cases: Sequence[Case]) -> None:
    answers = flood(target.port, [case.raw for case in cases])
    wrong = [f"{case.name}: {said}" for case, answer in zip(cases, answers, strict=True) if (said := _wrong(case, answer))]
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
