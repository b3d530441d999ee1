"""What tenants have spent in a day, with the model calls that the health records do not contain yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from trunkline.errors import StoreError
from trunkline.run.spending import ModelSpending

log = logging.getLogger("trunkline.gateway")


class RecordedSpending(Protocol):
    """The costs of the last day, as the store has them."""

    def spent(self, tenant: str, principal: str = "") -> tuple[float, int]:
        """Return what a tenant or one principal of it spent, in dollars and in tokens."""
        ...

    async def read_spending(self) -> None:
        """Have `spent` contain every task that ended before this call."""
        ...

    async def fresh(self) -> object:
        """Have `spent` contain every model call that was recorded before this call."""
        ...


class _OpenCall(Struct, frozen=True, eq=False):
    tenant: str
    principal: str
    spent: ModelSpending


class DaySpending:
    """The spending of the last day, exact for the calls of this process.

    A call counts from its end on. It counts as recorded as soon as the records contain it.
    """

    def __init__(self, records: RecordedSpending) -> None:
        self._records = records
        self._open: dict[_OpenCall, None] = {}
        self._written: list[_OpenCall] = []
        self._settling: asyncio.Task[None] | None = None

    def spent(self, tenant: str, principal: str = "") -> tuple[float, int]:
        """Return what a tenant or one principal of it spent, in dollars and in tokens."""
        cost, tokens = self._records.spent(tenant, principal)
        for one in self._open:
            if one.tenant == tenant and principal in ("", one.principal):
                cost += one.spent.cost_usd
                tokens += one.spent.input_tokens + one.spent.output_tokens
        return cost, tokens

    async def refresh(self) -> None:
        """Count every task that ended before this call.

        Raises:
            StoreError: the store does not answer.
        """
        await self._records.read_spending()

    @contextmanager
    def counting(self, tenant: str, principal: str, spent: ModelSpending) -> Generator[None]:
        """Count a call while its record is written, and until the records contain it."""
        call = _OpenCall(tenant, principal, spent)
        self._open[call] = None
        try:
            yield
        finally:
            self._written.append(call)
            if self._settling is None or self._settling.done():
                self._settling = asyncio.get_running_loop().create_task(self._settle())

    async def close(self) -> None:
        """Stop reading on."""
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.gather(self._settling, return_exceptions=True)

    async def _settle(self) -> None:
        while self._written:
            written, self._written = self._written, []
            try:
                await self._records.fresh()
            except StoreError as error:
                log.warning("quota.unread error=%s", error)
            for one in written:
                del self._open[one]
