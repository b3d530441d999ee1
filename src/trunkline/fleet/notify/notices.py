"""The notices of a store: made from the log of tasks and from alerts, once, whichever process dies when.

There is a notice while its question is open. A page of the log says only which tasks to look at: what is
open is asked of the task itself, so that hearing of a page twice changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec.structs import replace

from trunkline.errors import Conflict, StoreError
from trunkline.fleet.health.alerts import FleetAlert
from trunkline.fleet.notify.notice import Notice
from trunkline.log.events import FollowUp, QuestionClosed, Replied, Status
from trunkline.log.fold import State
from trunkline.store.base import Store
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.mirror import Mirror
from trunkline.store.records import TailAppend
from trunkline.wire.types import INTERRUPTED, TERMINAL

log = logging.getLogger("trunkline.fleet")
KIND = "notice"
# How long an alert is kept after it was raised: longer than all attempts to tell of it.
ALERT_KEPT_MS = 4 * 3600 * 1000
# How long the result of a call is kept after it was due, or after its task was not found.
RESULT_KEPT_MS = ALERT_KEPT_MS
_CALL = "call-"
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
        state_of: Callable[[str, str], Awaitable[State | None]] | None = None,
    ) -> None:
        """Take what is called when a notice changes, and what returns the agent that requested a task.

        `state_of` returns the state of any task, for the results of calls.
        """
        self._state_of = state_of or asking
        self._store = store
        self._asking = asking
        self._caller = caller
        self.mirror = Mirror(store.docs, NOTICES, lambda _tenant, _id, _notice: changed())

    @property
    def notices(self) -> list[tuple[Key, Notice]]:
        """The notices by tenant and id, as this process knows them."""
        return [(key, found.value) for key, found in self.mirror.documents.items()]

    async def take(self, page: Sequence[TailAppend]) -> list[Key]:
        """Return the tasks of a page whose notice may have to be made, changed or removed."""
        await self.mirror.refresh()
        found: dict[Key, None] = {}
        for append in page:
            key = append.tenant, append.task_id
            for event in append.events:
                asks = isinstance(event, Status) and event.state in INTERRUPTED
                ends = isinstance(event, ANSWERS) and key in self.mirror.documents
                if asks or ends:
                    found[key] = None
                is_over = isinstance(event, Replied) or (
                    isinstance(event, Status) and event.state in TERMINAL
                )
                if is_over and (call := (key[0], _CALL + key[1])) in self.mirror.documents:
                    found[call] = None
        return list(found)

    async def settle(self, batch: bytes, number: int) -> None:
        """Bring the notices of these tasks up to date."""
        del number
        await self.mirror.refresh()
        for tenant, doc_id in _decode(batch):
            if doc_id.startswith(_CALL):
                await self.read_result(tenant, doc_id)
            else:
                await self.look(tenant, doc_id)

    async def look(self, tenant: str, task_id: str) -> State | None:
        """Make or remove the notice of a task; return the state of the task if it asks something."""
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
        of_call = self.mirror.documents.get((tenant, _CALL + task_id))
        made = Notice(
            at=state.status_at,
            question=state.question.message_id,
            caller=caller,
            call="" if of_call is None else of_call.value.call,
        )
        await self.change(
            tenant, task_id, lambda known: made if known is None or known.question != made.question else None
        )
        return state

    async def raise_alert(self, tenant: str, alert: FleetAlert, number: int, at: int) -> None:
        """Have a notice of an alert; of one number there is one, whoever raises it."""
        made = Notice(at=at, alert=alert)
        doc_id = f"alert-{alert.kind}-{number}"
        await self.change(tenant, doc_id, lambda known: made if known is None else None)

    async def add_call(self, tenant: str, task_id: str, receiver: str, now: int) -> None:
        """Add a notice that waits for the end of a task, for the channel that requests it."""
        made = Notice(at=now, call=receiver)
        await self.change(tenant, _CALL + task_id, lambda known: made if known is None else None)

    async def forget_call(self, tenant: str, task_id: str) -> None:
        """Remove the notice that waits for the end of a task."""
        await self.forget(tenant, _CALL + task_id)

    async def read_result(self, tenant: str, doc_id: str) -> State | None:
        """Mark the notice of a call as due once its task is over; return the state of the task, if any."""
        task_id = doc_id.removeprefix(_CALL)
        try:
            state = await self._state_of(tenant, task_id)
        except StoreError as error:
            if error.damaged_task != task_id:
                raise
            return None
        if state is not None and state.over:
            at = state.status_at
            await self.change(
                tenant,
                doc_id,
                lambda known: None if known is None or known.ended_at else replace(known, ended_at=at),
            )
        return state

    async def sweep(self, now: int) -> None:
        """Update notices whose end may have been missed: of questions, calls and alerts, and damaged ones."""
        for tenant, doc_id in list(self.mirror.damaged):
            # A damaged notice of a question that is still open is replaced; any other is removed.
            await self.look(tenant, doc_id)
        for (tenant, doc_id), notice in self.notices:
            if doc_id.startswith(_CALL):
                state = await self.read_result(tenant, doc_id)
                is_open = state is not None and not state.over
                if not is_open and max(notice.at, notice.ended_at) + RESULT_KEPT_MS < now:
                    await self.forget(tenant, doc_id)
            elif notice.alert is None:
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
