"""What becomes of a tenant that is disabled or deleted: streams end, work is cancelled, its data goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from trunkline.auth.identity import LAST_S
from trunkline.clock import wait_event
from trunkline.errors import Refused, StoreError
from trunkline.gateway.tenants import Tenant, TenantBook
from trunkline.run.runner import Runner
from trunkline.store.records import Where
from trunkline.wire.types import TaskState

log = logging.getLogger("trunkline.gateway")
BY = "operator"
# While a tenant is disabled, work that began in the moment of it is looked for this often.
LOOK_S = 5.0
_PAGE = 50
_OPEN = (
    TaskState.SUBMITTED,
    TaskState.WORKING,
    TaskState.INPUT_REQUIRED,
    TaskState.AUTH_REQUIRED,
)


class TenantClosing:
    """Follows the tenants of a book; `look` has every stream see now whether its reader is still let in."""

    def __init__(
        self,
        book: TenantBook,
        runner: Runner,
        *,
        kept_s: float,
        look: Callable[[], None],
        release: Callable[[str], Awaitable[bool]],
        emptied: Callable[[str], Awaitable[None]],
        remove_files: Callable[[str], None] = lambda tenant: None,
        named: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Take how long what ended is kept (0: for ever).

        `release` lets go of the connections of a deleted tenant and says whether it could; `remove_files` is
        called in a thread, at every process, when the data of a tenant go, and `emptied` when its documents
        are gone, of which this process may have copies. Of a tenant that is `named` it stays known that it
        was deleted: whoever names it would let it in again.
        """
        self._release = release
        self._emptied = emptied
        self._remove_files = remove_files
        self._named = named
        self._book = book
        self._runner = runner
        self._store = runner.tasks.store
        self._kept_ms = round(kept_s * 1000)
        self._look = look
        self._woken = asyncio.Event()

    def wake(self, tenant: str) -> None:
        """Look at the tenants now: one has changed."""
        del tenant
        self._woken.set()

    async def run(self) -> None:
        """Have all of it done, until cancelled."""
        while True:
            self._woken.clear()
            closed = [one for one in self._book.all() if one.disabled]
            try:
                await asyncio.gather(self._shut(), *[self._end(one) for one in closed])
            except StoreError as error:
                log.warning("tenants.unclosed error=%s", error)
            await wait_event(self._woken, LOOK_S if closed else None)

    async def _shut(self) -> None:
        # Its readers hear of the cancel first; then the rest of its streams ends.
        await asyncio.sleep(LAST_S)
        self._look()

    async def _end(self, tenant: Tenant) -> None:
        for state in _OPEN:
            while True:
                page = await self._store.heads.list(tenant.id, Where(state=state), size=_PAGE)
                done = await asyncio.gather(*[self._cancel(tenant.id, head.task_id) for head in page.heads])
                if not any(done):
                    break
        if not tenant.deleted_at or not await self._release(tenant.id):
            return
        now = await self._store.clock.now()
        over_ms = now - tenant.deleted_at - self._kept_ms
        # Nothing tells whether other processes have removed their files: all have looked after this time.
        is_seen = over_ms >= 2000 * LOOK_S
        if self._kept_ms and over_ms >= 0 and await self._forget(tenant.id, now) and is_seen:
            await self._purge(tenant.id)

    async def _cancel(self, tenant: str, task_id: str) -> bool:
        feed = await self._runner.tasks.load(tenant, task_id)
        if feed is None or feed.state.over:
            return False
        with suppress(Refused):
            await self._runner.cancel(feed, BY)
        return feed.state.over

    async def _forget(self, tenant: str, now: int) -> bool:
        """Remove the files of a tenant that are here, and its ended tasks; gives whether none is left."""
        try:
            await asyncio.to_thread(self._remove_files, tenant)
        except OSError as error:
            log.error("tenant.files_left tenant=%s error=%s", tenant, error)
            return False
        await self._store.maintenance.prune(now, tenant=tenant)
        self._runner.tasks.forget_of(tenant, now)
        # One that cannot be cancelled is left, and one of whose end somebody is still to be told.
        return not (await self._store.heads.list(tenant, Where(), size=1)).heads

    async def _purge(self, tenant: str) -> None:
        """Remove the documents of a tenant, and the last known of it."""
        docs = self._store.docs
        for kind in await docs.kinds(tenant):
            while found := await docs.list(tenant, kind):
                for doc in found:
                    await docs.delete(tenant, kind, doc.id)
        # Invariant: nothing is known of it when its id is free, or the next to have it would have that too.
        await self._emptied(tenant)
        # Its keys, which are the operator's documents, stay, revoked and as those of no tenant: the last must
        # not leave the door open.
        if tenant in self._named():
            return
        await self._book.forget(tenant)
        log.info("tenant.gone tenant=%s", tenant)
