"""The quick reader understands one frame, as the lenient one does, and leaves all others to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.wire.answers import read_notice
from trunkline.wire.chunks import rpc_chunk
from trunkline.wire.replies import rpc_notice

TASK = "01980000-0000-7000-8000-000000000000"


def update(**more: Any) -> dict[str, Any]:
    artifact = {"artifactId": "out", "parts": [{"text": "one \u20ac\n"}]}
    return {"taskId": TASK, "contextId": "c", "artifact": artifact, **more}


def body(told: Any, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "ours-1", "result": {"artifactUpdate": told}, **more}).encode()


QUICK = {
    "plain": update(),
    "append": update(append=True),
    "last": update(append=True, lastChunk=True),
    "named": update(artifact={"artifactId": "a", "name": "n", "parts": [{"text": "x"}, {"text": "y"}]}),
    "without parts": update(artifact={"artifactId": "a", "parts": []}),
    "without a context": {"taskId": TASK, "artifact": {"artifactId": "a", "parts": [{"text": ""}]}},
}


@pytest.mark.parametrize("name", QUICK)
def test_it_reads_what_the_lenient_one_reads(name: str) -> None:
    found = rpc_chunk(body(QUICK[name]), "ours-1")
    assert found == read_notice(json.dumps({"artifactUpdate": QUICK[name]}).encode())
    assert found == rpc_notice(body(QUICK[name]), "ours-1")


SLOW = {
    "metadata": update(metadata={"a": 1}),
    "an unknown member": update(artifact={"artifactId": "a", "parts": [{"text": "x", "colour": "red"}]}),
    "data": update(artifact={"artifactId": "a", "parts": [{"data": {"a": 1}}]}),
    "a kind": update(artifact={"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}),
    "a resource name": update(taskId=f"tasks/{TASK}"),
    "null": update(append=None),
    "no artifact id": update(artifact={"artifactId": "", "parts": [{"text": "x"}]}),
}


@pytest.mark.parametrize("name", SLOW)
def test_anything_else_is_left_to_the_lenient_one(name: str) -> None:
    assert rpc_chunk(body(SLOW[name]), "ours-1") is None
    assert rpc_notice(body(SLOW[name]), "ours-1") == read_notice(
        json.dumps({"artifactUpdate": SLOW[name]}).encode()
    )


@pytest.mark.parametrize(
    "raw",
    [
        body(update(), id="ours-2"),
        body(update(), id=1),
        body(update(), error={"code": -32603, "message": "no"}),
        body(update(taskId="")),
        body(update(taskId="a\nb")),
        body(update(taskId="a" * 257)),
        body(update())[:-1],
        b"",
        b'{"jsonrpc":"2.0","id":"ours-1","result":{"statusUpdate":{}}}',
    ],
)
def test_it_never_guesses(raw: bytes) -> None:
    assert rpc_chunk(raw, "ours-1") is None
