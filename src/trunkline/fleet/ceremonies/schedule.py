"""When a ceremony is planned: the moments of a cron expression or of one date. Pure.

Wall time is what counts. A wall time that comes twice, in autumn, is planned once, at its first coming; those
that do not come at all, in spring, are planned together at the moment when the clock goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, takewhile
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from trunkline.errors import InvalidParams

Misfire = Literal["skip", "once", "all"]
# How late a moment may be and still be on time: no schedule is finer than a minute.
GRACE_MS = 60_000
# A moment that was missed longer ago than this is gone, whatever the policy.
MISSED_MS = 24 * 3_600_000
# How many missed moments are caught up with at most.
CATCH_UP = 100
# How many moments that were missed longer ago are counted: a downtime of years must not take long to judge.
COUNTED_LIMIT = 1440
SCHEDULE_LENGTH = 100
# How many of the next moments are remembered: as many as anybody is shown.
SOON = 5
_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LAST_YEAR = 9000
_CRON_ERRORS = (CronSimError, AssertionError, ValueError, OverflowError)
_CRON_FIELDS = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of month", "1-31"),
    ("month", "1-12 or JAN-DEC"),
    ("day of week", "0-7 or SUN-SAT"),
)


class Schedule:
    """The planned moments of a cron expression with five fields, or the one of an ISO date and time."""

    def __init__(self, text: str, timezone: str = "UTC") -> None:
        """Read a schedule and its zone.

        Raises:
            InvalidParams: one of them is none, or the schedule names no moment that ever comes.
        """
        self._zone = zone_named(timezone)
        self._text = text
        self.once: int | None = None
        # The next moments after one: those of a day that comes once in decades are long looked for.
        self._soon: tuple[int, tuple[int, ...]] = 0, ()
        if len(text) > SCHEDULE_LENGTH:
            raise InvalidParams(f"a schedule has at most {SCHEDULE_LENGTH} characters", field="schedule")
        if _DATE.match(text):
            self.once = self._moment(text)
        elif (
            len(text.split()) != len(_CRON_FIELDS)
            or next(self._cron(_EPOCH.replace(tzinfo=None, year=2024)), None) is None
        ):
            raise _invalid_cron(text)

    def after(self, at: int) -> Iterator[int]:
        """The planned moments later than one, in milliseconds, without end unless there is one."""
        if self.once is not None:
            yield from [self.once] * (self.once > at)
            return
        since, soon = self._soon
        if not soon or not since <= at < soon[0]:
            soon = tuple(islice(self._searched(at), SOON))
            self._soon = at, soon
        yield from soon
        if len(soon) == SOON:
            yield from self._searched(soon[-1])

    def _searched(self, at: int) -> Iterator[int]:
        last = at
        for wall in self._cron(self._wall(at)):
            planned = _ms(self._instant(wall))
            if planned > last:
                yield planned
                last = planned

    def _cron(self, wall: datetime) -> Iterator[datetime]:
        # Without a zone the library knows no summer time, and its own rule for it does not apply.
        try:
            yield from CronSim(self._text, wall)
        except _CRON_ERRORS:
            raise _invalid_cron(self._text) from None

    def _moment(self, text: str) -> int:
        try:
            named = datetime.fromisoformat(text)
        except ValueError:
            raise _invalid_moment(text) from None
        if not 1970 < named.year < _LAST_YEAR:
            raise _invalid_moment(text)
        return _ms(self._instant(named) if named.tzinfo is None else named.astimezone(UTC))

    def _wall(self, at: int) -> datetime:
        return (_EPOCH + at * _MILLISECOND).astimezone(self._zone).replace(tzinfo=None)

    def _instant(self, wall: datetime) -> datetime:
        named = wall.replace(tzinfo=self._zone, fold=0)
        instant = named.astimezone(UTC)
        if instant.astimezone(self._zone).replace(tzinfo=None) == wall:
            return instant
        # It lies in a gap. Before the clock goes on it shows less than this, from then on more.
        before, until = instant - timedelta(days=2), instant
        while until - before > timedelta(seconds=1):
            middle = before + (until - before) / 2
            if middle.astimezone(self._zone).replace(tzinfo=None) < wall:
                before = middle
            else:
                until = middle
        return until.replace(microsecond=0)


class Due(Struct, frozen=True):
    """What is to be done about the moments that have come: which fire, and how many were missed.

    `through` is the last of them, and `since` the first that was missed. Of the moments that were missed more
    than a day ago at most COUNTED_LIMIT are counted.
    """

    fires: tuple[int, ...]
    missed: int
    through: int
    since: int = 0


def due_moments(schedule: Schedule, cursor: int, now: int, misfire: Misfire, jitter: Jitter) -> Due:
    """Judge the moments between a cursor and now, as the policy for missed ones has it.

    `skip` fires those that are on time, `once` the newest only, `all` every one. What was missed more than a
    day ago never fires.
    """
    begin = max(cursor, now - MISSED_MS)
    older = list(islice(takewhile(lambda planned: planned <= begin, schedule.after(cursor)), COUNTED_LIMIT))
    come = list(takewhile(lambda planned: planned + jitter.delay(planned) <= now, schedule.after(begin)))
    if not come:
        return Due((), len(older), begin, older[0]) if older else Due((), 0, cursor)
    on_time = [planned for planned in come if planned + jitter.delay(planned) > now - GRACE_MS]
    chosen = {"skip": on_time, "once": come[-1:], "all": come[-CATCH_UP:]}[misfire]
    missed = older + [planned for planned in come if planned not in chosen]
    return Due(tuple(chosen), len(missed), come[-1], missed[0] if missed else 0)


class Jitter(Struct, frozen=True):
    """A delay of up to so many milliseconds after each planned moment: the same at every replica."""

    tenant: str
    ceremony: str
    limit: int

    def delay(self, planned: int) -> int:
        """How long a fire waits."""
        if not self.limit:
            return 0
        return int.from_bytes(_digest(self.tenant, self.ceremony, str(planned))[:8], "big") % (self.limit + 1)


def planned_id(planned: int, *about: str) -> str:
    """The UUIDv7 of what is planned for a moment: whoever computes it has the same."""
    tail = int.from_bytes(_digest(str(planned), *about), "big")
    bits = (planned & (1 << 48) - 1) << 80 | 7 << 76 | (tail >> 68 & 0xFFF) << 64 | 2 << 62
    text = f"{bits | tail & (1 << 62) - 1:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@lru_cache(maxsize=4096)
def schedule_of(text: str, timezone: str) -> Schedule:
    """The schedule of a text and a zone, with what it knows of its next moments.

    Raises:
        InvalidParams: see `Schedule`.
    """
    return Schedule(text, timezone)


@lru_cache(maxsize=1000)
def zone_named(name: str) -> ZoneInfo:
    """The zone of a name such as `Europe/Berlin`.

    Raises:
        InvalidParams: this machine knows no such zone.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidParams(
            f"no time zone {name[:80]!r} is known here; give a name such as Europe/Berlin", field="timezone"
        ) from None


