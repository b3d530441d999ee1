"""What is due when, and what is said."""

from __future__ import annotations

from msgspec.structs import replace

from trunkline.fleet.health.alerts import FleetAlert
from trunkline.fleet.inbox import InboxItem
from trunkline.fleet.notify.notice import (
    ATTEMPTS,
    CALLER,
    FIRST_MS,
    PAUSES_MS,
    Notice,
    alert_text,
    question_text,
)
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.notify.sender import ATTEMPT_S

NOW = 1_800_000_000_000
FIRST = NoticeReceiver(name="first", webhook="https://a.example")
NEXT = NoticeReceiver(name="next", webhook="https://b.example", after="10m")
ALERT = FleetAlert(kind="failure-rate", value=0.75, limit=0.5)


def test_when_a_receiver_is_told() -> None:
    asked = Notice(at=NOW, question="q")
    assert (asked.due_at("default", FIRST), asked.due_at("default", NEXT)) == (NOW, NOW + 600_000)
    assert asked.due_at("north", FIRST) is None
    # An alert does not wait for others.
    assert Notice(at=NOW, alert=ALERT).due_at("default", NEXT) == NOW
    begun = asked.begun("first", NOW)
    assert begun.due_at("default", FIRST) == NOW + PAUSES_MS[0]
    assert begun.ended("first").due_at("default", FIRST) is None
    assert begun.due_at("default", NEXT) == NOW + 600_000


def test_notice_is_sent_though_the_clock_was_set_back() -> None:
    """Whether it was to be sent later, or again."""
    now = NOW - 86_400_000
    asked = Notice(at=NOW, question="q", caller="writer")
    for notice in (asked, asked.begun("first", NOW), asked.begun("next", NOW)):
        for receiver in (FIRST, NEXT):
            assert notice.is_due("default", receiver, now)
            begun = notice.begun(receiver.name, now)
            assert not begun.is_due("default", receiver, now)
            assert begun.is_due("default", receiver, now + PAUSES_MS[1])
    assert not asked.is_due("default", NEXT, NOW - 3_600_000)


def test_people_wait_for_the_agent_that_asked_for_the_work() -> None:
    asked = Notice(at=NOW, question="q", caller="writer")
    assert asked.waits_for_caller
    assert asked.due_at("default", FIRST) == NOW + FIRST_MS
    assert asked.due_at("default", NEXT) == NOW + FIRST_MS + 600_000
    passed = asked.ended(CALLER)
    assert not passed.waits_for_caller and passed.due_at("default", FIRST) == NOW


def test_attempts_come_later_and_later_and_end() -> None:
    notice, moments = Notice(at=NOW, question="q"), [NOW]
    while (at := notice.due_at("default", FIRST)) is not None:
        moments.append(at)
        notice = notice.begun("first", at)
    assert len(moments) == ATTEMPTS + 1
    pauses = [late - early for early, late in zip(moments[1:], moments[2:], strict=False)]
    assert pauses == list(PAUSES_MS)
    # Nobody makes another attempt while one may be on its way.
    assert min(pauses) > ATTEMPT_S * 1000


def test_what_is_said_is_bounded() -> None:
    item = InboxItem(
        task_id="t", context_id="c", agent="approver", skill="", principal="p", state="input-required", question="q",
        text="May it?\n" + "x" * 5000, choices=["yes", "no"], deadline="2027-01-01T00:00:00Z", asked_at="now",
    )  # fmt: skip
    said = question_text("id", "default", item)
    assert said.title == "approver asks: May it?"
    assert said.text.endswith("x\nChoices: yes, no\nUntil 2027-01-01T00:00:00Z\nTask t")
    assert len(said.text) < 2200 and len(said.members["text"]) == 2000
    assert said.members["type"] == "inbox.question" and "principal" not in said.members
    long = question_text("id", "default", InboxItem(
        task_id="t", context_id="c", agent="a", skill="", principal="p", state="input-required", question="q", text="y" * 500, asked_at="",
    ))  # fmt: skip
    assert len(long.title) == 120 and long.title.endswith("y…")
    login = question_text("id", "default", replace(item, state="auth-required"))
    assert (login.title, login.members["state"]) == ("approver wants a login: May it?", "auth-required")
    alert = alert_text("id", "default", ALERT, "now")
    assert alert.text == "failure-rate of default is 0.75, above 0.5"
    assert alert.members["kind"] == "failure-rate"
