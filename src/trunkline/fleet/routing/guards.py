"""Cooldowns and concurrency limits of agents, and the alarm about many equal refusals.

Both are read from the store, so that all replicas follow the same ones. A cooldown is a key that is recorded
in the transaction of the task that starts it: a crash leaves both behind, or neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

from msgspec.structs import replace

from trunkline.errors import Duplicate
from trunkline.fleet.routing.choose import Standing
from trunkline.store.parts import Heads
from trunkline.store.records import Dedup, Where
from trunkline.wire.types import TaskState

# As many equal refusals within the window are a storm, and it is told once in so long.
STORM, WINDOW_MS, QUIET_MS = 10, 600_000, 1_800_000
# Size limit of the counters of refusals, by kind.
KINDS = 1000
# How long the start of a cooldown is kept: another agent may have a longer one for the same skill.
KEPT_MS = 24 * 3_600_000
_IN_WORK = (TaskState.SUBMITTED, TaskState.WORKING)


class Guards:
    """The guards of one store."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads

    async def judge(
        self, tenant: str, skill: str, subject: str, standings: Sequence[Standing], now: int
    ) -> list[Standing]:
        """The same agents; those that may not have the work now are excluded, with the reason."""
        last = 0
        if any([one.cooldown_s for one in standings]):
            last = _start(await self._heads.duplicate(tenant, _cooldown_key(skill, subject)))
        return [await self._judged(tenant, one, last, now) for one in standings]

    async def _judged(self, tenant: str, one: Standing, last: int, now: int) -> Standing:
        if one.excluded:
            return one
        left = _left(one, last, now)
        if left:
            return replace(one, excluded=f"it cools down for {left / 1000:.1f} s more", cools=True)
        busy = await self.busy(tenant, one)
        return replace(one, excluded=busy, is_passing=True) if busy else one

    async def busy(self, tenant: str, one: Standing) -> str:
        """Return why an agent has no room for another task, or an empty string."""
        if one.concurrency is None:
            return ""
        count = await self._in_work(tenant, one.agent)
        full = f"{count} tasks are in work, and its concurrency is that many"
        return full if count >= one.concurrency else ""

    async def _in_work(self, tenant: str, agent: str) -> int:
        wheres = [Where(agents=(agent,), state=state) for state in _IN_WORK]
        return sum([await self._heads.count(tenant, where) for where in wheres])

    async def claim(self, tenant: str, skill: str, subject: str, winner: Standing, now: int) -> Dedup | None:
        """Return the key that starts a cooldown in the transaction of a task, or None if one is on."""
        key = _cooldown_key(skill, subject)
        known = await self._heads.duplicate(tenant, key)
        if _left(winner, _start(known), now):
            return None
        kept_ms = max(KEPT_MS, round(winner.cooldown_s * 1000))
        return Dedup(key, now.to_bytes(8, "big"), kept_ms, None if known is None else known.digest)


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


def _cooldown_key(skill: str, subject: str) -> str:
    # No caller's key starts like this: those start with the name of a principal.
    return f"\x1fcooldown\x1f{_digest(skill)}\x1f{_digest(subject)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _start(known: Duplicate | None) -> int:
    return 0 if known is None else int.from_bytes(known.digest, "big")
