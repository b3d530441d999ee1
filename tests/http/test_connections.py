"""How many connections there may be, and what one too many hears."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import ServerProcess
from tests.http.transport import Line, echo, get, run
from trunkline.http import connections
from trunkline.http.connections import FILES, FULL, LEAVING, fit_connections, report_connections

LIMIT = 3
ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    flags = ("--set", f"connection_limit={LIMIT}", "--metrics")
    with ServerProcess(tmp_path, "trunkline.demo:agent", *flags, store="memory:") as server:
        yield server


def _connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def _ask(line: socket.socket, raw: bytes = ASK) -> bytes:
    line.sendall(raw)
    return line.recv(1 << 16)


def _served(server: ServerProcess) -> socket.socket:
    """A connection that is let in; whoever left may still be counted for a moment."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        line = _connect(server)
        if _ask(line).startswith(b"HTTP/1.1 200 "):
            return line
        line.close()
    raise AssertionError("nobody is let in")


def test_one_too_many_is_told_to_come_again(server: ServerProcess) -> None:
    lines = [_served(server) for _ in range(LIMIT)]
    for sent in (b"", ASK, b"POST /a2a HTTP/1.1\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000):
        with _connect(server) as line:
            line.sendall(sent)
            said = b""
            while piece := line.recv(1 << 16):
                said += piece
        assert said == FULL
    assert all(_ask(line).startswith(b"HTTP/1.1 200 ") for line in lines), "who is in stays in"
    lines.pop().close()
    lines.append(_served(server))
    page = _ask(lines[0], ASK.replace(b"healthz", b"metrics"))
    while b"\r\n0\r\n" not in page and b"trunkline_refusals_total{" not in page:
        page += lines[0].recv(1 << 16)
    assert b'reason="CONNECTION_LIMIT"' in page
    for line in lines:
        line.close()


def test_a_flood_of_connections_is_said_once_a_second(server: ServerProcess) -> None:
    began = time.monotonic()
    lines = [_served(server) for _ in range(LIMIT)]
    flood = [_connect(server) for _ in range(LEAVING + 50)]
    for line in flood:
        # Those beyond what may linger are closed at once, and may hear nothing.
        try:
            assert line.recv(1 << 16) in (FULL, b"")
        except ConnectionError:
            pass
        line.close()
    assert _ask(lines[0]).startswith(b"HTTP/1.1 200 ")
    deadline = time.monotonic() + 60
    while "connection.refused" not in server.text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert 1 <= server.text().count("connection.refused") <= time.monotonic() - began + 1
    for line in lines:
        line.close()
    _served(server).close()


def test_no_limit() -> None:
    async def main() -> None:
        line = Line(echo)
        await line.feed(get("/here"))
        assert line.said.endswith(b"GET /here ")
        assert not line.closed

    run(main)


@pytest.mark.parametrize(
    ("soft", "hard", "limit", "fits", "raised"),
    [
        (1024, 1024, 100, 100, None),
        (1024, 4096, 2000, 2000, 2000 + FILES),
        (1024, 4096, 20_000, 4096 - FILES, 4096),
        (64, 128, 20_000, 1, 128),
        (1024, resource.RLIM_INFINITY, 20_000, 20_000, 20_000 + FILES),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 20_000, 20_000, None),
        (1024, 4096, 0, 0, None),
    ],
)
def test_as_many_as_there_are_files(
    soft: int, hard: int, limit: int, fits: int, raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(connections.resource, "setrlimit", lambda _, both: told.append(both))
    assert fit_connections(limit) == fits
    assert told == ([] if raised is None else [(raised, hard)])


def test_a_system_that_gives_no_more_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, both: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (1000, resource.RLIM_INFINITY))
    monkeypatch.setattr(connections.resource, "setrlimit", refuse)
    assert fit_connections(20_000) == 1000 - FILES


@pytest.mark.parametrize(
    ("fits", "level"), [(20_000, None), (19_800, "DEBUG"), (10_000, "DEBUG"), (9_999, "WARNING")]
)
def test_a_file_limit_that_leaves_less_than_half_of_the_connections_is_a_warning(
    fits: int, level: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        report_connections(20_000, fits)
    assert [record.levelname for record in caplog.records] == ([] if level is None else [level])


def test_warning_about_the_file_limit_follows_the_line_that_the_server_is_ready(tmp_path: Path) -> None:
    program = "from trunkline.cli.main import main; main()"
    words = ["serve", "trunkline.demo:agent", "--port", "0", "--store", "memory:"]
    shell = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", sys.executable, "-c", program, *words]
    with subprocess.Popen(shell, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        events: list[str] = []
        for line in process.stderr:
            events.append(line.split()[2])
            if events[-1] == "connection.limit":
                break
        process.terminate()
        process.stderr.read()
    assert events[0] == "server.ready"
