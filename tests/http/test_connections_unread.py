"""What slow readers leave unread is bounded for each and in all; the longest wait is given up first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.transport import Line, echo, get, post, run
from trunkline.http.connections import LARGE_BYTES, UnreadAnswers
from trunkline.http.exchange import Exchange


class Reader:
    """A connection that knows whether it was dropped."""

    def __init__(self) -> None:
        self.dropped = False

    def drop(self) -> None:
        assert not self.dropped
        self.dropped = True


def _held(limit: int, *answers: tuple[str, int]) -> list[bool]:
    unread, readers = UnreadAnswers(limit), [Reader() for _ in answers]
    for reader, (name, size) in zip(readers, answers, strict=True):
        unread.add(name, reader, size)
    assert unread.dropped == sum(reader.dropped for reader in readers)
    return [not reader.dropped for reader in readers]


@pytest.mark.parametrize(
    ("answers", "held"),
    [
        # A quarter for one reader.
        ([("a", 10), ("a", 10), ("a", 5)], [True, True, True]),
        ([("a", 10), ("a", 10), ("a", 6)], [False, True, True]),
        # However large, one answer can be read.
        ([("a", 500)], [True]),
        ([("a", 10), ("a", 500)], [False, True]),
        # The hundred of all, taken from who holds most.
        ([("a", 20), ("b", 25), ("c", 25), ("d", 25), ("e", 25)], [True, False, True, True, True]),
        ([("a", 90), ("b", 20)], [False, True]),
    ],
)
def test_what_is_held(answers: list[tuple[str, int]], held: list[bool]) -> None:
    assert _held(100, *answers) == held


def test_without_a_limit_everything_is_held() -> None:
    assert _held(0, *[("a", 10**9)] * 3) == [True] * 3


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 60), st.booleans())))
def test_it_never_holds_more_than_its_limit_and_one(answers: list[tuple[str, int, bool]]) -> None:
    unread, waiting = UnreadAnswers(100), dict[Reader, tuple[str, int]]()
    for name, size, taken in answers:
        reader = Reader()
        unread.add(name, reader, size)
        waiting[reader] = (name, size)
        waiting = {each: told for each, told in waiting.items() if not each.dropped}
        assert reader in waiting
        assert unread.total == sum(held for _, held in waiting.values())
        assert unread.total <= 100 + size
        assert sum(held for whose, held in waiting.values() if whose == name) <= 25 + size
        if taken:
            oldest = next(iter(waiting))
            unread.remove(waiting.pop(oldest)[0], oldest)
    for reader, (name, _) in waiting.items():
        unread.remove(name, reader)
    assert (unread.total, unread._by_reader, unread._sizes) == (0, {}, {})


def test_a_connection_counts_a_large_answer_until_it_is_taken() -> None:
    async def within() -> None:
        async def answer(exchange: Exchange) -> None:
            exchange.reader = "ann"
            await echo(exchange)

        line = Line(answer)
        await line.feed(post(b"x"))
        for backlog, counted in ((LARGE_BYTES, 0), (LARGE_BYTES + 1, LARGE_BYTES + 1)):
            line.transport.backlog = backlog
            line.connection.pause_writing()
            assert line.state.unread.total == counted
            line.connection.resume_writing()
            assert line.state.unread.total == 0
        line.connection.pause_writing()
        assert list(line.state.unread._sizes) == ["ann"]
        line.lose()
        assert line.state.unread.total == 0

    run(within)


def test_a_large_body_is_not_copied_on_its_way_to_the_socket() -> None:
    async def within() -> None:
        bodies, written = [b"x" * (LARGE_BYTES + more) for more in (0, 1)], list[bytes]()

        async def answer(exchange: Exchange) -> None:
            await exchange.respond(200, bodies[len(written) > 0])

        line = Line(answer)
        line.transport.writelines = written.extend
        line.transport.write = written.append
        for method in (b"GET", b"GET", b"HEAD"):
            await line.feed(b"%b / HTTP/1.1\r\nHost: a\r\n\r\n" % method)
        joined, head, large, head_alone = written
        assert joined.endswith(bodies[0])
        assert large is bodies[1]
        assert head.endswith(b"\r\n\r\n")
        assert b"content-length: %d\r\n" % len(large) in head
        assert b"content-length: %d\r\n" % len(large) in head_alone
        assert head_alone.endswith(b"\r\n\r\n")

    run(within)


def test_a_dropped_reader_is_let_go_and_counted_no_more() -> None:
    async def within() -> None:
        slow, other = Line(echo), Line(echo)
        other.state.unread = other.connection._state.unread = slow.state.unread = UnreadAnswers(400 << 10)
        slow.connection._state = slow.state
        for line in (slow, other):
            await line.feed(get())
            line.transport.backlog = 80 << 10
            line.connection.pause_writing()
        assert (slow.transport.aborted, other.transport.aborted) == (True, False)
        slow.lose()
        assert slow.state.unread.total == 80 << 10

    run(within)


def test_dropped_readers_are_told_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def within() -> None:
        line = Line(echo)
        line.state.unread.dropped = 3
        for now in (1.0, 2.0):
            line.state.beat(now)

    run(within)
    assert [record.message for record in caplog.records] == ["reader.dropped count=3 held=0"]
