"""The guard: which Hosts and Origins are let in."""

from __future__ import annotations

import pytest

from trunkline.errors import Forbidden, Misuse
from trunkline.http.host_check import LOOPBACK, HostCheck, is_loopback, spelled


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "",
        "10.0.0.1",
        "127.example.org",
        "localhost.example.org",
        "agent.example",
        "128.0.0.1",
        "127",
    ],
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "host", [b"localhost", b"localhost:8000", b"LocalHost", b"127.0.0.1:1", b"[::1]", b"[::1]:8000"]
)
def test_a_listed_host_is_let_in(host: bytes) -> None:
    guard = HostCheck(LOOPBACK)
    for _ in range(2):
        guard.check({b"host": host})


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"",
        b"localhost.",
        b"localhost:",
        b"localhost:x",
        b"localhost:8@evil",
        b"[::1",
        b"[::1]x",
        b"[::1]:",
        b"::1",
        b"127.0.0.2",
        b"\xff",
        b"localhost:\xb2",
    ],
)
def test_any_other_is_not(host: bytes) -> None:
    guard = HostCheck(LOOPBACK)
    for _ in range(2):
        with pytest.raises(Forbidden, match="Host"):
            guard.check({b"host": host})


def test_no_host_is_no_listed_one() -> None:
    with pytest.raises(Forbidden):
        HostCheck(LOOPBACK).check({})


def test_an_empty_list_lets_every_host_in_but_no_foreign_page() -> None:
    guard = HostCheck([])
    guard.check({})
    guard.check({b"host": b"any.example:5"})
    guard.check({b"host": b"any.example:5", b"origin": b"https://ANY.example:5"})
    with pytest.raises(Forbidden, match="Origin"):
        guard.check({b"host": b"any.example:5", b"origin": b"https://evil.example"})


@pytest.mark.parametrize(
    ("listed", "host"),
    [
        ("agent.example:99", b"agent.example"),
        ("AGENT.example", b"agent.example:5"),
        ("::1", b"[::1]:5"),
        ("[fe80::1]:9", b"[fe80::1]"),
        (" a.example ", b"a.example"),
    ],
)
def test_a_listed_name_may_be_spelled_otherwise(listed: str, host: bytes) -> None:
    HostCheck([listed]).check({b"host": host})


@pytest.mark.parametrize(
    "listed", ["", " ", "https://agent.example", "a@b", "a/b", "a b", "agent.example:x", "a\r\nb", "a\0b"]
)
def test_a_list_with_no_host_in_it_is_refused(listed: str) -> None:
    with pytest.raises(Misuse, match="allowed_hosts"):
        HostCheck([listed])


@pytest.mark.parametrize(
    "origin", [b"http://localhost", b"https://localhost:3000", b"http://127.0.0.1:5", b"http://[::1]:5"]
)
def test_a_page_of_ours_may_call(origin: bytes) -> None:
    HostCheck(LOOPBACK).check({b"host": b"localhost", b"origin": origin})


@pytest.mark.parametrize(
    "origin",
    [
        b"",
        b"null",
        b"http://",
        b"localhost",
        b"http://evil.example",
        b"http://localhost@evil.example",
        b"http://localhost:80@evil.example",
        b"http://[::1",
        b"file://localhost",
        b"http://localhost/x",
        b"HTTP://localhost",
        b"\xff\xfe",
    ],
)
def test_a_foreign_page_may_not(origin: bytes) -> None:
    with pytest.raises(Forbidden, match="Origin"):
        HostCheck(LOOPBACK).check({b"host": b"localhost", b"origin": origin})


def test_what_a_stranger_can_vary_is_not_kept_without_end() -> None:
    guard = HostCheck([])
    for number in range(1000):
        guard.check({b"host": b"host-%d" % number})
    assert len(guard._passed) <= 64


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "[::1]"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "[fe80::1]"),
    ],
)
def test_an_address_is_spelled_as_a_host(address: str, host: str) -> None:
    assert spelled(address) == host
