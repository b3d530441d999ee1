"""Rows 37 to 39: every member of every request spoiled in every way; no 5xx, no hang, and the answer says what."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec
import pytest

from tests.harness import Agent, ServerProcess, message
from tests.hostile.reach import share
from tests.hostile.shapes import V1, Case, doubly, forms, queries, spoil, torn
from tests.hostile.sockets import flood, one, post
from tests.hostile.verdict import all_wrong
from tests.sample import at_most
from trunkline.store.records import Where

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

SEED = int(os.environ.get("TRUNKLINE_TEST_SEED", "20260131"))
SHARE, RANDOM = at_most(100_000, 3_000), at_most(3_000, 500)


@pytest.fixture(scope="module")
def finished(target: ServerProcess) -> str:
    agent = Agent(target.base)
    task = agent.send("echo to be asked for")
    agent.close()
    return task["id"]


def test_spoiled_members_of_rpc(target: ServerProcess, finished: str) -> None:
    cases = [case for form in forms(finished) if form.rpc for case in spoil(form)]
    assert len(cases) >= 12_000
    _run(target, share(cases, SHARE, SEED))


def test_spoiled_members_of_rest(target: ServerProcess, finished: str) -> None:
    cases = [case for form in forms(finished) if not form.rpc for case in spoil(form)]
    cases += queries(finished)
    assert len(cases) >= 10_000
    _run(target, share(cases, SHARE, SEED))


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
    "skill object": {"message": message("echo", metadata={"skill": {"z" * 100_000: 1}})},
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
    scope = msgspec.json.encode(
        ("default", Where(principal="anonymous", agents=("trunkline-demo", "")))
    ).decode()
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
    wrong = all_wrong(cases, flood(target.port, [case.raw for case in cases]))
    assert wrong == [], f"{len(wrong)} of {len(cases)}: {wrong[:10]}"
