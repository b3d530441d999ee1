"""Filters that definitions bring along, evaluated where one that never ends costs nobody else anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from trunkline.flow.jq.paths import is_plain, quick_value
from trunkline.flow.jq.pool import FilterFailed, WorkerBudget, WorkerPool, encode_value

P = ParamSpec("P")
Made = TypeVar("Made")
# What `quick` gives where only jq can tell.
MISSING = UNSET


class Filters:
    """Evaluates filters, in the worker processes of a pool unless they are plain."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    async def value(
        self, program: str, root: object, tenant: str = "", budget: WorkerBudget | None = None
    ) -> object:
        """Return the output of a filter for a value: None if it has none, a list if it has several.

        Filters of different tenants take turns.

        Raises:
            BudgetSpent: the run has used its time in workers.
            FilterFailed: it does not compile, fails, or takes too long or too much.
        """
        found = await self._count(tenant, self.quick, program, root)
        if not isinstance(found, UnsetType):
            return found
        async with self._pool.paced(tenant):
            value = encode_value(root, self._pool.limits.root)
        outputs = await self._outputs(b"=", program, value, tenant, budget)
        return None if not outputs else outputs[0] if len(outputs) == 1 else outputs

    def quick(self, program: str, root: object) -> object | UnsetType:
        """The output of a plain filter, evaluated here and at once; `MISSING` where only jq can tell.

        It may be a part of the value itself, not a copy.
        """
        return quick_value(program, root)

    async def wrong(self, program: str, tenant: str = "") -> str | None:
        """Return why a filter does not compile, or None if it does."""
        if await self._count(tenant, is_plain, program):
            return None
        try:
            await self._outputs(b"?", program, b"null", tenant)
        except FilterFailed as error:
            return str(error)
        return None

    async def _count(self, tenant: str, work: Callable[P, Made], *given: P.args, **named: P.kwargs) -> Made:
        """Do short work, and count it as work of a tenant on the event loop."""
        clock = asyncio.get_running_loop().time
        began = clock()
        made = work(*given, **named)
        await self._pool.pace(tenant, clock() - began)
        return made

    async def _outputs(
        self, kind: bytes, program: str, root: bytes, tenant: str = "", budget: WorkerBudget | None = None
    ) -> list[object]:
        longest = self._pool.limits.program
        if len(program) > longest or "\0" in program:
            raise FilterFailed(f"a filter has at most {longest} characters, and no NUL")
        kind, body = await self._pool.ask((kind, program.encode("utf-8", "replace"), root), tenant, budget)
        if kind != b"=":
            raise FilterFailed(body.decode("utf-8", "replace")[:_LONGEST])
        try:
            async with self._pool.paced(tenant):
                return msgspec.json.decode(body, type=list[object])
        except (msgspec.DecodeError, RecursionError) as error:
            raise FilterFailed(f"what it gives is no JSON: {error}") from None


# What a failure quotes of the words of a filter.
_LONGEST = 1000
