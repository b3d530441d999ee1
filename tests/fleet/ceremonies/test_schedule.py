"""Planned moments: against a model that looks at every minute, over changes of the clock and far away."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import InvalidParams
from trunkline.fleet.ceremonies import schedule as schedule_module
from trunkline.fleet.ceremonies.schedule import (
    COUNTED_LIMIT,
    MISSED_MS,
    Jitter,
    Schedule,
    due_moments,
    planned_id,
)

MINUTE, DAY = 60_000, 86_400_000
CALM = Jitter("north", "standup", 0)
# Zones whose clocks change at other hours, by half an hour, or by a whole day.
ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "UTC",
    "Asia/Kolkata",
]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def texts(schedule: Schedule, after: str, count: int = 3) -> list[str]:
    found = islice(schedule.after(ms(after)), count)
    return [datetime.fromtimestamp(one / 1000, UTC).isoformat() for one in found]


def test_hb25_utc_unless_a_zone_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        found = texts(Schedule("0 9 * * *"), "2026-07-01T00:00:00+00:00", 1)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == ["2026-07-01T09:00:00+00:00"]


def test_hb25_a_wall_time_that_comes_twice_is_planned_once() -> None:
    found = texts(Schedule("30 1 * * *", "America/New_York"), "2026-11-01T00:00:00+00:00")
    assert found == ["2026-11-01T05:30:00+00:00", "2026-11-02T06:30:00+00:00", "2026-11-03T06:30:00+00:00"]


def test_hb25_a_wall_time_that_does_not_come_is_planned_when_the_clock_goes_on() -> None:
    found = texts(Schedule("30 2 * * *", "America/New_York"), "2026-03-08T00:00:00+00:00", 2)
    assert found == ["2026-03-08T07:00:00+00:00", "2026-03-09T06:30:00+00:00"]
    # All of that hour fall on one moment, which the schedule has itself.
    every = texts(Schedule("*/20 * * * *", "America/New_York"), "2026-03-08T06:35:00+00:00", 3)
    assert every == ["2026-03-08T06:40:00+00:00", "2026-03-08T07:00:00+00:00", "2026-03-08T07:20:00+00:00"]


def test_a_day_that_a_country_left_out() -> None:
    found = texts(Schedule("0 9 * * *", "Pacific/Apia"), "2011-12-29T23:00:00+00:00", 2)
    assert found == ["2011-12-30T10:00:00+00:00", "2011-12-30T19:00:00+00:00"]


def test_far_and_rare_moments() -> None:
    assert texts(Schedule("0 0 29 2 *"), "2096-03-01T00:00:00+00:00", 1) == ["2104-02-29T00:00:00+00:00"]
    assert texts(Schedule("0 0 31 * *"), "2026-01-31T00:00:00+00:00", 2) == [
        "2026-03-31T00:00:00+00:00",
        "2026-05-31T00:00:00+00:00",
    ]


def test_one_date_is_planned_once() -> None:
    schedule = Schedule("2030-01-31T09:00:00", "Europe/Berlin")
    assert texts(schedule, "2026-01-01T00:00:00+00:00") == ["2030-01-31T08:00:00+00:00"]
    assert texts(schedule, "2030-01-31T08:00:00+00:00") == []
    assert Schedule("2030-01-31T09:00:00+02:00", "Asia/Tokyo").once == ms("2030-01-31T07:00:00+00:00")


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "0 0 1 1 8", "soon", "0 0 * * MON#6", "@daily"]
    + [
        "2030-02-30T00:00:00",
        "9999-01-01T00:00:00",
        "0001-01-01T00:00:00",
        "*/0 * * * *",
        "* * * * " + "1" * 99,
    ]
    + ["L/5 * * * *", "0 0 * * 1L/2"],
)
def test_hb29_what_is_no_schedule(text: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        Schedule(text)
    assert caught.value.field == "schedule"


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "x\0y", "Europe"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        Schedule("* * * * *", name)
    assert caught.value.field == "timezone"


def expected(minute: set[int], hour: set[int], zone: ZoneInfo, begin: datetime, days: int) -> set[int]:
    """Every minute that there is, by its wall time: the first of each, and the end of a gap for what is in it."""
    found: set[int] = set()
    seen: set[datetime] = set()
    last = begin.astimezone(zone).replace(tzinfo=None)
    for n in range(1, days * 1440):
        instant = begin + timedelta(minutes=n)
        wall = instant.astimezone(zone).replace(tzinfo=None)
        passed = [wall] if wall <= last else list(_minutes(last, wall))
        if any(one.minute in minute and one.hour in hour and one not in seen for one in passed):
            found.add(int(instant.timestamp() * 1000))
        seen.update(passed)
        last = wall
    return found


def _minutes(after: datetime, until: datetime) -> list[datetime]:
    count = int((until - after) / timedelta(minutes=1))
    return [after + timedelta(minutes=n) for n in range(1, count + 1)]


@given(
    minute=st.sets(st.integers(0, 59), min_size=1, max_size=4),
    hour=st.sets(st.integers(0, 5), min_size=1, max_size=4),
    zone=st.sampled_from(ZONES),
    # About where clocks change.
    begin=st.sampled_from(
        [(2026, 3, 7), (2026, 3, 28), (2026, 4, 4), (2026, 10, 3), (2026, 10, 24), (2026, 10, 31)]
    ),
)
def test_every_planned_moment_once(
    minute: set[int], hour: set[int], zone: str, begin: tuple[int, int, int]
) -> None:
    start = datetime(*begin, 3, 0, tzinfo=UTC)
    text = f"{','.join(map(str, sorted(minute)))} {','.join(map(str, sorted(hour)))} * * *"
    until = int((start + timedelta(days=2)).timestamp() * 1000)
    found: list[int] = []
    for one in Schedule(text, zone).after(int(start.timestamp() * 1000)):
        if one >= until:
            break
        found.append(one)
    assert found == sorted(expected(minute, hour, ZoneInfo(zone), start, 2))


@given(zone=st.sampled_from(ZONES), begin=st.integers(0, 10 * 365 * 24 * 60), steps=st.integers(1, 40))
def test_moments_do_not_depend_on_where_one_looks_from(zone: str, begin: int, steps: int) -> None:
    """Whoever starts again at a planned moment finds the same ones."""
    schedule = Schedule("7,37 */3 * * *", zone)
    start = ms("2026-01-01T00:00:00+00:00") + begin * MINUTE
    whole = list(islice(schedule.after(start), steps))
    assert all(one < other for one, other in pairwise(whole))
    again = [start]
    for _ in range(steps):
        again.append(next(schedule.after(again[-1])))
    assert again[1:] == whole


NOON = ms("2026-06-01T12:00:00+00:00")
HOURLY = Schedule("0 * * * *")


def test_hb26_missed_moments_by_their_policy() -> None:
    cursor, now = NOON - 5 * 60 * MINUTE, NOON + MINUTE // 2
    hours = tuple(NOON - n * 60 * MINUTE for n in (4, 3, 2, 1, 0))
    assert due_moments(HOURLY, cursor, now, "all", CALM).fires == hours
    once = due_moments(HOURLY, cursor, now, "once", CALM)
    assert (once.fires, once.missed, once.since, once.through) == ((NOON,), 4, hours[0], NOON)
    assert due_moments(HOURLY, cursor, now, "skip", CALM).fires == (NOON,)
    late = due_moments(HOURLY, cursor, now + 2 * MINUTE, "skip", CALM)
    assert (late.fires, late.missed, late.through) == ((), 5, NOON)
    assert due_moments(HOURLY, NOON, now, "all", CALM).fires == ()


def test_moments_that_were_missed_a_day_ago_are_counted_and_never_fire() -> None:
    monthly, first = Schedule("0 0 1 * *"), NOON - DAY // 2
    assert due_moments(monthly, NOON - 20 * DAY, NOON, "once", CALM).fires == (first,)
    late = due_moments(monthly, NOON - 20 * DAY, NOON + MISSED_MS, "all", CALM)
    assert (late.fires, late.missed, late.since) == ((), 1, first)
    assert due_moments(monthly, late.through, NOON + MISSED_MS, "all", CALM).missed == 0
    once = Schedule("2026-01-01T00:00:00Z")
    assert once.once is not None
    gone = due_moments(once, once.once - 1, once.once + MISSED_MS, "once", CALM)
    assert (gone.fires, gone.missed, gone.since) == ((), 1, once.once)
    often = due_moments(Schedule("* * * * *"), 0, NOON, "all", CALM)
    assert (len(often.fires), often.missed, often.through) == (100, COUNTED_LIMIT + 1340, NOON)


def test_jitter_delays_and_never_loses() -> None:
    jitter = Jitter("north", "standup", 30 * MINUTE)
    delays = {jitter.delay(NOON + n * 60 * MINUTE) for n in range(50)}
    assert len(delays) > 40 and max(delays) <= 30 * MINUTE
    wait = jitter.delay(NOON)
    assert due_moments(HOURLY, NOON - 1, NOON + wait - 1, "skip", jitter).fires == ()
    assert due_moments(HOURLY, NOON - 1, NOON + wait, "skip", jitter).fires == (NOON,)


@given(planned=st.integers(0, 2**45), name=st.text(max_size=5))
def test_planned_ids_are_ids_of_their_moment(planned: int, name: str) -> None:
    made = uuid.UUID(planned_id(planned, "north", name))
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, planned)
    assert str(made) == planned_id(planned, "north", name) != planned_id(planned, "northern", name)


def test_what_was_found_of_a_day_that_comes_once_in_decades_is_not_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The fifth Sunday of a February: every 28 years.
    rare, now = Schedule("0 0 30 2 0#5"), ms("2026-11-18T00:00:00+00:00")
    first = list(islice(rare.after(now), 5))
    assert [texts(rare, "2026-11-18T00:00:00+00:00")[n][:10] for n in (0, 1)] == ["2032-02-29", "2060-02-29"]

    def searched(*_: object) -> None:
        raise RuntimeError("looked for again")

    monkeypatch.setattr(schedule_module, "CronSim", searched)
    assert [list(islice(rare.after(at), 5)) for at in (now, now + 400 * DAY, first[0] - 1)] == [first] * 3
    with pytest.raises(RuntimeError, match="looked for again"):
        next(rare.after(first[0]))


@given(
    at=st.lists(
        st.integers(ms("2026-01-01T00:00:00+00:00"), ms("2027-01-01T00:00:00+00:00")), min_size=2, max_size=5
    ),
    text=st.sampled_from(["30 2 * * *", "*/20 1-3 * * *", "0 0 1 * *", "15 */7 * * 0"]),
    zone=st.sampled_from(ZONES),
)
def test_the_moments_do_not_depend_on_what_was_asked_before(at: list[int], text: str, zone: str) -> None:
    asked = Schedule(text, zone)
    for one in at:
        assert list(islice(asked.after(one), 12)) == list(islice(Schedule(text, zone).after(one), 12))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("99 * * * *", "the minute '99' is not valid; it accepts 0-59"),
        ("0 25 * * *", "the hour '25' is not valid; it accepts 0-23"),
        ("0 9 32 * *", "the day of month '32' is not valid; it accepts 1-31"),
        ("0 9 * 13 *", "the month '13' is not valid; it accepts 1-12 or JAN-DEC"),
        ("0 9 * * MOM", "the day of week 'MOM' is not valid; it accepts 0-7 or SUN-SAT"),
        ("0 9 * *", "'0 9 * *' has 4 of the 5 fields of cron (minute, hour"),
        ("0 9 30 2 *", "no date fits: month '2' has no day of month '30'"),
        ("2030-13-01T09:00:00", "'2030-13-01T09:00:00' is not a date and time"),
    ],
)
def test_error_names_the_invalid_field_of_a_schedule(text: str, error: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        Schedule(text)
    assert caught.value.message.startswith(error) and caught.value.field == "schedule"
