"""One request on bare ASGI: how its body is read and when its connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from trunkline.errors import ContentTypeNotSupported, InvalidParams, InvalidRequest, TooLarge
from trunkline.http.asgi import AsgiExchange
from trunkline.http.exchange import Disconnected, read_query, text

Message = MutableMapping[str, Any]
Sent = list[Message]


def _exchange(
    *messages: Message, headers: dict[bytes, bytes] | None = None, late: bool = False, **scope: Any
) -> tuple[AsgiExchange, Sent]:
    """An exchange over these messages; `late` ones take a turn of the loop each, and after them there is silence."""
    waiting, sent = list(messages), list[Message]()

    async def receive() -> Message:
        if late:
            await asyncio.sleep(0)
        if not waiting:
            await asyncio.get_running_loop().create_future()
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    made = {
        "type": "http",
        "method": "POST",
        "path": "/a2a",
        "headers": list((headers or {}).items()),
        **scope,
    }
    return AsgiExchange(made, receive, send), sent


def _piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def _run(made: Callable[[], Awaitable[Any]]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(60):
            return await made()

    return asyncio.run(within())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("pieces", [[b""], [b"abc"], [b"a", b"", b"bc"], [b"", b""]])
def test_a_body_is_put_together(pieces: list[bytes], late: bool) -> None:
    messages = [_piece(piece, more=place < len(pieces) - 1) for place, piece in enumerate(pieces)]
    exchange, _ = _exchange(*messages, late=late)
    assert _run(lambda: exchange.body(10, 5)) == b"".join(pieces)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "messages",
    [[_piece(b"x" * 11)], [_piece(b"x" * 6, more=True), _piece(b"x" * 5)], [_piece(b"x" * 11, more=True)]],
)
def test_a_body_over_the_limit_is_not_read_on(messages: list[Message], late: bool) -> None:
    exchange, _ = _exchange(*messages, late=late)
    with pytest.raises(TooLarge, match="10 bytes"):
        _run(lambda: exchange.body(10, 5))


@pytest.mark.parametrize("length", [b"11", b"9" * 18, b"9" * 40])
def test_a_length_over_the_limit_is_not_read_at_all(length: bytes) -> None:
    exchange, _ = _exchange(headers={b"content-length": length})
    with pytest.raises(TooLarge):
        _run(lambda: exchange.body(10, 5))


@pytest.mark.parametrize("length", [b"x", b"-1", b""])
def test_where_the_length_is_no_number_the_body_is_measured(length: bytes) -> None:
    exchange, _ = _exchange(_piece(b"ten bytes."), headers={b"content-length": length})
    assert _run(lambda: exchange.body(10, 5)) == b"ten bytes."
    exchange, _ = _exchange(_piece(b"eleven byte"), headers={b"content-length": length})
    with pytest.raises(TooLarge):
        _run(lambda: exchange.body(10, 5))


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"deflate", b"", b"identity, gzip"])
def test_a_compressed_body_is_not_read_at_all(coding: bytes) -> None:
    exchange, _ = _exchange(headers={b"content-encoding": coding})
    with pytest.raises(ContentTypeNotSupported, match="uncompressed"):
        _run(lambda: exchange.body(10, 5))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("messages", [[], [_piece(b"x", more=True)]], ids=["nothing", "a piece"])
def test_a_body_that_does_not_come_is_not_waited_for(messages: list[Message], late: bool) -> None:
    exchange, _ = _exchange(*messages, late=late)
    with pytest.raises(InvalidRequest, match=r"within 0\.01 s"):
        _run(lambda: exchange.body(10, 0.01))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("before", [[], [_piece(b"x", more=True)]])
def test_a_caller_who_leaves_ends_the_reading(before: list[Message], late: bool) -> None:
    exchange, _ = _exchange(*before, {"type": "http.disconnect"}, late=late)
    with pytest.raises(Disconnected):
        _run(lambda: exchange.body(10, 5))


def test_a_cancelled_reading_is_cancelled() -> None:
    async def within() -> None:
        exchange, _ = _exchange()
        reading = asyncio.ensure_future(exchange.body(10, 5))
        await asyncio.sleep(0)
        reading.cancel()
        await reading

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(within())


def test_an_error_while_receiving_comes_through() -> None:
    async def receive() -> Message:
        await asyncio.sleep(0)
        raise OSError("gone")

    exchange, _ = _exchange()
    exchange.receive = receive
    with pytest.raises(OSError, match="gone"):
        _run(lambda: exchange.body(10, 5))


def _respond(exchange: AsgiExchange, sent: Sent) -> dict[bytes, bytes]:
    _run(lambda: exchange.respond(200, b"{}"))
    return dict(sent[0]["headers"])


@pytest.mark.parametrize(
    "announced", [{b"content-length": b"3"}, {b"transfer-encoding": b"chunked"}, {b"content-length": b"00"}]
)
def test_a_body_nobody_read_ends_the_connection(announced: dict[bytes, bytes]) -> None:
    assert _respond(*_exchange(headers=announced))[b"connection"] == b"close"
    assert b"connection" not in _respond(*_exchange(headers=announced, http_version="2"))


def test_a_connection_is_kept_when_there_is_nothing_left_on_it() -> None:
    assert b"connection" not in _respond(*_exchange())
    assert b"connection" not in _respond(*_exchange(headers={b"content-length": b"0"}))
    exchange, sent = _exchange(_piece(b"abc"), headers={b"content-length": b"3"})
    _run(lambda: exchange.body(10, 5))
    assert b"connection" not in _respond(exchange, sent)


@pytest.mark.parametrize(
    ("raw", "expected"), [(b"", {}), (b"a=1&a=2", {"a": "2"}), (b"a=%C3%BC&b=", {"a": "\u00fc", "b": ""})]
)
def test_a_query_is_read(raw: bytes, expected: dict[str, str]) -> None:
    assert read_query(_exchange(query_string=raw)[0].query_string) == expected


@pytest.mark.parametrize("raw", [b"a=%ff", b"a=\xff", b"&".join([b"a=1"] * 65)])
def test_a_query_that_cannot_be_read_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidParams, match="query"):
        read_query(_exchange(query_string=raw)[0].query_string)


def test_a_header_is_read_as_text() -> None:
    exchange, _ = _exchange(headers={b"x": b"\xfc"})
    assert (text(exchange, b"x"), text(exchange, b"y")) == ("\u00fc", None)


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({}, ("http", "127.0.0.1", None)),
        ({"scheme": "https", "server": ("::1", 8443)}, ("https", "::1", 8443)),
        ({"server": None}, ("http", "127.0.0.1", None)),
    ],
)
def test_an_address_is_where_the_request_came_in(
    scope: dict[str, Any], expected: tuple[str, str, int | None]
) -> None:
    assert _exchange(**scope)[0].address() == expected


def test_an_answer_in_pieces() -> None:
    exchange, sent = _exchange()

    async def answer() -> None:
        await exchange.begin([(b"x", b"y")])
        await exchange.write(b"a", more=True)
        await exchange.write(b"", more=False)

    _run(answer)
    assert (sent[0]["status"], sent[0]["headers"]) == (200, [(b"x", b"y")])
    assert [(piece["body"], piece["more_body"]) for piece in sent[1:]] == [(b"a", True), (b"", False)]


@pytest.mark.parametrize("heard", [True, False])
def test_a_disconnect_is_told_to_who_listens(heard: bool) -> None:
    async def within() -> int:
        exchange, _ = _exchange(_piece(b""), {"type": "http.disconnect"}, late=True)
        told: list[None] = []
        exchange.on_disconnect(lambda: told.append(None))
        await asyncio.sleep(0)
        if not heard:
            exchange.on_disconnect(None)
        for _ in range(5):
            await asyncio.sleep(0)
        return len(told)

    assert asyncio.run(within()) == heard


@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [("", "/a2a", "/a2a"), ("/x", "/x/a2a", "/a2a"), ("/x", "/a2a", "/a2a"), ("/x", "/x", "/")],
)
def test_a_path_is_relative_to_the_mount(base: str, path: str, expected: str) -> None:
    assert _exchange(path=path, root_path=base)[0].path == expected
