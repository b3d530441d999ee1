"""Schemas of strangers, compiled and checked in the worker processes that filters use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UnsetType

from trunkline.flow.definition.checks import LONGEST_FAULT, SchemaCheck, is_small, schema_fault
from trunkline.flow.definition.diagnostics import Diagnostic
from trunkline.flow.definition.read import schemas_of
from trunkline.flow.jq.pool import (
    BudgetSpent,
    FilterFailed,
    WorkerBudget,
    WorkerBusy,
    WorkerPool,
    encode_value,
)


class SchemaChecker:
    """Compiles schemas and checks values, in this process if that costs next to nothing."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    async def find_fault(
        self, check: SchemaCheck, value: object, tenant: str = "", budget: WorkerBudget | None = None
    ) -> str | None:
        """Return where a value does not fit and why, or None if it fits.

        A check that takes too long or too much memory is a fault too.

        Raises:
            BudgetSpent: the run has used its time in workers.
        """
        fault = check.find_fault(value)
        if not isinstance(fault, UnsetType):
            return fault
        try:
            async with self._pool.paced(tenant):
                root = encode_value(value, self._pool.limits.root)
            found = await self._ask(b"s", check.text, root, tenant, budget)
        except BudgetSpent:
            raise
        except FilterFailed as error:
            return f"/: it cannot be checked against its schema: {error}"[:LONGEST_FAULT]
        return found[0][:LONGEST_FAULT] if found else None

    async def find_refused(self, document: dict[str, Any], tenant: str = "") -> Diagnostic | None:
        """Return the error of the first schema of a definition that is refused, or None if all compile.

        Small ones were compiled when the definition was read.

        Raises:
            WorkerBusy: no worker was free in time.
        """
        costly = {place: msgspec.Raw(text) for place, text in _encoded(document) if not is_small(text)}
        if not costly:
            return None
        try:
            found = await self._ask(b"S", msgspec.json.encode([*costly.values()]), b"null", tenant)
        except WorkerBusy:
            raise
        except FilterFailed as error:
            return schema_fault(next(iter(costly)), f"this schema or a later one does not compile: {error}")
        if not found:
            return None
        place: int = found[0]
        return schema_fault([*costly][place], f"this is no JSON Schema: {found[1]}"[:LONGEST_FAULT])

    async def _ask(
        self, kind: bytes, text: bytes, root: bytes, tenant: str, budget: WorkerBudget | None = None
    ) -> list[Any]:
        kind, body = await self._pool.ask((kind, text, root), tenant, budget)
        if kind != b"=":
            raise FilterFailed(body.decode("utf-8", "replace"))
        return msgspec.json.decode(body, type=list[Any])


def _encoded(document: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    for place, schema in schemas_of(document):
        yield place, msgspec.json.encode(schema)
