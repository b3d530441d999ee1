"""What the workers of a server listen on."""

from __future__ import annotations

import socket

import pytest

from trunkline.http.workers import bind


def test_every_address_of_a_name_has_the_same_port() -> None:
    made = bind("localhost", 0)
    try:
        assert made and len({one.getsockname()[1] for one in made}) == 1
        assert len({one.family for one in made}) == len(made)
    finally:
        for one in made:
            one.close()


def test_sockets_that_share_a_port_do_not_take_it_from_a_stranger() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])


def test_places_share_a_port() -> None:
    (first,) = bind("127.0.0.1", 0, share=True)
    (second,) = bind("127.0.0.1", first.getsockname()[1], share=True)
    with first, second:
        first.listen()
        second.listen()
        assert first.getsockname() == second.getsockname()


def test_a_host_that_is_not_there() -> None:
    with pytest.raises(OSError):
        bind("192.0.2.1", 0)
