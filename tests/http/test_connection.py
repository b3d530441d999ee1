"""HTTP on one connection: what is read, in which order it is answered, and when it ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from tests.http.transport import Line, echo, get, post, run, settle
from trunkline.errors import InvalidRequest, TooLarge
from trunkline.http.connection import HEAD_LIMIT, HEAD_S, IDLE_S, LINGER_S, WAITING
from trunkline.http.exchange import Disconnected, Exchange
from trunkline.http.request import READ_AHEAD

OK = b"HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
LONG = b"X-Long: " + b"x" * 30_000 + b"\r\n"


def _fed(*pieces: bytes, answer: Any = echo) -> Line:
    async def within() -> Line:
        line = Line(answer)
        await line.feed(*pieces)
        return line

    return run(within)


def _body(said: bytes) -> bytes:
    return said.partition(b"\r\n\r\n")[2]


def test_a_request_is_answered_in_one_write() -> None:
    line = _fed(post(b"hello", path="/a"))
    assert line.said == OK + b"content-type: application/json\r\ncontent-length: 13\r\n\r\nPOST /a hello"
    assert not line.closed and line.transport.reading


@pytest.mark.parametrize(
    "pieces",
    [[b"GET /", *[b"a" * 16_384] * 9], [b"GET / HTTP/1.1\r\n", *[LONG] * 9], [b"\r\n" * 8192] * 9],
    ids=["target", "headers", "nothing"],
)
def test_a_head_without_end(pieces: list[bytes]) -> None:
    line = _fed(*pieces)
    assert line.closed
    assert line.said.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("before", [b"", get("/1")], ids=["first", "second"])
@pytest.mark.parametrize(("more", "status"), [(-200, b"200"), (1, b"431")])
def test_a_long_head_in_one_piece(before: bytes, more: int, status: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (HEAD_LIMIT + more) + b"\r\n\r\n"
    line = _fed(before + head)
    assert line.said.count(b"HTTP/1.1 200 ") == (before != b"") + (status == b"200")
    assert (b"HTTP/1.1 431 " in line.said) == line.closed == (status == b"431")


def test_a_small_head_before_a_long_body_in_one_piece() -> None:
    line = _fed(post(b"x" * 2 * HEAD_LIMIT))
    assert line.said.startswith(b"HTTP/1.1 200 ")


def test_a_head_in_small_pieces() -> None:
    line = _fed(*[bytes([byte]) for byte in get("/abc")])
    assert _body(line.said) == b"GET /abc "
    assert not line.closed


def test_many_heads_are_not_one_long_head() -> None:
    half, rest = b"GET / HTTP/1.1\r\nX: " + b"x" * (HEAD_LIMIT // 4), b"\r\n\r\n"
    line = _fed(*[half, rest] * 20)
    assert line.said.count(b"HTTP/1.1 200 ") == 20
    assert not line.closed


def test_a_body_is_no_head() -> None:
    size = 4 * HEAD_LIMIT
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size
    pieces = [b"x" * 65_536] * (size // 65_536 - 1)
    line = _fed(head, *pieces, b"x" * 65_536 + b"GET / HTTP/1.1\r\nHo", b"st: x\r\n\r\n")
    assert line.said.count(b"HTTP/1.1 200 ") == 2
    assert not line.closed


@pytest.mark.parametrize("more", [b"1;" + b"x" * 60_000, b"0\r\n" + b"X: y\r\n" * 10_000])
def test_what_is_around_a_body_has_an_end_too(more: bytes) -> None:
    head = get("/", b"Transfer-Encoding: chunked", verb=b"POST")
    line = _fed(head, more, *[b"x" * 60_000] * 3)
    assert line.said.startswith(b"HTTP/1.1 400 ") and line.closed
    line.lose()


def test_requests_in_one_piece_are_answered_in_order() -> None:
    waiting: dict[str, asyncio.Event] = {}

    async def slow(exchange: Exchange) -> None:
        await waiting.setdefault(exchange.path, asyncio.Event()).wait()
        await echo(exchange)

    async def within() -> None:
        line = Line(slow)
        await line.feed(get("/1") + post(b"body", path="/2") + get("/3"))
        assert not line.transport.reading, "what is not answered is not added to"
        assert list(waiting) == ["/1"], "one at a time"
        for path in ("/1", "/2", "/3"):
            waiting[path].set()
            await settle()
            assert line.said.count(b"HTTP/1.1 200") == int(path[1:])
        assert line.transport.reading
        assert [line.said.index(each) for each in (b"GET /1", b"POST /2 body", b"GET /3")] == sorted(
            line.said.index(each) for each in (b"GET /1", b"POST /2 body", b"GET /3")
        )

    run(within)


def test_only_so_many_wait_for_their_turn() -> None:
    async def within() -> None:
        gate = asyncio.Event()

        async def slow(exchange: Exchange) -> None:
            await gate.wait()
            await echo(exchange)

        line = Line(slow)
        await line.feed(get("/") * 5000)
        gate.set()
        while not line.closed:
            await settle()
        assert line.said.count(b"HTTP/1.1 200") == 1 + WAITING
        assert line.said.count(b"HTTP/1.1 400") == 1
        assert line.said.rindex(b"HTTP/1.1 400") > line.said.rindex(b"HTTP/1.1 200")

    run(within)


def test_a_fault_behind_a_request_does_not_overtake_its_answer() -> None:
    line = _fed(get("/1") + get("/2") + b"no http\r\n\r\n")
    assert line.closed
    assert [part[:3] for part in line.said.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"400"]


def test_a_fault_in_a_body_that_waits_leaves_the_one_before_alone() -> None:
    bad = get("/2", b"Transfer-Encoding: chunked", verb=b"POST") + b"zz\r\n"
    line = _fed(get("/1") + bad)
    assert line.closed
    assert [part[:3] for part in line.said.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


@pytest.mark.parametrize(
    "raw",
    [
        b"no http\r\n\r\n",
        get("/", b"Host: y"),
        get("http://x"),
        get("/", b"Transfer-Encoding: chunked", verb=b"POST") + b"zz\r\n",
        get("/", b"Transfer-Encoding: xchunked", verb=b"POST"),
        get("/", b"Transfer-Encoding: gzip, chunked", verb=b"POST") + b"0\r\n\r\n",
        get("/", b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked", verb=b"POST") + b"0\r\n\r\n",
        get("/", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", verb=b"POST") + b"0\r\n\r\n",
        get("/", b"Transfer-Encoding: chunked;q=1", verb=b"POST") + b"0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nUpgrade: x\r\nConnection: upgrade\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        get("/", b"Content-Length: 1", b"Content-Length: 2", verb=b"POST") + b"ab",
        get("/", b"Content-Length: 1", b"Transfer-Encoding: chunked", verb=b"POST"),
        b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[-40:]),
)
def test_what_is_no_request_is_refused_once(raw: bytes) -> None:
    line = _fed(raw, b"\r\n" * 4)
    assert line.said.startswith(b"HTTP/1.1 400 ") and line.said.count(b"HTTP/1.1") == 1
    assert b"connection: close\r\n" in line.said
    assert line.closed


def test_the_same_host_twice_is_one_host() -> None:
    assert _fed(get("/", b"Host: x")).said.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("raw", "closes"),
    [
        (get(), False),
        (get("/", b"Connection: keep-alive"), False),
        (get("/", b"Connection: close"), True),
        (get(version=b"1.0"), True),
        (get("/", b"Connection: keep-alive", version=b"1.0"), True),
    ],
)
def test_a_connection_lasts_as_long_as_its_caller_wants(raw: bytes, closes: bool) -> None:
    line = _fed(raw)
    assert line.said.startswith(OK)
    assert (line.closed, b"connection: close\r\n" in line.said) == (closes, closes)


def test_head_has_a_length_and_no_body() -> None:
    line = _fed(get(verb=b"HEAD"), get())
    head, rest = line.said.split(b"\r\n\r\n", 1)
    assert b"content-length: 7" in head
    assert rest.startswith(OK)


@pytest.mark.parametrize(("status", "says"), [(204, False), (304, False), (404, True), (500, True)])
def test_an_answer_without_a_body(status: int, says: bool) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.respond(status, b"", headers=[(b"etag", b'"x"')])

    line = _fed(get(), answer=answer)
    assert line.said.startswith(b"HTTP/1.1 %d " % status) and b'etag: "x"\r\n' in line.said
    assert (b"content-length: 0\r\n" in line.said) == says
    assert not line.closed


@pytest.mark.parametrize("value", [b"a\r\nX-Evil: 1", b"a\nb", b"a\rb"])
def test_no_header_ends_its_line(value: bytes) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.respond(200, b"x", headers=[(b"etag", value)])

    line = _fed(get(), answer=answer)
    assert line.said.startswith(b"HTTP/1.1 500 ") and line.closed
    assert value not in line.said


def test_who_asks_before_sending_is_told_to_go_on() -> None:
    head = get("/", b"Content-Length: 5", b"Expect: 100-Continue", verb=b"POST")
    line = _fed(head, b"hello")
    assert line.said.startswith(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
    assert line.said.endswith(b"POST / hello") and not line.closed
    assert _fed(head + b"hello").said.startswith(OK), "it did not wait"
    assert _fed(head.replace(b"/1.1", b"/1.0"), b"hello").said.startswith(OK), "1.0 does not know it"


def test_who_asks_before_sending_may_be_told_no() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(401, b"{}")

    line = _fed(get("/", b"Content-Length: 5", b"Expect: 100-continue", verb=b"POST"), answer=refuse)
    assert line.said.startswith(b"HTTP/1.1 401 ") and line.closed


@pytest.mark.parametrize("apart", [False, True])
def test_a_body_in_chunks(apart: bool) -> None:
    whole = (
        get("/", b"Transfer-Encoding: chunked", verb=b"POST")
        + b"2\r\nhe\r\n3\r\nllo\r\n0\r\nHost: evil\r\n\r\n"
    )
    pieces = [bytes([byte]) for byte in whole] if apart else [whole]
    line = _fed(*pieces, get("/next"))
    assert b"POST / hello" in line.said and line.said.endswith(b"GET /next ")


def test_a_header_behind_a_body_is_no_header() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def keep(exchange: Exchange) -> None:
        await exchange.body(100, 5)
        seen.append(exchange.headers)
        await exchange.respond(200, b"")

    chunked = get("/", b"Transfer-Encoding: chunked", verb=b"POST") + b"0\r\nX-Key: evil\r\n\r\n"
    _fed(chunked, get(), answer=keep)
    assert [b"x-key" in each for each in seen] == [False, False]
    assert seen[1] == {b"host": b"x"}


@pytest.mark.parametrize(
    ("body", "read", "status", "closes"),
    [
        (b"hello", True, 200, False),
        (b"hello", False, 200, True),
        (b"hello", False, 429, False),
        (b"hel", False, 429, True),
        (b"", False, 200, True),
    ],
)
def test_a_body_nobody_read_ends_the_connection(body: bytes, read: bool, status: int, closes: bool) -> None:
    async def answer(exchange: Exchange) -> None:
        if read:
            await exchange.body(100, 5)
        await exchange.respond(status, b"x")

    line = _fed(get("/", b"Content-Length: 5", verb=b"POST") + body, answer=answer)
    assert line.closed == closes
    assert (b"connection: close\r\n" in line.said) == closes


def test_what_nobody_read_is_no_part_of_the_next_request() -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.path == "/refused":
            await exchange.respond(429, b"{}")
        else:
            await echo(exchange)

    line = _fed(post(b"hello", path="/refused") + post(b"again", path="/taken"), answer=answer)
    assert line.said.startswith(b"HTTP/1.1 429 ") and line.said.endswith(b"POST /taken again")


def test_a_body_nobody_asks_for_is_not_read_on() -> None:
    held = asyncio.Event()

    async def late(exchange: Exchange) -> None:
        await held.wait()
        await echo(exchange)

    async def within() -> None:
        line = Line(late)
        size = 4 * READ_AHEAD
        await line.feed(get("/", b"Content-Length: %d" % size, verb=b"POST"), b"x" * READ_AHEAD)
        assert line.transport.reading
        await line.feed(b"x")
        assert not line.transport.reading
        held.set()
        await settle()
        assert line.transport.reading
        await line.feed(b"x" * (size - READ_AHEAD - 1))
        assert line.said.startswith(OK) and line.transport.reading

    run(within)


def test_a_long_body_in_one_piece_leaves_the_connection_reading() -> None:
    line = _fed(post(b"x" * (2 * READ_AHEAD)), get("/next"))
    assert line.said.endswith(b"GET /next ") and line.transport.reading


@pytest.mark.parametrize(
    ("raw", "more", "expected"),
    [
        (get("/", b"Content-Length: 11", verb=b"POST"), b"", TooLarge),
        (post(b"x" * 11), b"", TooLarge),
        (get("/", b"Transfer-Encoding: chunked", verb=b"POST"), b"b\r\n" + b"x" * 11, TooLarge),
        (get("/", b"Transfer-Encoding: chunked", verb=b"POST") + b"b\r\n" + b"x" * 11, b"", TooLarge),
        (get("/", b"Content-Length: 5", verb=b"POST"), b"hell", InvalidRequest),
    ],
)
def test_a_body_that_is_too_large_or_too_late(raw: bytes, more: bytes, expected: type[Exception]) -> None:
    async def within() -> None:
        raised: list[Exception] = []
        done = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            try:
                await exchange.body(10, 0.01)
            except (TooLarge, InvalidRequest) as error:
                raised.append(error)
            await exchange.respond(413, b"no")
            done.set()

        line = Line(answer)
        await line.feed(raw, more)
        await done.wait()
        await settle()
        assert type(raised[0]) is expected
        assert line.closed and line.said.startswith(b"HTTP/1.1 413 ")

    run(within)


@pytest.mark.parametrize(
    "body",
    [b"", b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
)
def test_another_protocol_is_not_spoken(body: bytes) -> None:
    raw = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" + (body or b"\r\n")
    for pieces in ([raw], [bytes([byte]) for byte in raw]):
        line = _fed(*pieces, b"\x00\x01")
        assert line.said.startswith(OK) and line.closed
        assert line.said.endswith(b"POST / hello" if body else b"POST / ")
        line.lose()


def test_silence_has_an_end() -> None:
    async def within() -> None:
        for pieces, limit in (
            ((), IDLE_S),
            ((get(),), IDLE_S),
            ((get(), b"GET / HT"), HEAD_S),
            ((b"G",), HEAD_S),
        ):
            line = Line(echo)
            await line.feed(*pieces)
            line.state.beat(1000 + limit)
            assert not line.closed
            line.state.beat(1001 + limit)
            assert line.closed

    run(within)


def test_a_head_byte_by_byte_is_not_waited_for() -> None:
    async def within() -> None:
        line = Line(echo)
        for second, byte in enumerate(get()):
            await line.feed(bytes([byte]))
            line.state.beat(1001.0 + second)
        assert line.closed and line.said == b""

    run(within)


def test_work_is_not_silence() -> None:
    async def within() -> None:
        held = asyncio.Event()

        async def work(exchange: Exchange) -> None:
            await held.wait()
            await echo(exchange)

        line = Line(work)
        await line.feed(get())
        line.state.beat(100_000.0)
        assert not line.closed
        held.set()
        await settle()
        line.state.beat(100_000.0 + IDLE_S)
        assert not line.closed and line.said.startswith(OK)

    run(within)


async def _held(line: Line, held: asyncio.Event, *pieces: bytes) -> None:
    async def work(exchange: Exchange) -> None:
        await held.wait()
        await echo(exchange)

    line.state.answer = work
    await line.feed(*pieces)


def test_who_says_no_more_still_gets_its_answers() -> None:
    async def within() -> None:
        line, held = Line(echo), asyncio.Event()
        await _held(line, held, get("/1") + get("/2") + post(b"x" * 10)[:-3])
        assert line.connection.eof_received() is True
        held.set()
        await settle()
        assert line.said.count(b"HTTP/1.1 200") == 2 and line.closed

    run(within)


@pytest.mark.parametrize("pieces", [[], [b"GET / HT"], [get(), b""], [post(b"hello")[:-1]]])
def test_who_says_no_more_and_asked_nothing_is_let_go(pieces: list[bytes]) -> None:
    async def within() -> None:
        line = Line(echo)
        await line.feed(*pieces)
        assert not line.connection.eof_received()
        line.lose()
        await settle()

    run(within)


def test_a_caller_who_leaves_ends_the_reading() -> None:
    async def within() -> None:
        heard: list[bool] = []

        async def answer(exchange: Exchange) -> None:
            try:
                await exchange.body(100, 5)
            except Disconnected:
                heard.append(True)

        line = Line(answer)
        await line.feed(post(b"hello")[:-1])
        line.lose()
        assert len(line.state.tasks) == 1
        await settle()
        assert heard == [True] and not line.state.connections and not line.state.tasks

    run(within)


def test_the_end_of_the_server_lets_the_busy_answer_and_the_idle_go_soon() -> None:
    async def within() -> None:
        idle, busy, held = Line(echo), Line(echo), asyncio.Event()
        await idle.feed(get())
        await _held(busy, held, get("/1") + get("/2"))
        for line in (idle, busy):
            line.state.drain()
            line.state.beat(1000.0 + LINGER_S)
        assert not idle.closed and not busy.closed
        idle.state.beat(1000.1 + LINGER_S)
        assert idle.closed
        assert len(busy.state.tasks) == 1, "the server can wait for it and cancel it"
        held.set()
        await settle()
        assert busy.closed and busy.said.count(b"HTTP/1.1 200") == 1
        assert b"connection: close\r\n" in busy.said and not busy.state.tasks

    run(within)


def test_who_asks_at_the_end_of_the_server_is_answered_for_the_last_time() -> None:
    async def within() -> None:
        line = Line(echo)
        line.state.drain()
        await line.feed(get("/late"))
        assert line.closed and line.said.endswith(b"GET /late ")
        assert b"connection: close\r\n" in line.said

    run(within)


def test_who_comes_at_the_end_of_the_server_is_not_waited_for() -> None:
    async def within() -> None:
        late = Line(echo, draining=True)
        late.state.beat(1000.1 + LINGER_S)
        assert late.closed

    run(within)


def test_a_cancelled_answer_ends_the_connection() -> None:
    async def within() -> None:
        line = Line(echo)
        await _held(line, asyncio.Event(), get())
        line.connection.shutdown()
        next(iter(line.state.tasks)).cancel()
        await settle()
        assert line.closed and line.said == b""

    run(within)


@pytest.mark.parametrize("begun", [False, True])
def test_a_fault_of_ours_is_not_silent(begun: bool) -> None:
    async def broken(exchange: Exchange) -> None:
        if begun:
            await exchange.begin([])
            await exchange.write(b"x", more=True)
        raise RuntimeError("bug")

    line = _fed(get(), answer=broken)
    assert line.closed
    assert line.said.startswith(b"HTTP/1.1 200 " if begun else b"HTTP/1.1 500 ")
    assert not line.said.endswith(b"0\r\n\r\n" if begun else b"x")


def test_a_request_does_not_print_what_may_be_secret() -> None:
    printed: list[str] = []

    async def answer(exchange: Exchange) -> None:
        printed.append(repr(exchange))
        await exchange.respond(200, b"")

    _fed(b"GET /x?key=s3cret HTTP/1.1\r\nhost: h\r\nauthorization: s3cret\r\n\r\n", answer=answer)
    assert printed == ["ConnectionRequest(GET '/x')"]


def test_nothing_holds_on_to_a_request_that_is_over() -> None:
    async def within() -> None:
        kept: list[weakref.ref[Any]] = []

        class Path(str):
            __slots__ = ("__weakref__",)

        async def answer(exchange: Exchange) -> None:
            exchange.path = path = Path("x")
            kept.append(weakref.ref(path))
            await exchange.respond(200, b"")

        line = Line(answer)
        gc.disable()
        try:
            await line.feed(get())
            assert kept[0]() is None
        finally:
            gc.enable()

    run(within)
