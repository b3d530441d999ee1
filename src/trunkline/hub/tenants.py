"""The tenants of a hub on its host: their routes, and what goes on while one of them is disabled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from trunkline.auth.identity import ClosedTenants
from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.clock import now_ms
from trunkline.fleet.answer import answer_route
from trunkline.fleet.health.alerts import AlertLimits
from trunkline.gateway.audit import Audit
from trunkline.gateway.closing import TenantClosing
from trunkline.gateway.mounts import mounted_routes
from trunkline.gateway.tenant_api import TenantApi
from trunkline.gateway.tenants import Tenant, TenantBook, TenantQuota, TenantSettings, filled
from trunkline.host import Host
from trunkline.http.asgi import Receive, Send
from trunkline.http.asgi import Scope as AsgiScope
from trunkline.http.host_check import is_loopback
from trunkline.net.egress import Egress, target
from trunkline.run.node import BackgroundWork
from trunkline.store.mirror import Mirror


class Tenants:
    """The tenants of one host and store; `closed` is what the host asks of each request."""

    def __init__(
        self,
        host: Host,
        closed: ClosedTenants,
        *,
        quota: TenantQuota,
        settings: TenantSettings,
        alerts: AlertLimits,
        named: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Take what holds for every tenant that has none of its own, and who else is `named`."""
        self._host = host
        self._named = named
        self._quota = quota
        self._settings = settings
        self._alerts = alerts
        self._egress: dict[str, Egress] = {}
        self._local_egress = Egress(loopback=True)
        # What a tenant may use, and what that was made of: asked with every request for work.
        self._filled: dict[str, tuple[Tenant, TenantQuota]] = {}
        # Told the id of each tenant that has changed.
        self.changed: Callable[[str], None] = lambda tenant: None
        # Has the files of a tenant removed whose data go.
        self.remove_files: Callable[[str], None] = lambda tenant: None
        # The copies of documents, which go with a tenant.
        self.mirrors: Sequence[Mirror[Any]] = ()
        docs = host.store.docs
        self.book = TenantBook(docs, closed, self._changed)
        self._closing = TenantClosing(
            self.book,
            host.runner,
            host.key_store,
            kept_s=host.settings.kept_s,
            look=self._look,
            release=host.fetchers.release,
            emptied=self._forget,
            remove_files=lambda tenant: self.remove_files(tenant),
            named=named,
        )
        host.runner.keep_of(self.kept_s)
        audit = Audit(docs, now_ms)
        host.admin.audited = audit.key_row
        host.admin.is_deleted = self._is_deleted
        self._routes = mounted_routes(TenantApi(self.book, host.key_store, audit, now_ms))

    @property
    def several(self) -> bool:
        """Whether an operator has made a tenant that was not deleted."""
        # Asked with every card: the first that is found is enough.
        known = (one.value for one in self.book.mirror.documents.values())
        is_made = any(one.id != DEFAULT_TENANT and not one.deleted_at for one in known)
        return is_made or any(tenant != DEFAULT_TENANT for _, tenant in self.book.mirror.damaged)

    def quota_of(self, tenant: str) -> TenantQuota:
        """The limits of a tenant."""
        found = self.book.find(tenant)
        if found is None:
            return self._quota
        known = self._filled.get(tenant)
        if known is None or known[0] is not found:
            known = self._filled[tenant] = found, filled(found.quota, self._quota)
        return known[1]

    def settings_of(self, tenant: str) -> TenantSettings:
        """How a tenant is served."""
        found = self.book.find(tenant)
        return self._settings if found is None else filled(found.settings, self._settings)

    def alerts_of(self, tenant: str) -> AlertLimits:
        """What the figures of a tenant may be before somebody is told."""
        found = self.book.find(tenant)
        return self._alerts if found is None else filled(found.alerts, self._alerts)

    def allows(self, tenant: str, kind: str) -> bool:
        """Whether a tenant may have agents of a kind."""
        kinds = self.settings_of(tenant).kinds
        return kinds is None or kind in kinds

    def allows_tool(self, tenant: str, tool: str) -> bool:
        """Return whether workflows and models of a tenant's own may use a tool, such as `mcp:files/read`."""
        return tenant == DEFAULT_TENANT or self.settings_of(tenant).allows_tool(tool)

    def allows_server(self, tenant: str, server: str) -> bool:
        """Return whether models of a tenant's own may use a tool of an MCP server."""
        return tenant == DEFAULT_TENANT or self.settings_of(tenant).allows_server(server)

    def egress_of(self, tenant: str) -> Egress:
        """Where what a tenant names may be: one object while the hub runs, which has today's rule."""
        if tenant not in self._egress:
            named = "" if tenant == DEFAULT_TENANT else tenant
            self._egress[tenant] = Egress(loopback=self._host.settings.dev, tenant=named)
        self._set_egress(tenant)
        return self._egress[tenant]

    def agent_egress_of(self, tenant: str, url: str) -> Egress:
        """Return the rule for an agent that a tenant registers by the API or that announces itself.

        Only the operator gives keys of the default tenant the scopes for that. On a hub that is bound to
        loopback, such an agent may be on this machine too. One that is elsewhere may not lead to it.
        """
        is_local = is_loopback(self._host.settings.host) and is_loopback(target(url).host)
        return self._local_egress if tenant == DEFAULT_TENANT and is_local else self.egress_of(tenant)

    def kept_s(self) -> dict[str, float]:
        """The tenants whose ended tasks are kept for so many seconds at most."""
        known = {DEFAULT_TENANT, *self._named(), *[one.id for one in self.book.all()]}
        found = {tenant: self.settings_of(tenant).kept_s for tenant in known}
        return {tenant: kept_s for tenant, kept_s in found.items() if kept_s}

    def _is_deleted(self, tenant: str) -> bool:
        found = self.book.find(tenant)
        return found is not None and bool(found.deleted_at)

    def _set_egress(self, tenant: str) -> None:
        own, hub = self.settings_of(tenant), self._host.settings
        self._egress[tenant].allow(
            hub.egress_hosts if own.egress_hosts is None else own.egress_hosts,
            hub.egress_networks if own.egress_networks is None else own.egress_networks,
        )

    async def start(self) -> None:
        """Know who is let in, before anybody is.

        Raises:
            StoreError: the store does not answer.
        """
        await self.book.mirror.refresh()

    def work(self) -> list[BackgroundWork]:
        """The background work beside the host."""
        follow = [self.book.mirror.follow] if self._host.store.shared else []
        return [self._closing.run, *follow]

    async def answer(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request below one of the mounts."""
        found = [routes for prefix, routes in self._routes.items() if scope["root_path"].endswith(prefix)]
        await answer_route(found[0], scope, receive, send)

    def _changed(self, tenant: str) -> None:
        self._closing.wake(tenant)
        # The book has the tenant as it is now once this has been told.
        asyncio.get_running_loop().call_soon(self._apply, tenant)

    def _apply(self, tenant: str) -> None:
        self._host.runner.keep_of(self.kept_s)
        if tenant in self._egress:
            self._set_egress(tenant)
        self.changed(tenant)

    async def _forget(self) -> None:
        for mirror in self.mirrors:
            await mirror.catch_up()

    def _look(self) -> None:
        self._host.streams.look()
        self._host.mounts.look()
