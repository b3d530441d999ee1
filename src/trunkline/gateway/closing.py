"""What becomes of a tenant that is disabled or deleted: streams end, work is cancelled, its data goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from trunkline.auth.identity import LAST_S
from trunkline.auth.key_store import KeyStore
from trunkline.clock import wait_event
from trunkline.errors import Refused, StoreError
from trunkline.gateway.tenants import Tenant, TenantBook
from trunkline.run.runner import Runner
from trunkline.store.records import Where
from trunkline.wire.types import TaskState

log = logging.getLogger("trunkline.gateway")
BY = "operator"
# While a tenant is disabled, work that began in the moment of it is looked for this often; and where none is
# found, ever more seldom, down to this.
LOOK_S, LONGEST_S = 5.0, 300.0
# Tenants that change within this time are looked at together.
_TOGETHER_S = 0.1
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
        keys: KeyStore,
        *,
        kept_s: float,
        look: Callable[[], None],
        release: Callable[[str], Awaitable[bool]],
        emptied: Callable[[], Awaitable[None]],
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
        self._keys = keys
        self._runner = runner
        self._store = runner.tasks.store
        self._kept_ms = round(kept_s * 1000)
        self._look = look
        self._woken = asyncio.Event()
        self._changed: set[str] = set()
        self._failing = False
        # Of thousands that are closed not all ask the store at once: callers wait for it too.
        self._turns = asyncio.Semaphore(2)

    def wake(self, tenant: str) -> None:
        """Look at a tenant now: it has changed."""
        self._changed.add(tenant)
        self._woken.set()

    async def run(self) -> None:
        """Have all of it done, until cancelled; no tenant waits for another."""
        self._followed: dict[str, asyncio.Event] = {}
        for one in self._book.all():
            self.wake(one.id)
        async with asyncio.TaskGroup() as following:
            while await self._woken.wait():
                self._woken.clear()
                changed, self._changed = self._changed, set()
                for tenant in changed - self._followed.keys():
                    if self._closed(tenant):
                        self._followed[tenant] = asyncio.Event()
                        following.create_task(self._follow(tenant))
                for tenant in changed & self._followed.keys():
                    self._followed[tenant].set()
                # Their readers hear of the cancel first; then the rest of their streams ends.
                asyncio.get_running_loop().call_later(LAST_S, self._look)
                await asyncio.sleep(_TOGETHER_S)

    def _closed(self, tenant: str) -> Tenant | None:
        found = self._book.find(tenant)
        return found if found is not None and found.disabled else None

    async def _follow(self, tenant_id: str) -> None:
        """Look at a tenant while it is closed: ever more seldom, as long as nothing is found."""
        pause_s, woken = 0.0, self._followed[tenant_id]
        while (tenant := self._closed(tenant_id)) is not None:
            woken.clear()
            rest_s = LONGEST_S
            try:
                rest_s = await self._end(tenant)
                self._failing = False
            except StoreError as error:
                if not self._failing:
                    log.warning("tenants.unclosed tenant=%s error=%s", tenant_id, error)
                self._failing = True
            pause_s = max(LOOK_S, min(2 * pause_s, rest_s))
            await wait_event(woken, pause_s)
        del self._followed[tenant_id]

    async def _end(self, tenant: Tenant) -> float:
        """End what a closed tenant has, and remove it in time; gives how long nothing is known to be due."""
        found = await self._cancel_all(tenant)
        if tenant.deleted_at and not await self._release(tenant.id):
            return 0.0
        if not tenant.deleted_at or not self._kept_ms:
            return 0.0 if found else LONGEST_S
        now = await self._store.clock.now()
        over_ms = now - tenant.deleted_at - self._kept_ms
        if over_ms < 0:
            return 0.0 if found else min(LONGEST_S, -over_ms / 1000)
        # Nothing tells whether other processes have removed their files: all have looked after this time.
        is_seen = over_ms >= 2000 * LOOK_S
        # Invariant: what had ended by now is its own, if it still stands afterwards.
        if await self._book.stands(tenant) and await self._forget(tenant.id, now) and is_seen:
            await self._purge(tenant)
        return 0.0

    async def _cancel_all(self, tenant: Tenant) -> bool:
        """Cancel the work of a tenant; whether there was any."""
        found, place, where = False, None, Where(state=_OPEN)
        while True:
            async with self._turns:
                page = await self._store.heads.list(tenant.id, where, size=_PAGE, after=place)
            # What one has that was let in again, or whose id is another's by now, is not to be cancelled.
            if not page.heads or not await self._book.stands(tenant):
                return found
            await asyncio.gather(*[self._cancel(tenant.id, head.task_id) for head in page.heads])
            found, place = True, page.next
            if place is None:
                return found

    async def _cancel(self, tenant: str, task_id: str) -> None:
        feed = await self._runner.tasks.load(tenant, task_id)
        if feed is not None and not feed.state.over:
            with suppress(Refused):
                await self._runner.cancel(feed, BY)

    async def _forget(self, tenant: str, now: int) -> bool:
        """Remove the files of a tenant that are here, and its ended tasks; gives whether none is left."""
        try:
            await asyncio.to_thread(self._remove_files, tenant)
        except OSError as error:
            log.error("tenant.files_left tenant=%s error=%s", tenant, error)
            return False
        await self._store.maintenance.prune(now, tenant=tenant)
        self._runner.tasks.forget_of({tenant: now})
        # One that cannot be cancelled is left, and one of whose end somebody is still to be told.
        return not (await self._store.heads.list(tenant, Where(), size=1)).heads

    async def _purge(self, tenant: Tenant) -> None:
        """Remove the documents of a tenant, and the last known of it, unless another process was faster."""
        keys = [one.id for one in await self._keys.list() if one.tenant == tenant.id]
        # Invariant: keys that were seen before are its own, and not those of the next to have its id.
        if not await self._book.clear(tenant):
            return
        # Invariant: nothing is known of it when its id is free, or the next to have it would have that too.
        await self._emptied()
        # Its keys, which are the operator's documents, stay, revoked and as those of no tenant: the last must
        # not leave the door open. Of those that were made in the moment of the deletion some may be active.
        await self._keys.disown(tenant.id, keys)
        if tenant.id in self._named():
            return
        await self._book.forget(tenant)
        log.info("tenant.gone tenant=%s", tenant.id)
