"""Who reads slowly keeps its connection; who stands still loses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.http.transport import WRITE_LIMIT_S, Line, echo, get, run, settle
from trunkline.http.connection import MIN_RATE
from trunkline.http.exchange import Exchange


class Clock:
    """A loop whose timers only a test moves."""

    def __init__(self) -> None:
        self.due: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.canceled = 0

    def call_later(self, delay: float, call: Callable[..., None], *arguments: Any) -> Clock:
        assert delay == WRITE_LIMIT_S
        self.due.append((call, arguments))
        return self

    def cancel(self) -> None:
        self.canceled += 1
        self.due.clear()

    def pass_limit(self) -> None:
        call, arguments = self.due.pop()
        call(*arguments)


def _made() -> tuple[Line, Clock]:
    line, clock = Line(echo), Clock()
    line.connection._loop = clock  # type: ignore[assignment]
    return line, clock


def _within(check: Callable[[Line, Clock], None]) -> None:
    async def within() -> None:
        check(*_made())

    run(within)


def test_a_reader_that_stands_still_is_let_go() -> None:
    def check(line: Line, clock: Clock) -> None:
        line.connection.pause_writing()
        assert line.connection.blocked and not line.transport.aborted
        clock.pass_limit()
        assert line.transport.aborted

    _within(check)


def test_little_is_kept_for_a_slow_reader() -> None:
    _within(lambda line, _: _is(line.transport.unsent_limit, 16 << 10))


def _is(found: int, expected: int) -> None:
    assert found == expected


def test_a_slow_reader_is_looked_at_again() -> None:
    def check(line: Line, clock: Clock) -> None:
        step = round(MIN_RATE * WRITE_LIMIT_S)
        line.transport.backlog = 3 * step + 5
        line.connection.pause_writing()
        for backlog in (2 * step + 5, step, 0):
            line.transport.backlog = backlog
            clock.pass_limit()
            assert not line.transport.aborted and len(clock.due) == 1

    _within(check)


@pytest.mark.parametrize(("before", "taken"), [(1 << 20, MIN_RATE * WRITE_LIMIT_S - 1), (100, 99), (100, 0)])
def test_a_reader_below_the_least_rate_is_let_go(before: int, taken: float) -> None:
    """A byte now and then would keep a large answer in memory for days."""

    def check(line: Line, clock: Clock) -> None:
        line.transport.backlog = before
        line.connection.pause_writing()
        line.transport.backlog = before - round(taken)
        clock.pass_limit()
        assert line.transport.aborted

    _within(check)


@pytest.mark.parametrize("how", ["resume", "lose"])
def test_who_has_caught_up_or_gone_is_not_looked_at(how: str) -> None:
    def check(line: Line, clock: Clock) -> None:
        line.connection.pause_writing()
        if how == "resume":
            line.connection.resume_writing()
        else:
            line.lose()
        assert clock.due == [] and clock.canceled == 1 and not line.transport.aborted

    _within(check)


async def _frames(exchange: Exchange) -> None:
    await exchange.begin([(b"content-type", b"text/event-stream")])
    await exchange.write(b"one", more=True)
    await exchange.write(b"two", more=False)


def test_an_answer_in_pieces_is_chunked() -> None:
    async def within() -> None:
        line = Line(_frames)
        await line.feed(get())
        head, rest = line.said.split(b"\r\n\r\n", 1)
        assert head.endswith(b"content-type: text/event-stream\r\ntransfer-encoding: chunked")
        assert rest == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        assert not line.closed

    run(within)


def test_an_answer_in_pieces_to_1_0_ends_with_the_connection() -> None:
    async def within() -> None:
        line = Line(_frames)
        await line.feed(get(version=b"1.0"))
        assert line.said.endswith(b"\r\n\r\nonetwo") and b"chunked" not in line.said
        assert line.closed

    run(within)


@pytest.mark.parametrize("how", ["resume", "lose"])
@pytest.mark.parametrize("answer", [echo, _frames])
def test_a_write_waits_for_the_reader(how: str, answer: Any) -> None:
    async def within() -> None:
        line = Line(answer)
        line.connection.pause_writing()
        await line.feed(get())
        assert line.said == b""
        if how == "resume":
            line.connection.resume_writing()
        else:
            line.lose()
        await settle()
        assert (line.said == b"") == (how == "lose")
        assert not line.state.tasks

    run(within)


def test_a_stream_that_was_cut_has_no_end() -> None:
    async def within() -> None:
        async def cut(exchange: Exchange) -> None:
            await exchange.begin([])
            await exchange.write(b"one", more=True)

        line = Line(cut)
        await line.feed(get())
        assert line.closed and line.said.endswith(b"3\r\none\r\n")

    run(within)


@pytest.mark.parametrize("how", ["lost", "half", "late", "deaf"])
def test_a_stream_hears_that_its_reader_has_left(how: str) -> None:
    async def within() -> None:
        told: list[None] = []
        held = asyncio.Event()

        async def stream(exchange: Exchange) -> None:
            if how == "late":
                await held.wait()
            exchange.on_disconnect(lambda: told.append(None))
            if how == "deaf":
                exchange.on_disconnect(None)
            await exchange.begin([])
            await exchange.write(b"one", more=True)
            await held.wait()

        line = Line(stream)
        await line.feed(get())
        if how == "half":
            assert not line.connection.eof_received(), "the transport closes and says so"
        line.lose()
        held.set()
        await settle()
        assert len(told) == (how != "deaf")

    run(within)


def test_nothing_is_written_into_a_stream_by_what_its_reader_sends() -> None:
    async def within() -> None:
        held = asyncio.Event()

        async def stream(exchange: Exchange) -> None:
            await exchange.begin([])
            await exchange.write(b"one", more=True)
            await held.wait()
            await exchange.write(b"", more=False)

        for noise in (b"no http\r\n\r\n", b"GET /" + b"a" * 100_000):
            held.clear()
            line = Line(stream)
            await line.feed(get(), noise)
            assert line.said.endswith(b"3\r\none\r\n") and not line.closed
            held.set()
            await settle()
            assert b"0\r\n\r\nHTTP/1.1 4" in line.said and line.closed

    run(within)


def test_an_address_is_that_of_the_socket() -> None:
    async def within() -> None:
        seen: list[tuple[str, str, int | None]] = []

        async def look(exchange: Exchange) -> None:
            seen.append(exchange.address())
            await exchange.respond(200, b"")

        for extra in ({"sockname": ("::1", 80, 0, 0)}, {"sockname": "", "sslcontext": object()}, {}):
            await Line(look, **extra).feed(get())
        assert seen == [("http", "::1", 80), ("https", "127.0.0.1", None), ("http", "127.0.0.1", None)]

    run(within)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a", ("/a", b"/a", b"")),
        ("/a%20b?x=%20", ("/a b", b"/a%20b", b"x=%20")),
        ("/a?", ("/a", b"/a", b"")),
        ("/a#x", ("/a", b"/a", b"")),
        ("http://x/a", ("/a", b"/a", b"")),
    ],
)
def test_a_target_is_taken_apart(target: str, expected: tuple[str, bytes, bytes]) -> None:
    async def within() -> None:
        seen: list[tuple[str, bytes, bytes]] = []

        async def look(exchange: Exchange) -> None:
            seen.append((exchange.path, exchange.raw_path, exchange.query_string))
            await exchange.respond(200, b"")

        await Line(look).feed(get(target))
        assert seen == [expected]

    run(within)
