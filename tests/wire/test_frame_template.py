"""Frames that differ in their text only are read with the same result as frame by frame."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import Unreadable
from trunkline.wire.answers import Notice
from trunkline.wire.frame_template import FrameTemplate
from trunkline.wire.replies import rest_notice, rpc_notice
from trunkline.wire.sse import SseParser
from trunkline.wire.types import ArtifactUpdate


def quick(body: bytes) -> Notice:
    return rpc_notice(body, "ours-1")


def update(part: Any, **more: Any) -> dict[str, Any]:
    return {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "out", "parts": [part]}, **more}


def envelope(result: Any) -> Any:
    return {"jsonrpc": "2.0", "id": "ours-1", "result": result}


def modern(text: Any, **more: Any) -> Any:
    return envelope({"artifactUpdate": update({"text": text}, append=True, **more)})


def older(text: Any, **more: Any) -> Any:
    part = {"kind": "text", "text": text}
    return envelope(update(part, append=True, kind="artifact-update", **more))


def bare(text: Any, **more: Any) -> Any:
    return {"artifactUpdate": update({"text": text}, append=True, **more)}


DIALECTS: dict[str, tuple[Callable[[bytes], Notice], Callable[..., Any]]] = {
    "JSON-RPC 1.0": (quick, modern),
    "JSON-RPC 0.3": (quick, older),
    "REST 1.0": (rest_notice, bare),
}
ODD = ["", '"', "\\", 'a"text":"b', "\u20ac\n\0", "tasks/1", "[DONE]", "{" * 200, "another text"]
TEXTS = st.lists(st.one_of(st.text(), st.sampled_from(ODD)), min_size=2, max_size=8)


def told(notice: Notice) -> str | None:
    assert isinstance(notice.answer, ArtifactUpdate)
    return notice.answer.artifact.parts[0].text


class Counted:
    """How often the other reader was asked."""

    def __init__(self, read: Callable[[bytes], Notice]) -> None:
        self.times = 0
        self._read = read

    def __call__(self, body: bytes) -> Notice:
        self.times += 1
        return self._read(body)


@pytest.mark.parametrize("name", DIALECTS)
@given(texts=TEXTS, ascii_only=st.booleans())
def test_any_text_is_read_as_by_the_other_reader(name: str, texts: list[str], ascii_only: bool) -> None:
    read, frame = DIALECTS[name]
    counted = Counted(read)
    stencil = FrameTemplate(counted)
    for text in texts:
        body = json.dumps(frame(text), ensure_ascii=ascii_only).encode(errors="surrogatepass")
        found = stencil.read(body)
        assert (found, told(found)) == (read(body), text)
    # The first is read, and once more with another text.
    assert counted.times == 2


MIXED = [
    modern("one"),
    modern("two"),
    modern("three", lastChunk=True),
    modern("four", metadata={"text": "four"}),
    modern("five", metadata={"text": "four"}),
    envelope({"artifactUpdate": update({"text": "x", "metadata": {"a": 1}})}),
    envelope({"artifactUpdate": update({"data": {"text": "x"}})}),
    envelope({"artifactUpdate": update({"data": {"text": "y"}})}),
    envelope({"artifactUpdate": update({"text": "x", "filename": "text"})}),
    envelope({"artifactUpdate": {**update({"text": "x"}), "artifact": {"artifactId": "a", "parts": []}}}),
    envelope({"artifactUpdate": {**update({"text": "x"}), "taskId": "text"}}),
    envelope({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}),
    envelope({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}}),
]


@given(st.lists(st.sampled_from(MIXED), max_size=24))
def test_whatever_comes_between_is_read_too(frames: list[Any]) -> None:
    stencil = FrameTemplate(quick)
    for frame in frames:
        body = json.dumps(frame).encode()
        assert stencil.read(body) == quick(body)


@pytest.mark.parametrize("between", [MIXED[-2], modern("x" * (32 << 10), lastChunk=True)])
def test_frames_between_the_first_pieces_do_not_slow_down_all_the_others(between: Any) -> None:
    counted = Counted(quick)
    stencil = FrameTemplate(counted)
    for _ in range(6):
        stencil.read(json.dumps(modern("one")).encode())
        stencil.read(json.dumps(between).encode())
    before = counted.times
    for _ in range(50):
        stencil.read(json.dumps(modern("two")).encode())
    assert counted.times - before <= 2


BEFORE, AFTER = json.dumps(modern("|")).encode().split(b'"|"')


@pytest.mark.parametrize(
    "between",
    [b"", b'"', b"x", b"1", b"{}", b'"a"b"', b'"a", "b"', b'"\xff"', b'"a\nb"', b'"\\x"', b'"\\ud800"'],
)
def test_what_is_no_text_there_is_left_to_the_other_reader(between: bytes) -> None:
    stencil = FrameTemplate(quick)
    stencil.read(json.dumps(modern("one")).encode())
    with pytest.raises(Unreadable) as other:
        quick(BEFORE + between + AFTER)
    with pytest.raises(Unreadable) as found:
        stencil.read(BEFORE + between + AFTER)
    assert str(found.value) == str(other.value)
    assert told(stencil.read(json.dumps(modern("two")).encode())) == "two"


@pytest.mark.parametrize("between", [b'"a", "colour": "red"', b'"a", "text": "b"', b"null"])
def test_another_shape_with_the_same_ends_is_read_as_what_it_is(between: bytes) -> None:
    stencil = FrameTemplate(quick)
    stencil.read(json.dumps(modern("one")).encode())
    body = BEFORE + between + AFTER
    try:
        expected: Any = quick(body)
    except Unreadable as error:
        with pytest.raises(Unreadable) as found:
            stencil.read(body)
        assert str(found.value) == str(error)
    else:
        assert stencil.read(body) == expected


def test_a_stream_without_likeness_is_read_once_each_after_a_while() -> None:
    counted = Counted(quick)
    stencil = FrameTemplate(counted)
    for place in range(100):
        stencil.read(json.dumps(modern("x", contextId=f"c{place}")).encode())
    assert counted.times < 110


def test_readers_share_nothing_that_can_be_changed() -> None:
    stencil = FrameTemplate(quick)
    frames = [json.dumps(modern("x", metadata={"a": 1})).encode()] * 2
    first, second = (stencil.read(frame).answer for frame in frames)
    assert isinstance(first, ArtifactUpdate) and isinstance(second, ArtifactUpdate)
    assert first.metadata == second.metadata and first.metadata is not second.metadata


FollowUp = tuple[Notice, str]


def said(chunks: list[bytes], *, runs: bool) -> tuple[list[FollowUp], int]:
    """What the events of a stream say, and how many were taken many at a time."""
    parser, stencil = SseParser(), FrameTemplate(quick)
    found: list[FollowUp] = []
    taken = 0

    def take(events: bytes) -> str:
        nonlocal taken
        run = stencil.run(events, lambda notice, own_id: (notice, own_id))
        found.extend(run)
        taken += len(run)
        return run[-1][1] if run else ""

    for chunk in chunks:
        pieces = parser.pieces(chunk, take if runs else None)
        found += [(stencil.read(piece.data), piece.own_id) for piece in pieces]
    return found, taken


def events(*frames: Any, first: int = 1) -> bytes:
    return b"".join(
        b"id: %d\ndata: %b\n\n" % (first + place, json.dumps(frame).encode())
        for place, frame in enumerate(frames)
    )


def test_events_that_came_together_are_taken_together() -> None:
    chunks = [events(modern("one")), events(*[modern(text) for text in ODD], first=2)]
    found, taken = said(chunks, runs=True)
    assert found == said(chunks, runs=False)[0]
    assert [told(notice) for notice, _ in found] == ["one", *ODD]
    assert (taken, found[-1][1]) == (len(ODD), "10")


WRITTEN = [
    *[events(modern("more"), first=7)] * 6,
    *[events(frame) for frame in MIXED],
    events(modern("more")).replace(b"\n", b"\r\n"),
    events(modern("more")).replace(b"id: 1", b"id: one"),
    events(modern("more")).replace(b"id: 1", b"event: other\nid: 1"),
    events(modern("more")).replace(b"id: 1\n", b""),
    events(modern("more")).replace(b'"more"', b'\ndata: "more"'),
    events(modern("more")).replace(b'"more"', b'"more"\ndata: '),
    b": nothing\n\n",
    b": nothing\n",
    b"\n\n",
    b"id: 9\n\n",
    b"retry: 5\n\n",
]


@given(st.lists(st.sampled_from(WRITTEN), max_size=16), st.data())
def test_however_they_are_written_and_cut_the_same_is_said(written: list[bytes], data: st.DataObject) -> None:
    whole = events(modern("first")) + b"".join(written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    chunks = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert said(chunks, runs=True)[0] == said(chunks, runs=False)[0]


@pytest.mark.parametrize("between", [b'\n"x"', b'"x"\n', b'"x"\ndata: y', b'"x"\n\ndata: y', b"1"])
def test_a_broken_line_is_no_text(between: bytes) -> None:
    stencil = FrameTemplate(quick)
    stencil.read(json.dumps(modern("one")).encode())
    good = b"id: 1\ndata: " + BEFORE + b'"good"' + AFTER
    assert len(stencil.run(good, lambda notice, own_id: own_id)) == 1
    bad = b"id: 2\ndata: " + BEFORE + between + AFTER
    assert stencil.run(good + b"\n\n" + bad, lambda notice, own_id: own_id) == []