def _digest(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(), digest_size=10).digest()


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // _MILLISECOND


def _invalid_moment(text: str) -> InvalidParams:
    return InvalidParams(
        f"{text!r} is not a date and time of a year after 1970; write it as 2030-01-31T09:00:00",
        field="schedule",
    )


def _invalid_cron(text: str) -> InvalidParams:
    """Return the error of a cron expression, which names the field that is wrong."""
    values = text.split()
    if len(values) != len(_CRON_FIELDS):
        names = ", ".join(name for name, _ in _CRON_FIELDS)
        return InvalidParams(
            f"{text!r} has {len(values)} of the 5 fields of cron ({names}); write for example 0 9 * * 1-5, "
            "or one date and time, such as 2030-01-31T09:00:00",
            field="schedule",
        )
    for place, ((name, accepted), value) in enumerate(zip(_CRON_FIELDS, values, strict=True)):
        alone = ["*"] * len(_CRON_FIELDS)
        alone[place] = value
        try:
            CronSim(" ".join(alone), _EPOCH)
        except _CRON_ERRORS:
            text = f"the {name} {value!r} is not valid; it accepts {accepted}, and forms such as * or 1,3"
            return InvalidParams(text, field="schedule")
    text = f"no date fits: month {values[3]!r} has no day of month {values[2]!r}"
    return InvalidParams(text, field="schedule")
