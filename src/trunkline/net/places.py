"""Places for what goes on at once, which tenants share: whoever wants many keeps only itself waiting."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class TenantPlaces:
    """So many places, and at most so many of them for `each` tenant; those who wait take turns by tenant.

    "" is nobody's in particular, and has no bound of its own.
    """

    def __init__(self, count: int, each: int = 0) -> None:
        """Take how many there are, and how many one tenant may hold; 0 is all."""
        self._free = count
        self._each = each or count
        self._held: Counter[str] = Counter()
        # By tenant, whoever has waited for its turn the longest first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def has_room(self, tenant: str) -> bool:
        """Whether a tenant would have to wait for nobody."""
        return self._free > 0 and (not tenant or self._held[tenant] < self._each)

    def waiting(self, tenant: str = "") -> int:
        """Return how many of a tenant wait for their turn."""
        return len(self._waiting.get(tenant, ()))

    @asynccontextmanager
    async def held(self, tenant: str = "") -> AsyncGenerator[None]:
        """Hold a place of a tenant, when its turn has come."""
        await self.take(tenant)
        try:
            yield
        finally:
            self.leave(tenant)

    async def take(self, tenant: str = "") -> None:
        """Take a place for a tenant when its turn has come, until `leave`."""
        if self.has_room(tenant):
            self._hold(tenant)
            return
        turn = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(tenant, deque())
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    waiting.remove(turn)
            else:
                # It was given in the moment in which its owner gave up.
                self.leave(tenant)
            raise

    def leave(self, tenant: str = "") -> None:
        """Give a place back, to whoever's turn it is."""
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        for one in [*self._waiting]:
            if not self._free:
                return
            if not self.has_room(one):
                continue
            waiting = self._waiting.pop(one)
            while waiting and (turn := waiting.popleft()):
                if not turn.done():
                    self._hold(one)
                    turn.set_result(None)
                    break
            if waiting:
                # Behind the others.
                self._waiting[one] = waiting

    def _hold(self, tenant: str) -> None:
        self._free -= 1
        self._held[tenant] += 1
