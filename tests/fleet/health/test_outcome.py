"""What becomes of a task is read from its events alone, and what the run says of itself counts."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.fleet.health.outcome import (
    ASKED,
    CANCELED,
    COMPLETED,
    FAILED,
    REJECTED,
    OpenTask,
    TaskOutcome,
    counted,
    replay,
)
from trunkline.log import events as ev
from trunkline.wire.reports import UNTOLD
from trunkline.wire.types import Artifact, Message, Part, TaskState

AT = 1_800_000_000_000
COST_TYPE = "application/vnd.protolabs.cost-v1+json"
COST_URI = "https://proto-labs.ai/a2a/ext/cost-v1"
SURE_URI = "https://proto-labs.ai/a2a/ext/confidence-v1"


def message(**metadata: Any) -> Message:
    return Message("m-1", parts=(Part(text="hello"),), metadata=metadata or None)


def submitted(**members: Any) -> ev.Submitted:
    return ev.Submitted(message(), "ctx", "ann", "n1", agent="desk", skill="work", **members)


def outcome(*events: ev.AnyEvent, end: ev.AnyEvent, ms: int = 40) -> TaskOutcome:
    known = OpenTask(1, AT, submitted(metadata={"trunkline.dispatch": {"correlationId": "c-1"}}))
    for seq, event in enumerate(events, 2):
        known.take(seq, [event])
    return ended(known, end, AT + ms)


def ended(known: OpenTask, end: ev.AnyEvent, at: int = AT) -> TaskOutcome:
    ((state, said),) = counted([end])
    return known.outcome("north", "t1", at, state, said)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (ev.Status(TaskState.COMPLETED), COMPLETED),
        (ev.Replied(message()), COMPLETED),
        (ev.Status(TaskState.FAILED), FAILED),
        (ev.Status(TaskState.CANCELED), CANCELED),
        (ev.Status(TaskState.REJECTED), REJECTED),
        (ev.Status(TaskState.INPUT_REQUIRED), ASKED),
        (ev.Status(TaskState.AUTH_REQUIRED), ASKED),
    ],
    ids=str,
)
def test_each_end_has_its_class(end: ev.AnyEvent, kind: int) -> None:
    found = outcome(end=end)
    assert (found.kind, found.agent, found.skill) == (kind, "desk", "work")
    assert found.ms == (0 if kind == ASKED else 40)
    assert (found.task, found.correlation) == (("t1", "c-1") if kind == FAILED else ("", ""))


def test_a_failure_keeps_the_first_200_characters_of_its_reason() -> None:
    long = Message("m-1", parts=(Part(text="no disk " * 100),))
    assert outcome(end=ev.Status(TaskState.FAILED, long)).reason == ("no disk " * 100)[:200]
    assert outcome(end=ev.Status(TaskState.COMPLETED, long)).reason == ""
    missed = ev.Chunk(Artifact("a", metadata={COST_URI: {"success": False}}))
    assert (
        outcome(missed, end=ev.Status(TaskState.COMPLETED)).reason == "completed and reported success: false"
    )


def test_what_goes_on_is_no_outcome() -> None:
    assert counted([ev.Status(TaskState.WORKING), ev.Delta("a", "x"), ev.Claimed("n2")]) == []


def _forms(body: dict[str, Any]) -> dict[str, tuple[list[ev.AnyEvent], ev.AnyEvent]]:
    part = Part(data=body, metadata={"mimeType": COST_TYPE})
    early = Part(data=body, media_type=COST_TYPE)
    end = ev.Status(TaskState.COMPLETED)
    return {
        "part": ([ev.Chunk(Artifact("a", parts=(Part(text="x"), part)))], end),
        "media type": ([ev.Chunk(Artifact("a", parts=(early,)))], end),
        "metadata": ([ev.Chunk(Artifact("a", metadata={COST_URI: body}))], end),
        "appended": (
            [
                ev.Chunk(Artifact("a", parts=(Part(text="x"),))),
                ev.Chunk(Artifact("a", parts=(part,)), append=True),
            ],
            end,
        ),
        "status": ([], ev.Status(TaskState.COMPLETED, message(**{COST_URI: body}))),
        "reply": ([], ev.Replied(message(**{COST_URI: body}))),
        "compacted": ([ev.Compacted(5, (Artifact("a", parts=(part,)),))], end),
    }


@pytest.mark.parametrize("form", sorted(_forms({})))
def test_HB_30_cost_is_the_same_in_every_form(form: str) -> None:
    body = {"usage": {"input_tokens": 10, "output_tokens": 2.0}, "costUsd": 0.25}
    events, end = _forms(body)[form]
    found = outcome(*events, end=end)
    assert (found.cost, found.tokens_in, found.tokens_out, found.kind) == (0.25, 10, 2, COMPLETED)


def test_what_missed_its_goal_has_failed() -> None:
    for uri in (COST_URI, SURE_URI):
        said = message(**{uri: {"success": False, "confidence": 0.9}})
        assert outcome(end=ev.Status(TaskState.COMPLETED, said)).kind == FAILED
        boast = message(**{uri: {"success": True}})
        assert outcome(end=ev.Status(TaskState.FAILED, boast)).kind == FAILED


def test_an_artifact_that_is_written_anew_says_what_it_says_now() -> None:
    first = ev.Chunk(Artifact("a", metadata={COST_URI: {"costUsd": 1.0}}))
    second = ev.Chunk(Artifact("a", parts=(Part(text="x"),)))
    assert outcome(first, second, end=ev.Status(TaskState.COMPLETED)).cost is None


@pytest.mark.parametrize("told", [7, -1, True, "0.5", None, 1e400])
def test_confidence_is_between_nothing_and_one(told: object) -> None:
    said = message(**{SURE_URI: {"confidence": told}})
    found = outcome(end=ev.Status(TaskState.COMPLETED, said)).confidence
    assert found == {7: 1.0, -1: 0.0}.get(told if isinstance(told, int) and told is not True else None)  # type: ignore[arg-type]


def test_a_request_reports_no_cost() -> None:
    known = OpenTask(1, AT, submitted(metadata={COST_URI: {"costUsd": 9.0}}))
    assert ended(known, ev.Status(TaskState.COMPLETED)).cost is None


@pytest.mark.parametrize(
    ("result", "cost"), [({COST_URI: {"costUsd": 2.0}}, 2.0), (["a", "b"], None), ("x", None)]
)
def test_reports_that_a_caller_does_not_want_count_and_nothing_else_of_their_name(
    result: Any, cost: float | None
) -> None:
    known = OpenTask(1, AT, submitted())
    known.take(2, [ev.Stepped(0, UNTOLD, result)])
    assert ended(known, ev.Status(TaskState.COMPLETED)).cost == cost


def test_a_log_that_is_read_again_gives_the_same() -> None:
    chunk = ev.Chunk(Artifact("a", metadata={COST_URI: {"costUsd": 1.0}}))
    events = [
        ev.Recorded(1, AT, submitted()),
        ev.Recorded(2, AT + 1, chunk),
        ev.Recorded(3, AT + 9, ev.Status(TaskState.COMPLETED)),
    ]
    whole = replay(events, 3)
    parts = replay(events[1:], 3, replay(events[:1], 3))
    assert whole is not None and parts is not None
    both = [ended(one, events[2].event) for one in (whole, parts)]
    assert both[0] == both[1] and both[0].cost == 1.0
    assert replay([], 3) is None


def test_what_comes_after_a_gap_is_not_taken() -> None:
    known = OpenTask(1, AT, submitted())
    seen: list[int] = []
    one, range_of = ev.Claimed("n"), ev.Compacted
    for last, events in (
        (3, [one]), (1, [submitted()]), (2, [one]), (9, [range_of(8)]), (11, [one, one]), (14, [one, one]),
        (12, [one, one, one]), (30, [one, range_of(18)]), (45, [range_of(20), one]),
    ):  # fmt: skip
        known.take(last, events)
        seen.append(known.seq)
    assert seen == [1, 1, 2, 9, 11, 11, 12, 30, 45]
