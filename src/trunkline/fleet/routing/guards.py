"""What keeps work from an agent for a while: too much in work, or the same again too soon; and the alarm.

Cooldowns and what is in work are read in the store, so that all replicas follow the same ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from trunkline.fleet.journal import Journal, Journals, read_state
from trunkline.fleet.routing.choose import Standing
from trunkline.store.parts import Heads
from trunkline.store.records import Where
from trunkline.wire.types import TaskState

# As many equal refusals within the window are a storm, and it is told once in so long.
STORM, WINDOW_MS, QUIET_MS = 10, 600_000, 1_800_000
# How many subjects of a skill, and how many kinds of refusals, are kept in mind.
SUBJECTS, KINDS = 1000, 1000
_IN_WORK = (TaskState.SUBMITTED, TaskState.WORKING)


class Guards:
    """The guards of one store."""

    def __init__(self, heads: Heads, journals: Journals) -> None:
        self._heads = heads
        self._journals = journals

    async def judge(
        self, tenant: str, skill: str, subject: str, standings: Sequence[Standing], now: int
    ) -> list[Standing]:
        """The same agents; those that may not have the work now are excluded, with the reason."""
        last = 0
        if any([one.cooldown_s for one in standings]):
            journal = await self._journals.read(tenant, _subject_of(skill))
            last = _read(journal).get(_key(subject), 0)
        return [await self._judged(tenant, one, last, now) for one in standings]

    async def _judged(self, tenant: str, one: Standing, last: int, now: int) -> Standing:
        if one.excluded:
            return one
        left = _left(one, last, now)
        if left:
            return replace(one, excluded=f"it cools down for {left / 1000:.1f} s more", cools=True)
        if one.concurrency is not None and (count := await self._in_work(tenant, one.agent)) >= 0:
            if count >= one.concurrency:
                return replace(one, excluded=f"{count} tasks are in work, and its concurrency is that many")
        return one

    async def _in_work(self, tenant: str, agent: str) -> int:
        wheres = [Where(agents=(agent,), state=state) for state in _IN_WORK]
        return sum([await self._heads.count(tenant, where) for where in wheres])

    async def take(self, tenant: str, skill: str, subject: str, winner: Standing, now: int) -> bool:
        """Have the cooldown of a skill and subject begin; False if another replica was faster."""
        if not winner.cooldown_s:
            return True
        is_taken = False

        def revise(journal: Journal) -> Journal | None:
            nonlocal is_taken
            known = _read(journal)
            is_taken = not _left(winner, known.get(_key(subject), 0), now)
            if not is_taken:
                return None
            known.pop(_key(subject), None)
            known[_key(subject)] = now
            newest = dict([*known.items()][-SUBJECTS:])
            return replace(journal, state=Raw(msgspec.json.encode(newest)))

        await self._journals.change(tenant, _subject_of(skill), revise)
        return is_taken


class Storm:
    """Counts equal refusals; of many in a short time one alarm is made, and no other for a while."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], deque[int]] = {}
        self._told: dict[tuple[str, ...], int] = {}

    def count(self, kind: tuple[str, ...], now: int) -> bool:
        """Whether this refusal makes an alarm."""
        seen = self._seen.pop(kind, None) or deque[int](maxlen=STORM)
        # The kind that was last refused the longest ago is forgotten first.
        self._seen[kind] = seen
        while len(self._seen) > KINDS:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            self._told.pop(oldest, None)
        seen.append(now)
        is_storm = len(seen) == STORM and seen[0] > now - WINDOW_MS
        if not is_storm or abs(now - self._told.get(kind, 0)) < QUIET_MS:
            return False
        self._told[kind] = now
        return True


def _left(one: Standing, last: int, now: int) -> int:
    """How much is left of a cooldown; nothing if it begins much later, by a clock that was ahead then."""
    return max(0, round(one.cooldown_s * 1000) - abs(now - last))


def _subject_of(skill: str) -> str:
    # A skill is named by a caller, and the name of a journal is short.
    return f"cooldown:{_key(skill)}"


def _key(text: str) -> str:
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _read(journal: Journal) -> dict[str, int]:
    return read_state(journal, dict[str, int], {})
