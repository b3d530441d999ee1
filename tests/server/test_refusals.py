"""The log line of a refused request."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from trunkline.errors import Refused, RouteNotFound
from trunkline.server.refusals import TraceSeen, note


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (RouteNotFound("no such path here"), "ROUTE_NOT_FOUND"),
        (RouteNotFound("there is no agent 'x'", missing="AGENT_NOT_FOUND"), "AGENT_NOT_FOUND"),
    ],
)
def test_log_has_the_code_that_the_caller_gets(
    caplog: pytest.LogCaptureFixture, refused: Refused, reason: str
) -> None:
    exchange: Any = SimpleNamespace(path="/api/agents/x")
    with caplog.at_level(logging.INFO, "trunkline.server"):
        note(exchange, TraceSeen(), refused)
    assert f"request.refused path='/api/agents/x' reason={reason} " in caplog.text
