"""What a request asks for, and what its answer says of it."""

from __future__ import annotations

import pytest

from trunkline.http.asgi import AsgiExchange
from trunkline.server.caller import read_asked

SPOKEN = frozenset({"urn:a", "urn:b"})


def test_a_request_that_names_nothing() -> None:
    assert read_asked({b"a2a-version": b"1.0"}) is None
    assert read_asked({b"a2a-extensions": b" , "}) is None


@pytest.mark.parametrize(
    ("recorded", "active"),
    [
        (("urn:b", "urn:x"), b"urn:b"),
        (("urn:x", "urn:b", "urn:a"), b"urn:b, urn:a"),
        # Whoever opened the task named none: everything is in force.
        (None, b"urn:b, urn:a"),
    ],
)
def test_the_answer_names_what_is_in_force(recorded: tuple[str, ...] | None, active: bytes) -> None:
    asked = read_asked({b"a2a-extensions": b"urn:x, urn:b, urn:a"})
    assert asked is not None
    asked.settle(recorded)
    assert asked.answer(SPOKEN) == [(b"a2a-extensions", active)]


def test_who_asks_by_the_former_name_is_answered_by_it_too() -> None:
    asked = read_asked({b"x-a2a-extensions": b"urn:a"})
    assert asked is not None
    asked.settle(asked.named)
    assert asked.answer(SPOKEN) == [(b"a2a-extensions", b"urn:a"), (b"x-a2a-extensions", b"urn:a")]


def test_nothing_in_force_is_not_named() -> None:
    asked = read_asked({b"a2a-extensions": b"urn:a, urn:x"})
    assert asked is not None
    assert asked.answer(SPOKEN) == (), "no task was opened or found"
    asked.settle(("urn:x",))
    assert asked.answer(SPOKEN) == ()


def test_a_list_in_several_headers_is_one_list_to_a_host_as_well() -> None:
    async def unused(*_: object) -> dict[str, object]:
        raise AssertionError

    given = [
        (b"a2a-extensions", b"urn:a"),
        (b"accept", b"one"),
        (b"a2a-extensions", b"urn:b"),
        (b"accept", b"two"),
    ]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": iter(given)}
    headers = AsgiExchange(scope, unused, unused).headers  # pyright: ignore[reportArgumentType]
    assert headers == {b"a2a-extensions": b"urn:a,urn:b", b"accept": b"two"}
