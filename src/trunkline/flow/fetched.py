"""Workflows that others refer to by an address: fetched by the rule of their tenant, then read like all."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from trunkline.errors import FlowRefused, Unreachable
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.definitions import LARGEST, Definitions, Loaded, beside
from trunkline.flow.engine.parts import WorkflowRefs, is_address
from trunkline.net.egress import shown
from trunkline.net.fetch import FetcherOf
from trunkline.wire.decode import DECODE_ERRORS

_HEADERS = (("accept", "application/json"),)


class FetchedWorkflows:
    """References that somebody knows, and addresses where nobody does; nothing is kept of what was fetched.

    A run goes on with the definition that it began with, and `version_pin` says which one that must be.
    """

    def __init__(
        self,
        known: WorkflowRefs,
        definitions: Definitions,
        fetcher_of: FetcherOf,
        signatures: SignaturePolicy,
    ) -> None:
        self._known = known
        self._definitions = definitions
        self._fetcher_of = fetcher_of
        self._signatures = signatures

    async def resolve(self, tenant: str, ref: str, *, by_operator: bool = False) -> Loaded:
        """See `WorkflowRefs`."""
        try:
            return await self._known.resolve(tenant, ref, by_operator=by_operator)
        except FlowRefused as unknown:
            if unknown.code != "WORKFLOW_NOT_FOUND" or not is_address(ref):
                raise
        size, document = await self._fetched(tenant, ref)
        await beside(size, self._signatures.check, document)
        return await self._definitions.load(document)

    async def _fetched(self, tenant: str, ref: str) -> tuple[int, dict[str, Any]]:
        try:
            answer = await self._fetcher_of(tenant).get(ref, headers=_HEADERS, limit=LARGEST)
        except Unreachable as error:
            raise _missing(ref, str(error)) from None
        if not 200 <= answer.status < 300:
            raise _missing(ref, f"HTTP {answer.status}")
        try:
            found = msgspec.json.decode(answer.body)
        except DECODE_ERRORS:
            raise _missing(ref, "it is not JSON") from None
        if not isinstance(found, dict):
            raise _missing(ref, "it is no object")
        return len(answer.body), cast("dict[str, Any]", found)


def _missing(ref: str, reason: str) -> FlowRefused:
    return FlowRefused("WORKFLOW_NOT_FOUND", f"there is no workflow to be had at {shown(ref)}: {reason}")
