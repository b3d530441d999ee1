from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sample import at_most
from trunkline.errors import TooLarge
from trunkline.wire.sse import COMMENT, SseEvent, SseParser, SsePiece, frame

nasty = st.text(st.sampled_from('\r\n\0\u2028\u2029\u0085\ufeff :dataidevnt1é"\\'), max_size=20)


def test_frame() -> None:
    assert frame(7, b'{"a":1}') == b'id: 7\ndata: {"a":1}\n\n'
    assert frame(None, b"{}") == b"data: {}\n\n"
    assert frame(1, b"a\r\nb\rc\nd") == b"id: 1\ndata: a\ndata: b\ndata: c\ndata: d\n\n"


@settings(max_examples=at_most(2_000, 200))
@given(st.lists(st.tuples(st.none() | st.integers(0, 2**60), nasty), max_size=3), st.integers(0, 99))
def test_no_text_forges_an_event(sent: list[tuple[int | None, str]], percent: int) -> None:
    encoded = [(seq, msgspec.json.encode(text)) for seq, text in sent]
    # JSON as we write it, and the same text raw, as if a line end had slipped through.
    raw = [(seq, text.encode()) for seq, text in sent]
    for payloads in (encoded, raw):
        stream = COMMENT.join(frame(seq, payload) for seq, payload in payloads) + COMMENT
        cut = len(stream) * percent // 99
        parser = SseParser()
        events = parser.feed(stream[:cut]) + parser.feed(stream[cut:])
        lines = [payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode() for _, payload in payloads]
        assert [event.data for event in events] == lines
        last = ""
        for event, (seq, _) in zip(events, payloads, strict=True):
            last = last if seq is None else str(seq)
            assert (event.id, event.event, event.retry) == (last, "message", None)


@given(st.lists(st.binary(max_size=20)))
def test_cuts_change_nothing(chunks: list[bytes]) -> None:
    parser = SseParser()
    piecewise = [event for chunk in chunks for event in parser.feed(chunk)]
    assert piecewise == SseParser().feed(b"".join(chunks))


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [SseEvent("YHOO\n+2\n10")]),
        (
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            [SseEvent("first event", "1"), SseEvent("second event", ""), SseEvent(" third event", "")],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [SseEvent(""), SseEvent("\n")]),
        (b"data:test\n\ndata: test\n\n", [SseEvent("test"), SseEvent("test")]),
        (b"\xef\xbb\xbfdata: x\n\n", [SseEvent("x")]),
        (b"\n\xef\xbb\xbfdata: x\n\n", []),
        (b"event: add\rdata: x\r\revent: only\r\r", [SseEvent("x", event="add")]),
        (b"id: 5\n\ndata: x\r\n\r\n", [SseEvent("x", "5")]),
        (b"id: 1\nid: a\0b\ndata: x\n\n", [SseEvent("x", "1")]),
        (b"retry: 999999999\nretry: 1234567890\ndata: x\n\n", [SseEvent("x", retry=999_999_999)]),
        (b"retry: 10\nretry: 5s\nretry: 99999999999\ndata: x\n\n", [SseEvent("x", retry=10)]),
        (b"data: \xff\nfoo: bar\n\n", [SseEvent("\ufffd")]),
        (b"data: unfinished\n", []),
    ],
)
def test_rules_of_the_whatwg(stream: bytes, events: list[SseEvent]) -> None:
    assert SseParser().feed(stream) == events
    parser = SseParser()
    assert [event for at in range(len(stream)) for event in parser.feed(stream[at : at + 1])] == events


def test_the_buffer_is_bounded() -> None:
    with pytest.raises(TooLarge):
        SseParser(limit=10).feed(b"data: 0123456789")
    parser = SseParser(limit=30)
    with pytest.raises(TooLarge):
        for _ in range(20):
            parser.feed(b"data: 0123\n")
    quiet = SseParser(limit=30)
    for _ in range(100):
        assert quiet.feed(COMMENT) == []
        assert quiet.feed(b"data: 0123456789\n\n") == [SseEvent("0123456789")]
    assert quiet.feed(b"") == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_every_line_end_in_every_cut(end: bytes, size: int) -> None:
    lines = [b"retry: 5", b"", b": hi", b"id: 1", b"data: a", b"", b"data: b", b"data: c", b"", b"event: e"]
    lines += [b"id: 2", b"data: d", b"", b"id: x\0", b"data: e", b"", b"", b": bye", b""]
    stream = end.join(lines) * 3
    parser = SseParser()
    events = [event for at in range(0, len(stream), size) for event in parser.feed(stream[at : at + size])]
    once = [
        SseEvent("a", "1", retry=5),
        SseEvent("b\nc", "1", retry=5),
        SseEvent("d", "2", "e", 5),
        SseEvent("e", "2", retry=5),
    ]
    assert events[:4] == once
    assert len(events) == 12


def test_pieces_are_the_bytes_as_they_came() -> None:
    parser = SseParser()
    assert parser.pieces(b"\n") == []
    own = SsePiece(b"\xff{}", "1", own_id="1")
    assert parser.pieces(b"id: 1\ndata: \xff{}\n\ndata: x\n\n") == [own, SsePiece(b"x", "1")]


def test_comments_alone_never_fill_the_buffer() -> None:
    parser = SseParser(limit=30)
    assert parser.feed(b"\n") == []
    for _ in range(100):
        assert parser.feed(b": still here\n") == []
    assert parser.feed(b"data: x\n\n") == [SseEvent("x")]
    with pytest.raises(TooLarge):
        parser.feed(b"data: " + b"x" * 40)


def test_a_long_event_comes_in_many_chunks() -> None:
    parser = SseParser()
    for chunk in (b"\ndata: ", *([b"x" * 1000] * 100), b"\n"):
        assert parser.feed(chunk) == []
    assert parser.feed(b"\n") == [SseEvent("x" * 100_000)]
