"""The checker of planned work notices each violation, and rows 91 to 95 find none in one kill each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests import postgres
from tests.chaos import kills
from tests.chaos.planned import COOLS, MINUTE_MS, WAITS, Done, Moment, Record, Request, check_planned
from tests.chaos.rows import ROWS, Run

AT = 1_800_000_000_000
DAILY, NEXT = "cron-queue-all", "next-skip-once"
STEPS = {DAILY: MINUTE_MS, NEXT: 1}


def planned(minute: int) -> str:
    return f"2027-01-15T08:{minute:02}:00.000Z"


def run(minute: int, name: str = DAILY, **members: Any) -> dict[str, Any]:
    named = {"runId": f"r-{name}-{minute}", "taskId": f"t-{name}-{minute}", "plannedAt": planned(minute)}
    return {**named, "status": "success", **members}


class Story:
    """A record in which everything went well, and what the agent did; each test changes one thing."""

    def __init__(self) -> None:
        self.record = Record()
        self.record.moments = {
            (DAILY, at): Moment(DAILY, at) for at in range(AT, AT + 5 * MINUTE_MS, MINUTE_MS)
        }
        self.record.moments[NEXT, AT] = Moment(NEXT, AT)
        self.record.read(
            DAILY, [run(0), run(1), {"status": "skipped", "plannedAt": planned(2), "reason": ""}]
        )
        self.record.read(DAILY, [run(1), {"status": "missed", "since": planned(3), "count": 2}])
        self.record.read(NEXT, [run(0, NEXT)])
        self.dispatch = Request("work 1 a", COOLS, ("work 1 a",), "t1", "completed")
        self.flow = Request("work 1 b", WAITS, ("work 1 b a", "work 1 b b"), "t2", "completed")
        self.record.requests = [self.dispatch, self.flow]
        self.done = [
            *[Done(f"work 5 work of {DAILY}", f"t-{DAILY}-{minute}") for minute in (0, 1)],
            Done(f"work 5 work of {NEXT}", f"t-{NEXT}-0"),
            *[Done(text, "") for text in (*self.dispatch.parts, *self.flow.parts)],
        ]

    def kinds(self) -> list[str]:
        return [one.rule for one in check_planned(self.record, self.done, STEPS)]


def test_sound_record_has_no_violation() -> None:
    assert Story().kinds() == []


def lose_moment(story: Story) -> None:
    story.record.moments[NEXT, AT + 1] = Moment(NEXT, AT + 1)


def lose_work(story: Story) -> None:
    del story.done[0]


def do_twice(story: Story) -> None:
    story.done.append(story.done[0])


def run_twice(story: Story) -> None:
    story.record.read(DAILY, [run(0, runId="other", taskId="t-other")])
    story.done.append(Done(f"work 5 work of {DAILY}", "t-other"))


def do_unplanned(story: Story) -> None:
    story.done.append(Done(f"work 5 work of {DAILY}", "t-unknown"))


def fail_run(story: Story) -> None:
    story.record.read(NEXT, [run(0, NEXT, status="failure")])


def fail_workflow(story: Story) -> None:
    story.flow.state = "failed"


def leave_open(story: Story) -> None:
    story.flow.state = "working"


def repeat_delegation(story: Story) -> None:
    story.done.append(story.done[-1])


def refuse_dispatch(story: Story) -> None:
    story.dispatch.state = "rejected"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lose_moment, "LOST"),
        (lose_work, "LOST"),
        (do_twice, "TWICE"),
        (run_twice, "TWICE"),
        (do_unplanned, "UNPLANNED"),
        (fail_run, "FAILED"),
        (fail_workflow, "FAILED"),
        (leave_open, "FAILED"),
        (repeat_delegation, "TWICE"),
        (refuse_dispatch, "REFUSED"),
    ],
)
def test_checker_reports_what_is_wrong(change: Callable[[Story], None], rule: str) -> None:
    story = Story()
    change(story)
    assert story.kinds() == [rule]


def test_moment_that_was_withdrawn_may_have_no_run() -> None:
    story = Story()
    story.record.moments[NEXT, AT + 1] = Moment(NEXT, AT + 1, required=False)
    assert story.kinds() == []


def test_key_that_a_step_of_the_clock_expired_may_be_done_twice() -> None:
    story = Story()
    do_twice_under_its_key = next(one for one in story.done if one.text == story.dispatch.text)
    story.done.append(do_twice_under_its_key)
    assert story.kinds() == ["TWICE"]
    story.dispatch.crossed = True
    assert story.kinds() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "kind"),
    [(row.number, kind) for row in ROWS if row.play.__module__ == kills.__name__ for kind in row.stores[:1]],
)
def test_row_finds_no_violation_in_one_kill(number: int, kind: str) -> None:
    if kind == "postgres" and (why := postgres.why_none()):
        pytest.skip(why)
    (row,) = [row for row in ROWS if row.number == number]
    run = Run(number, kind, 7, 0.1, {"kills": 1, "clients": 1})
    try:
        result = asyncio.run(row.play(run))
    finally:
        run.close(keep=False)
    if result.passed is None:
        pytest.skip(result.measured)
    assert result.passed, result.measured
