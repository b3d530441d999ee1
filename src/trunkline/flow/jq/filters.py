"""Filters that definitions bring along, evaluated where one that never ends costs nobody else anything."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from trunkline.flow.jq.paths import is_plain, quick_value
from trunkline.flow.jq.pool import FilterFailed, FilterLimits, WorkerPool

# What `quick` gives where only jq can tell.
MISSING = UNSET


class Filters:
    """Evaluates filters. Its worker processes are started when they are needed, and ended by `close`."""

    def __init__(self, limits: FilterLimits | None = None) -> None:
        self._limits = limits or FilterLimits()
        self._pool = WorkerPool(self._limits)

    async def value(self, program: str, root: object, tenant: str = "") -> object:
        """What a filter makes of a value: its output; None where it has none, a list where it has several.

        Filters of different tenants take turns.

        Raises:
            FilterFailed: it does not compile, fails, or takes too long or too much.
        """
        found = self.quick(program, root)
        if not isinstance(found, UnsetType):
            return found
        outputs = await self._outputs(b"=", program, _encoded(root, self._limits.root), tenant)
        return None if not outputs else outputs[0] if len(outputs) == 1 else outputs

    def quick(self, program: str, root: object) -> object | UnsetType:
        """The output of a plain filter, evaluated here and at once; `MISSING` where only jq can tell.

        It may be a part of the value itself, not a copy.
        """
        return quick_value(program, root)

    async def wrong(self, program: str, tenant: str = "") -> str | None:
        """Return why a filter does not compile, or None if it does."""
        if is_plain(program):
            return None
        try:
            await self._outputs(b"?", program, b"null", tenant)
        except FilterFailed as error:
            return str(error)
        return None

    async def close(self) -> None:
        """End all workers. Whoever still waits for a value fails."""
        await self._pool.close()

    async def _outputs(self, kind: bytes, program: str, root: bytes, tenant: str = "") -> list[object]:
        if len(program) > self._limits.program or "\0" in program:
            raise FilterFailed(f"a filter has at most {self._limits.program} characters, and no NUL")
        kind, body = await self._pool.ask(kind, program.encode("utf-8", "replace"), root, tenant)
        if kind != b"=":
            raise FilterFailed(body.decode("utf-8", "replace")[:_LONGEST])
        try:
            return msgspec.json.decode(body, type=list[object])
        except (msgspec.DecodeError, RecursionError) as error:
            raise FilterFailed(f"what it gives is no JSON: {error}") from None


# What a failure quotes of the words of a filter.
_LONGEST = 1000


def _encoded(root: object, limit: int) -> bytes:
    try:
        encoded = msgspec.json.encode(root)
    except (ValueError, TypeError, RecursionError) as error:
        raise FilterFailed(f"the value is no JSON: {error}") from None
    if len(encoded) > limit:
        raise FilterFailed(f"the value has more than {limit >> 20} MiB")
    return encoded
