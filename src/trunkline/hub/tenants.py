"""The tenants of a hub on its host: their routes, and what goes on while one of them is disabled."""

from __future__ import annotations

from collections.abc import Coroutine

from trunkline.auth.identity import ClosedTenants
from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.clock import now_ms
from trunkline.fleet.answer import answer_route
from trunkline.fleet.catalogue.documents import ENTRY_KIND, OVERRIDE_KIND
from trunkline.fleet.ceremonies.ceremony_store import KIND as CEREMONY_KIND
from trunkline.fleet.health.health_records import KIND as HEALTH_KIND
from trunkline.fleet.journal import KIND as JOURNAL_KIND
from trunkline.fleet.notify.task_updates import KIND as UPDATE_KIND
from trunkline.gateway.audit import Audit
from trunkline.gateway.closing import TenantClosing
from trunkline.gateway.model.notes import NOTES, TODOS
from trunkline.gateway.mounts import routes_of
from trunkline.gateway.tenant_api import TenantApi
from trunkline.gateway.tenants import TenantBook, TenantQuota
from trunkline.host import Host
from trunkline.http.asgi import Receive, Send
from trunkline.http.asgi import Scope as AsgiScope

# Definitions, and the ids of registered ones: by name, as their room needs the libraries of the extra `flow`.
WORKFLOW_KINDS = ("workflow", "workflow.id")
# The documents of a tenant, which go when it is deleted.
KINDS = (
    ENTRY_KIND,
    OVERRIDE_KIND,
    CEREMONY_KIND,
    JOURNAL_KIND,
    HEALTH_KIND,
    UPDATE_KIND,
    NOTES,
    TODOS,
    *WORKFLOW_KINDS,
)


class Tenants:
    """The tenants of one host and store; `closed` is what the host asks of each request."""

    def __init__(self, host: Host, closed: ClosedTenants, quota: TenantQuota) -> None:
        """Take the limits of every tenant that has none of its own."""
        self._host = host
        self._quota = quota
        docs = host.store.docs
        self.book = TenantBook(docs, closed, self._changed)
        self._closing = TenantClosing(
            self.book,
            host.runner,
            kinds=KINDS,
            kept_s=host.settings.kept_s,
            look=self._look,
        )
        self._routes = routes_of(TenantApi(self.book, host.key_store, Audit(docs, now_ms), now_ms))

    @property
    def several(self) -> bool:
        """Whether an operator has made a tenant that was not deleted."""
        # Asked with every card: the first that is found is enough.
        known = (one.value for one in self.book.mirror.documents.values())
        return any(one.id != DEFAULT_TENANT and not one.deleted_at for one in known)

    def quota_of(self, tenant: str) -> TenantQuota:
        """The limits of a tenant."""
        found = self.book.find(tenant)
        return self._quota if found is None else found.quota.over(self._quota)

    async def start(self) -> None:
        """Know who is let in, before anybody is.

        Raises:
            StoreError: the store does not answer, or a tenant cannot be read.
        """
        await self.book.mirror.refresh()

    def work(self) -> list[Coroutine[None, None, None]]:
        """The background work beside the host."""
        follow = [self.book.mirror.follow()] if self._host.store.shared else []
        return [self._closing.run(), *follow]

    async def answer(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request below one of the mounts."""
        found = [routes for prefix, routes in self._routes.items() if scope["root_path"].endswith(prefix)]
        await answer_route(found[0], scope, receive, send)

    def _changed(self, tenant: str) -> None:
        self._closing.wake(tenant)

    def _look(self) -> None:
        self._host.streams.look()
        self._host.mounts.look()
