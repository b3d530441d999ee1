"""What whoever asked for work is told of an agent that did not do it."""

from __future__ import annotations

import pytest

from trunkline.errors import (
    ContentTypeNotSupported,
    Forbidden,
    InternalError,
    InvalidParams,
    MethodNotFound,
    PeerError,
    RouteNotFound,
    TaskNotFound,
    TimedOut,
    TooLarge,
    TrunklineError,
    Unauthenticated,
    Unreachable,
    Unreadable,
    UnsupportedOperation,
)
from trunkline.peer.absence import SILENT
from trunkline.peer.failure import explain

INSIDE = "http://writer.internal:8000 password=canary"


@pytest.mark.parametrize(
    ("error", "has_task", "reason"),
    [
        (Unauthenticated(f"401; it wants a key {INSIDE}"), False, "not-let-in"),
        (Forbidden(INSIDE), True, "not-let-in"),
        (InternalError(INSIDE), True, "agent-error"),
        (PeerError(INSIDE, code=500), False, "agent-error"),
        (PeerError(f"HTTP 307: it sends callers on to {INSIDE}", code=307), False, "agent-error"),
        (RouteNotFound(INSIDE), False, "incompatible"),
        (MethodNotFound(INSIDE), False, "incompatible"),
        (MethodNotFound(INSIDE), True, "unfollowable"),
        (UnsupportedOperation(INSIDE), True, "unfollowable"),
        (TooLarge(f"HTTP 413 from {INSIDE}"), False, "refused"),
        (TaskNotFound(f"HTTP 404 from {INSIDE}"), True, "forgotten"),
        (Unreadable(f"it begins: {INSIDE}"), True, "unreadable"),
        (Unreachable(INSIDE, reason="size"), True, "too-large"),
        (Unreachable(INSIDE, reason="refused"), False, "not-allowed"),
        (Unreachable(INSIDE, reason="connect"), False, "unreachable"),
        (TimedOut(INSIDE, reason="idle"), False, "timed-out"),
    ],
)
def test_reasons_are_stable_and_tell_nothing_of_the_inside(
    error: TrunklineError, has_task: bool, reason: str
) -> None:
    told = explain(error, has_task=has_task)
    assert told.reason == reason
    assert "internal" not in told.words and "canary" not in told.words


@pytest.mark.parametrize(
    ("error", "has_task", "words"),
    [
        (ContentTypeNotSupported("no pictures"), False, "does not take it: no pictures"),
        (InvalidParams("message.parts is empty"), False, "does not take it: message.parts is empty"),
        (TaskNotFound("not here"), True, "no longer knows its task: not here"),
        (
            TimedOut("it said nothing for 3 seconds", reason=SILENT),
            True,
            "failed: it said nothing for 3 seconds",
        ),
    ],
)
def test_what_an_agent_says_of_the_message_is_passed_on(
    error: TrunklineError, has_task: bool, words: str
) -> None:
    assert explain(error, has_task=has_task).words == words
