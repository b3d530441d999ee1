from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.errors import TooLarge
from trunkline.wire.sse import COMMENT, Event, Parser, frame

nasty = st.text(st.sampled_from('\r\n\0\u2028\u2029\u0085\ufeff :dataidevnt1é"\\'), max_size=20)


def test_frame() -> None:
    assert frame(7, b'{"a":1}') == b'id: 7\ndata: {"a":1}\n\n'
    assert frame(None, b"{}") == b"data: {}\n\n"
    assert frame(1, b"a\r\nb\rc\nd") == b"id: 1\ndata: a\ndata: b\ndata: c\ndata: d\n\n"


@settings(max_examples=2_000)
@given(st.lists(st.tuples(st.none() | st.integers(0, 2**60), nasty), max_size=3), st.integers(0, 99))
def test_no_text_forges_an_event(sent: list[tuple[int | None, str]], percent: int) -> None:
    encoded = [(seq, msgspec.json.encode(text)) for seq, text in sent]
    # JSON as we write it, and the same text raw, as if a line end had slipped through.
    raw = [(seq, text.encode()) for seq, text in sent]
    for payloads in (encoded, raw):
        stream = COMMENT.join(frame(seq, payload) for seq, payload in payloads) + COMMENT
        cut = len(stream) * percent // 99
        parser = Parser()
        events = parser.feed(stream[:cut]) + parser.feed(stream[cut:])
        lines = [payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode() for _, payload in payloads]
        assert [event.data for event in events] == lines
        last = ""
        for event, (seq, _) in zip(events, payloads, strict=True):
            last = last if seq is None else str(seq)
            assert (event.id, event.event, event.retry) == (last, "message", None)


@given(st.lists(st.binary(max_size=20)))
def test_cuts_change_nothing(chunks: list[bytes]) -> None:
    parser = Parser()
    piecewise = [event for chunk in chunks for event in parser.feed(chunk)]
    assert piecewise == Parser().feed(b"".join(chunks))


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [Event("YHOO\n+2\n10")]),
        (
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            [Event("first event", "1"), Event("second event", ""), Event(" third event", "")],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [Event(""), Event("\n")]),
        (b"data:test\n\ndata: test\n\n", [Event("test"), Event("test")]),
        (b"\xef\xbb\xbfdata: x\n\n", [Event("x")]),
        (b"\n\xef\xbb\xbfdata: x\n\n", []),
        (b"event: add\rdata: x\r\revent: only\r\r", [Event("x", event="add")]),
        (b"id: 5\n\ndata: x\r\n\r\n", [Event("x", "5")]),
        (b"id: 1\nid: a\0b\ndata: x\n\n", [Event("x", "1")]),
        (b"retry: 10\nretry: 5s\nretry: 99999999999\ndata: x\n\n", [Event("x", retry=10)]),
        (b"data: \xff\nfoo: bar\n\n", [Event("\ufffd")]),
        (b"data: unfinished\n", []),
    ],
)
def test_rules_of_the_whatwg(stream: bytes, events: list[Event]) -> None:
    assert Parser().feed(stream) == events
    parser = Parser()
    assert [event for at in range(len(stream)) for event in parser.feed(stream[at : at + 1])] == events


def test_the_buffer_is_bounded() -> None:
    with pytest.raises(TooLarge):
        Parser(limit=10).feed(b"data: 0123456789")
    parser = Parser(limit=30)
    with pytest.raises(TooLarge):
        for _ in range(20):
            parser.feed(b"data: 0123\n")
    quiet = Parser(limit=30)
    for _ in range(100):
        assert quiet.feed(COMMENT) == []
        assert quiet.feed(b"data: 0123456789\n\n") == [Event("0123456789")]
    assert quiet.feed(b"") == []
