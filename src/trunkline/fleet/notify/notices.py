"""The notices of a store: made from the log of tasks and from alerts, once, whichever process dies when.

There is a notice while its question is open. A page of the log says only which tasks to look at: what is
open is asked of the task itself, so that hearing of a page twice changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from trunkline.errors import Conflict, StoreError
from trunkline.fleet.health.alerts import FleetAlert
from trunkline.fleet.notify.notice import Notice
from trunkline.log.events import FollowUp, QuestionClosed, Replied, Status
from trunkline.log.fold import State
from trunkline.store.base import Store
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.mirror import Mirror
from trunkline.store.records import TailAppend
from trunkline.wire.types import INTERRUPTED

log = logging.getLogger("trunkline.fleet")
KIND = "notice"
# How long an alert is kept after it was raised: longer than all attempts to tell of it.
ALERT_KEPT_MS = 4 * 3600 * 1000
_TRIES = 20
BATCH = list[tuple[str, str]]
_decode = msgspec.msgpack.Decoder(BATCH).decode
# After these a question may be closed.
ANSWERS = Status | FollowUp | QuestionClosed | Replied
Key = tuple[str, str]
NOTICES: DocumentKind[Notice] = DocumentKind(KIND, json_decoder(Notice))
Revise = Callable[[Notice | None], Notice | None]


class NoticeStore:
    """Listens to the whole log; `asking` returns the state of a task that asks people something, or None."""

    is_repeatable = True

    def __init__(
        self,
        store: Store,
        asking: Callable[[str, str], Awaitable[State | None]],
        changed: Callable[[], None] = lambda: None,
        *,
        caller: Callable[[str, State], str] = lambda tenant, state: "",
    ) -> None:
        """Take what is called when a notice changes, and what gives the agent that a task was asked by."""
        self._store = store
        self._asking = asking
        self._caller = caller
        self.mirror = Mirror(store.docs, NOTICES, lambda _tenant, _id, _notice: changed())

    @property
    def notices(self) -> list[tuple[Key, Notice]]:
        """The notices by tenant and id, as this process knows them."""
        return [(key, found.value) for key, found in self.mirror.documents.items()]

    async def take(self, page: Sequence[TailAppend]) -> list[Key]:
        """The tasks of a page that ask something, or have asked what there is a notice of."""
        await self.mirror.refresh()
        found: dict[Key, None] = {}
        for append in page:
            key = append.tenant, append.task_id
            for event in append.events:
                asks = isinstance(event, Status) and event.state in INTERRUPTED
                ends = isinstance(event, ANSWERS) and key in self.mirror.documents
                if asks or ends:
                    found[key] = None
        return list(found)

    async def settle(self, batch: bytes, number: int) -> None:
        """Have a notice of each of these tasks that asks something, and none of the others."""
        del number
        await self.mirror.refresh()
        for tenant, task_id in _decode(batch):
            await self.look(tenant, task_id)

    async def look(self, tenant: str, task_id: str) -> State | None:
        """Have a notice of a task if it asks something, else none; gives what it asks."""
        try:
            state = await self._asking(tenant, task_id)
        except StoreError as error:
            if error.damaged_task != task_id:
                raise
            state = None
        if state is None or state.question is None:
            if self.mirror.rev(tenant, task_id):
                await self.forget(tenant, task_id)
            return None
        caller = self._caller(tenant, state)
        made = Notice(at=state.status_at, question=state.question.message_id, caller=caller)
        await self.change(
            tenant, task_id, lambda known: made if known is None or known.question != made.question else None
        )
        return state

    async def raise_alert(self, tenant: str, alert: FleetAlert, number: int, at: int) -> None:
        """Have a notice of an alert; of one number there is one, whoever raises it."""
        made = Notice(at=at, alert=alert)
        doc_id = f"alert-{alert.kind}-{number}"
        await self.change(tenant, doc_id, lambda known: made if known is None else None)

    async def sweep(self, now: int) -> None:
        """Update what nobody may have heard of: closed questions, old alerts, and damaged notices."""
        for tenant, doc_id in list(self.mirror.damaged):
            # A damaged notice of a question that is still open is replaced; any other is removed.
            await self.look(tenant, doc_id)
        for (tenant, doc_id), notice in self.notices:
            if notice.alert is None:
                await self.look(tenant, doc_id)
            elif notice.at + ALERT_KEPT_MS < now:
                await self.forget(tenant, doc_id)

    async def change(self, tenant: str, doc_id: str, revise: Revise) -> bool:
        """Put what `revise` makes of a notice in its place; whether it made anything.

        Raises:
            StoreError: it was not written.
        """
        for _ in range(_TRIES):
            known = self.mirror.documents.get((tenant, doc_id))
            made = revise(None if known is None else known.value)
            if made is None:
                return False
            rev = self.mirror.rev(tenant, doc_id)
            try:
                await self.mirror.put(tenant, doc_id, msgspec.json.encode(made), expected_rev=rev)
            except Conflict:
                await self.mirror.refresh()
                continue
            return True
        raise StoreError(f"the notice {doc_id} is changed by others all the time")

    async def forget(self, tenant: str, doc_id: str) -> None:
        """Remove a notice that nobody needs any more."""
        await self._store.docs.delete(tenant, KIND, doc_id)
        await self.mirror.refresh()
