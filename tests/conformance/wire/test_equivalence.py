"""The same over every binding: results, visibility, who is let in."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest

from tests.conformance.wire.bindings import EVERY, UNKNOWN, Binding, Rest, Rpc
from tests.conformance.wire.conftest import KEYS
from tests.conformance.wire.tasks import kind_of, update_of
from tests.harness import ServerProcess

IDS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z")


def _plain(value: Any) -> str:
    """A document without what differs from one run to the next."""
    return re.sub(r'"durationMs": \d+', "", IDS.sub("*", json.dumps(value, sort_keys=True)))


@pytest.mark.parametrize(
    "text",
    ["echo same", "chunks 3", "file", "data", "ask", "auth", "fail no", "reject no", "message m", "usage"],
)
def test_EQV_01_the_same_result_over_both_bindings(rpc: Rpc, rest: Rest, text: str) -> None:
    one, other = (spoken.send_message(spoken.message(text)).result for spoken in (rpc, rest))
    assert _plain(one) == _plain(other)


@pytest.mark.parametrize("text", ["echo same", "chunks 3", "ask", "fail no", "message m"])
def test_EQV_01_the_same_frames_over_both_bindings(rpc: Rpc, rest: Rest, text: str) -> None:
    seen: list[list[str]] = []
    for spoken in (rpc, rest):
        with spoken.stream(text) as frames:
            seen.append([f"{kind_of(frame)} {_plain(update_of(frame))}" for frame in frames])
    assert seen[0] == seen[1]


def test_EQV_01_the_same_lists_over_both_bindings(rpc: Rpc, rest: Rest) -> None:
    task = rpc.send("echo")
    query = {"contextId": task["contextId"], "includeArtifacts": True, "historyLength": 1}
    assert rpc.list(**query).result == rest.list(**query).result


@pytest.mark.parametrize("maker", EVERY)
def test_EQV_02_a_task_of_one_binding_is_seen_by_all(base: str, http: httpx2.Client, maker: str) -> None:
    made = EVERY[maker](base, http).send("echo seen by all", wait=True)
    task_id = made["id"]
    for name, speaker in EVERY.items():
        answer = speaker(base, http).get(task_id)
        assert answer.http == 200 and answer.result["id"] == task_id, name
    assert Rpc(base, http).get(task_id).result == Rest(base, http).get(task_id).result


@pytest.mark.parametrize("maker", EVERY)
def test_EQV_02_a_stream_of_one_binding_resumes_over_another(
    base: str, http: httpx2.Client, maker: str
) -> None:
    with EVERY[maker](base, http).stream("chunks 4") as frames:
        seen = frames.all()
    first = seen[0].result.get("task", seen[0].result)
    for speaker in EVERY.values():
        with speaker(base, http).subscribe(first["id"], last=str(seen[2].id)) as frames:
            assert [frame.id for frame in frames] == [frame.id for frame in seen[3:]]


@pytest.mark.parametrize(
    ("headers", "inside"),
    [
        ({}, False),
        ({"X-API-Key": "wrong-key-altogether"}, False),
        ({"Authorization": "Bearer wrong-key-altogether"}, False),
        ({"Authorization": f"Basic {KEYS[0]}"}, False),
        ({"Authorization": KEYS[0]}, False),
        ({"X-API-Key": KEYS[0]}, True),
        ({"Authorization": f"Bearer {KEYS[0]}"}, True),
        ({"Authorization": f"bearer {KEYS[1]}"}, True),
    ],
)
def test_EQV_03_the_same_are_let_in_over_every_binding(
    keyed: ServerProcess, http: httpx2.Client, headers: dict[str, str], inside: bool
) -> None:
    for speaker in EVERY.values():
        spoken: Binding = speaker(keyed.base, http, headers)
        answer = spoken.get(UNKNOWN)
        if inside:
            assert answer.reason == "TASK_NOT_FOUND"
        else:
            assert (answer.http, answer.reason) == (401, "UNAUTHENTICATED")
