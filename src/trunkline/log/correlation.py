"""The correlation ID of a task, as its first event records it."""

from __future__ import annotations

from typing import cast

from trunkline.log.events import DISPATCH_KEY
from trunkline.wire.types import Correlation, Metadata


def correlation_id_of(correlation: Correlation | None, metadata: Metadata | None) -> str:
    """Return the correlation ID that a task was opened with, or an empty string.

    It comes from the headers of the request, or from the dispatch that the metadata of the request records.
    """
    if correlation is not None and correlation.correlation_id:
        return correlation.correlation_id
    dispatched = (metadata or {}).get(DISPATCH_KEY)
    given = cast("Metadata", dispatched).get("correlationId") if isinstance(dispatched, dict) else None
    return given if isinstance(given, str) else ""
