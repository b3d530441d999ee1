"""Plain frames are read the short way, and all others: with the same result as by the reader of every dialect."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import TrunklineError, Unreadable
from trunkline.wire import plain_frames
from trunkline.wire.answers import Notice
from trunkline.wire.plain_frames import PlainFrames
from trunkline.wire.replies import rpc_notice

MESSAGE = {
    "messageId": "m",
    "contextId": "c",
    "taskId": "t",
    "role": "ROLE_AGENT",
    "parts": [{"text": "said"}, {"text": ""}],
}
STATUS = {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-31T12:00:00Z", "message": MESSAGE}
ARTIFACT = {"artifactId": "a", "name": "n", "description": "d", "parts": [{"text": "made"}]}
CHAINED = {
    **MESSAGE,
    "metadata": {"skillId": "draft", "trunkline.chain": {"root": "r", "hops": 1, "cost": 0.5}},
}
PLAIN: list[dict[str, Any]] = [
    {"task": {"id": "t", "contextId": "c", "status": STATUS, "history": [CHAINED]}},
    {"task": {"id": "t", "contextId": "c", "status": STATUS, "artifacts": [ARTIFACT], "history": [MESSAGE]}},
    {"task": {"id": "t", "status": {"state": "TASK_STATE_SUBMITTED"}}},
    {"statusUpdate": {"taskId": "t", "contextId": "c", "status": STATUS}},
    {"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_UNSPECIFIED"}}},
    {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": ARTIFACT, "append": True}},
    {"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a"}, "lastChunk": True}},
]
OTHERS: list[dict[str, Any]] = [
    {"message": MESSAGE},
    {
        "kind": "status-update",
        "taskId": "t",
        "contextId": "c",
        "status": {"state": "working"},
        "final": False,
    },
    {"statusUpdate": {"taskId": "t", "contextId": "c", "status": STATUS, "final": True}},
    {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "working", "update": MESSAGE}}},
    {"statusUpdate": {"taskId": "tasks/t", "status": STATUS}},
    {"artifactUpdate": {"taskId": "", "artifact": ARTIFACT}},
    {"artifactUpdate": {"taskId": "t", "artifact": ARTIFACT}, "task": {"id": "t", "status": STATUS}},
    {"statusUpdate": {"taskId": "t", "status": STATUS, "artifacts": [ARTIFACT]}},
    {"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"data": {"b": 1}}]}}},
    {"task": {"id": "t", "status": STATUS, "metadata": {"a": {}}}, "statusUpdate": None},
    {"task": {"id": "t", "status": STATUS}, "statusUpdate": {"taskId": "t", "status": STATUS}},
    {},
]
# What may stand where something else is due, and what may stand beside it.
ODD: list[Any] = [None, "", "t", "tasks/t", "tasks/", "a\nb", "x" * 257, 5, True, [], {}, [{}], {"text": "x"}]
NAMES = ["extra", "metadata", "kind", "final", "message", "task_id", "artifacts", "text", "data", "sessionId"]
Read = Callable[[bytes], Notice]


def body(result: Any, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "ours-1", "result": result, **more}).encode()


def outcome(read: Read, data: bytes) -> Any:
    try:
        return read(data)
    except TrunklineError as error:
        return type(error), str(error)


def by_all(data: bytes) -> Notice:
    return rpc_notice(data, "ours-1")


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and item of a value, with what holds it."""
    held = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [(value, key) for key, _ in held] + [place for _, inner in held for place in places(inner)]


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A frame in which a few things are not as they should be, or all are."""
    frame = json.loads(body(draw(st.sampled_from(PLAIN + OTHERS))))
    for _ in range(draw(st.integers(0, 2))):
        holder, key = draw(st.sampled_from(places(frame)))
        change = draw(st.sampled_from(["replace", "remove", "beside"]))
        if change == "replace":
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif change == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(st.sampled_from(ODD)))
        if not places(frame):
            break
    data = json.dumps(frame).encode()
    return data[: draw(st.sampled_from([len(data)] * 9 + [len(data) - 1]))]


@given(st.lists(changed(), max_size=6))
def test_any_frame_is_read_as_by_the_reader_of_every_dialect(frames: list[bytes]) -> None:
    reader = PlainFrames("ours-1")
    for data in frames:
        assert outcome(reader.read, data) == outcome(by_all, data)


@pytest.mark.parametrize("result", OTHERS)
def test_what_is_not_plain_is_left_to_the_other_reader(result: dict[str, Any]) -> None:
    reader = PlainFrames("ours-1")
    # Also where the id is known from a frame before.
    reader.read(body(PLAIN[2]))
    assert outcome(reader.read, body(result)) == outcome(by_all, body(result))


def test_plain_frames_need_no_other_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [by_all(body(one)) for one in PLAIN]
    monkeypatch.setattr(plain_frames, "rpc_notice", None)
    reader = PlainFrames("ours-1")
    assert [reader.read(body(one)) for one in PLAIN] == expected


@pytest.mark.parametrize(
    "more", [{"id": "ours-2"}, {"id": "else"}, {"id": None}, {"error": {"code": -32001}}]
)
def test_what_answers_another_request_or_refuses_is_no_plain_frame(more: dict[str, Any]) -> None:
    data = body(PLAIN[2], **more)
    assert outcome(PlainFrames("ours-1").read, data) == outcome(by_all, data)


def test_a_stream_of_other_frames_is_tried_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []
    decode = vars(plain_frames)["_decode"]
    monkeypatch.setattr(plain_frames, "_decode", lambda data: (tried.append(data), decode(data))[1])
    reader = PlainFrames("ours-1")
    other, plain = body(OTHERS[1]), body(PLAIN[3])
    # One that is plain between them says that it is worth it.
    for data in (other, other, plain, *[other] * 9):
        assert reader.read(data) == by_all(data)
    assert len(tried) == 7


def test_a_frame_with_too_many_parts_is_refused() -> None:
    artifact = {"artifactId": "a", "parts": [{"text": ""}] * 100_001}
    with pytest.raises(Unreadable, match="more than 100000 lists and objects"):
        PlainFrames("ours-1").read(body({"artifactUpdate": {"taskId": "t", "artifact": artifact}}))


@pytest.mark.parametrize("depth", [90, 101, 5000])
def test_a_frame_that_nests_deep_is_judged_as_ever(depth: int) -> None:
    data = b'{"id":"ours-1","result":{"statusUpdate":{"taskId":"t","status":{"state":"working"},"metadata":{"a":%b%b}}}}'
    data %= (b"[" * depth, b"]" * depth)
    assert outcome(PlainFrames("ours-1").read, data) == outcome(by_all, data)
