"""Every kind of document that a store may have; only these are checked and repaired."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from trunkline.auth.browser_sessions import ENDED_SESSIONS
from trunkline.auth.key_store import API_KEYS
from trunkline.auth.signing import SIGNING_KEYS
from trunkline.fleet.catalogue.documents import ENTRIES, OVERRIDES
from trunkline.fleet.ceremonies.ceremony_store import CEREMONIES
from trunkline.fleet.ceremonies.runs import Progress
from trunkline.fleet.health.alerts import FLEET_ALERTS
from trunkline.fleet.health.health_records import HEALTH
from trunkline.fleet.health.recorder import BATCH as HEALTH_BATCH
from trunkline.fleet.journal import JOURNALS, Journal
from trunkline.fleet.notify.notices import BATCH as NOTICE_BATCH
from trunkline.fleet.notify.notices import NOTICES
from trunkline.fleet.notify.task_updates import TASK_UPDATES
from trunkline.flow.definition.document import WORKFLOW_IDS, WORKFLOWS
from trunkline.gateway.audit import AUDIT
from trunkline.gateway.model.notes import NOTES, TODOS
from trunkline.gateway.tenants import TENANTS
from trunkline.run.retention import PRUNES
from trunkline.store.documents import DocumentKind
from trunkline.store.tail import TAIL_CURSORS, batch_of

# What journals keep for their subjects, by the first part of the subject.
_STATES: Mapping[str, Any] = {
    "ceremony": Progress | None,
    "cooldown": dict[str, int] | None,
    "agent": dict[str, Any] | None,
}
# What readers of the log keep until it has had its effect, by their names.
_BATCHES: Mapping[str, Any] = {"health": HEALTH_BATCH, "notices": NOTICE_BATCH}


def _decode_journal(subject: str, body: bytes) -> Journal:
    journal = JOURNALS.decode(subject, body)
    msgspec.json.decode(journal.state, type=_STATES.get(subject.partition(":")[0], Any))
    return journal


def _decode_cursor(name: str, body: bytes) -> object:
    if batch := batch_of(body):
        msgspec.msgpack.decode(batch, type=_BATCHES.get(name, Any))
    return TAIL_CURSORS.decode(name, body)


def _decoding(kind: DocumentKind[Any], decode: Callable[[str, bytes], Any]) -> DocumentKind[Any]:
    return replace(kind, decode=decode)


DOCUMENT_KINDS: Mapping[str, DocumentKind[Any]] = {
    kind.name: kind
    for kind in (
        API_KEYS,
        AUDIT,
        CEREMONIES,
        ENDED_SESSIONS,
        ENTRIES,
        FLEET_ALERTS,
        HEALTH,
        _decoding(JOURNALS, _decode_journal),
        NOTES,
        NOTICES,
        OVERRIDES,
        PRUNES,
        SIGNING_KEYS,
        _decoding(TAIL_CURSORS, _decode_cursor),
        TASK_UPDATES,
        TENANTS,
        TODOS,
        WORKFLOWS,
        WORKFLOW_IDS,
    )
}
