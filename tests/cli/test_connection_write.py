"""Who reads slowly keeps its connection; who stands still loses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from trunkline.cli.connection import Connection


class Clock:
    """A loop whose timers only a test moves."""

    def __init__(self) -> None:
        self.due: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.canceled = 0

    def call_later(self, delay: float, call: Callable[..., None], *arguments: Any) -> Clock:
        assert delay == Connection.write_limit_s
        self.due.append((call, arguments))
        return self

    def cancel(self) -> None:
        self.canceled += 1
        self.due.clear()

    def pass_limit(self) -> None:
        call, arguments = self.due.pop()
        call(*arguments)


class Transport:
    """A transport with a known backlog."""

    def __init__(self) -> None:
        self.backlog = 100
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.backlog

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@pytest.fixture
def made() -> tuple[Connection, Clock, Transport]:
    connection = object.__new__(Connection)
    clock, transport = Clock(), Transport()
    connection.loop = clock  # type: ignore[assignment]
    connection.transport = transport  # type: ignore[assignment]
    connection.flow = FlowControl(transport)  # type: ignore[arg-type]
    return connection, clock, transport


def test_a_reader_that_stands_still_is_let_go(made: tuple[Connection, Clock, Transport]) -> None:
    connection, clock, transport = made
    connection.pause_writing()
    assert connection.flow.write_paused and not transport.aborted
    clock.pass_limit()
    assert transport.aborted


def test_a_slow_reader_is_looked_at_again(made: tuple[Connection, Clock, Transport]) -> None:
    connection, clock, transport = made
    connection.pause_writing()
    for backlog in (90, 50, 1):
        transport.backlog = backlog
        clock.pass_limit()
        assert not transport.aborted and len(clock.due) == 1
    clock.pass_limit()
    assert transport.aborted


def test_who_has_caught_up_is_not_looked_at(made: tuple[Connection, Clock, Transport]) -> None:
    connection, clock, transport = made
    connection.pause_writing()
    connection.resume_writing()
    assert clock.due == [] and clock.canceled == 1 and not transport.aborted
