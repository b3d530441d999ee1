"""What operators do with tenants: make, list, disable, limit, set, give a new key, delete; and its audit."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins
from msgspec.structs import replace

from trunkline.auth.key_store import KeyStore
from trunkline.auth.principal import DEFAULT_TENANT, FLOW_SCOPES, Scope, check_tenant
from trunkline.errors import Conflict, InvalidParams, Misuse, RouteNotFound
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, PageQuery
from trunkline.fleet.route import api_route
from trunkline.gateway.audit import Audit
from trunkline.gateway.tenants import NO_QUOTA, Tenant, TenantAlerts, TenantBook, TenantQuota, TenantSettings
from trunkline.net.egress import host_name
from trunkline.store.records import AddedDoc
from trunkline.wire.card import plain_name
from trunkline.wire.spellings import timestamp

# The scopes of the key that is made with a tenant: everything of that tenant, and nothing of the server.
_LEFT_OUT = FLOW_SCOPES | {Scope.OPERATOR, Scope.METRICS}
ADMIN_SCOPES = tuple([one.value for one in Scope if one not in _LEFT_OUT])
_OWNER = "admin"
_ROTATE = ":rotate"
_NO_SLUG = re.compile(r"[^a-z0-9._-]+")


class TenantForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant that is to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]


class TenantChange(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be changed of a tenant; what is not named stays."""

    disabled: bool | UnsetType = UNSET
    quota: TenantQuota | None | UnsetType = UNSET
    settings: TenantSettings | None | UnsetType = UNSET
    alerts: TenantAlerts | None | UnsetType = UNSET


class TenantItem(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A tenant as operators see it. One whose document is `damaged`, for this reason, is closed."""

    id: str
    name: str
    disabled: bool
    created_at: str
    quota: TenantQuota
    settings: TenantSettings
    alerts: TenantAlerts
    damaged: str = ""


class TenantToken(TenantItem, frozen=True, kw_only=True):
    """A tenant with the key that was just made for it, which is shown this once."""

    token: str


class AuditApi:
    """The operation on what operators did with the tenants of one store."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    @api_route("GET /", Scope.OPERATOR)
    async def page(self, query: PageQuery) -> ApiPage:
        """What operators did with tenants, newest first."""
        return await self._audit.page(query.limit, query.after, query.tenant)


class TenantApi:
    """The acts on the tenants of one store."""

    def __init__(self, book: TenantBook, keys: KeyStore, audit: Audit, now_ms: Callable[[], int]) -> None:
        self._book = book
        self._keys = keys
        self.audit = audit
        self._now = now_ms

    @api_route("POST /", Scope.OPERATOR, status=201)
    async def create(self, call: ApiCall, form: TenantForm) -> TenantToken:
        """Make a tenant; the answer shows its admin key this once.

        Raises:
            InvalidParams: the name gives no id, or the id is taken.
        """
        tenant_id = slug(form.name)
        tenant = Tenant(id=tenant_id, name=form.name.strip(), created_at=self._now())
        if tenant_id == DEFAULT_TENANT:
            raise _taken(tenant_id)
        told = self.audit.row(call.principal.name, "tenant.created", tenant_id, None, _shown(tenant))
        try:
            await self._book.add(tenant, told)
        except Conflict:
            await self._book.mirror.refresh()
            raise _taken(tenant_id) from None
        return _with_token(tenant, await self._new_key(tenant))

    @api_route("GET /", Scope.OPERATOR)
    async def list(self, query: PageQuery) -> ApiPage:
        """A page of tenants, by their ids."""
        await self._book.mirror.refresh()
        items = [tenant_item(one) for one in self._book.all() if not one.deleted_at] + self._damaged()
        known = sorted([one for one in items if one.id > query.after], key=lambda one: one.id)
        page = known[: query.limit]
        more = page[-1].id if len(known) > len(page) else None
        return ApiPage(list(page), more)

    def _damaged(self) -> builtins.list[TenantItem]:
        return [
            replace(tenant_item(Tenant(id=one, name=one, created_at=0, disabled=True)), damaged=found.reason)
            for (_, one), found in self._book.mirror.damaged.items()
        ]

    @api_route("GET /{id}", Scope.OPERATOR)
    async def get(self, call: ApiCall) -> TenantItem:
        """A tenant."""
        await self._book.mirror.refresh()
        damaged = next((one for one in self._damaged() if one.id == call.id), None)
        return damaged or tenant_item(self._known(call.id))

    @api_route("PATCH /{id}", Scope.OPERATOR)
    async def change(self, call: ApiCall, form: TenantChange) -> TenantItem:
        """Disable, enable, limit or set a tenant, or say when its figures are told of.

        Raises:
            InvalidParams: nothing is to be changed, it is the tenant that cannot be disabled, or what is
                given as a host is none.
            RouteNotFound: there is no such tenant.
        """
        if form == TenantChange():
            known = "disabled, quota, settings or alerts"
            raise InvalidParams(f"name what is to be changed: {known}", field="disabled")
        if form.settings:
            _check_hosts(form.settings)
        if call.id == DEFAULT_TENANT:
            if form.settings and form.settings.tools is not None:
                raise InvalidParams(
                    f"tenant {DEFAULT_TENANT!r} may use every tool; set tools for other tenants",
                    field="settings.tools",
                )
            await self._begin_default(form)

        def changed(tenant: Tenant) -> Tenant:
            self._check_there(tenant)
            if form.disabled is not UNSET:
                tenant = replace(tenant, disabled=form.disabled)
            if form.quota is not UNSET:
                tenant = replace(tenant, quota=form.quota or NO_QUOTA)
            if form.settings is not UNSET:
                tenant = replace(tenant, settings=form.settings or TenantSettings())
            if form.alerts is not UNSET:
                tenant = replace(tenant, alerts=form.alerts or TenantAlerts())
            return tenant

        return tenant_item(await self._changed(call, call.id, changed, "tenant.changed"))

    @api_route("POST /{id}:rotate", Scope.OPERATOR)
    async def rotate(self, call: ApiCall) -> TenantToken:
        """Give a tenant a new admin key, shown this once.

        Raises:
            RouteNotFound: there is no such tenant.
        """
        await self._book.mirror.refresh()
        tenant = self._known(call.id.removesuffix(_ROTATE))
        shown = _shown(tenant)
        told = self.audit.row(call.principal.name, "tenant.rotated", tenant.id, shown, shown)
        return _with_token(tenant, await self._new_key(tenant, told))

    @api_route("DELETE /{id}", Scope.OPERATOR)
    async def delete(self, call: ApiCall) -> TenantItem:
        """Delete a tenant: disabled at once, its data gone after retention.

        Raises:
            InvalidParams: it is the tenant that cannot be deleted.
            RouteNotFound: there is no such tenant.
        """
        if call.id == DEFAULT_TENANT:
            raise _fixed("deleted")

        def deleted(tenant: Tenant) -> Tenant:
            self._check_there(tenant)
            return replace(tenant, disabled=True, deleted_at=self._now())

        tenant = await self._changed(call, call.id, deleted, "tenant.deleted")
        for key in await self._keys.list():
            if key.tenant == tenant.id and key.state == "active":
                await self._keys.revoke(key.id)
        return tenant_item(tenant)

    async def _new_key(self, tenant: Tenant, told: AddedDoc | None = None) -> str:
        """Make or replace the admin key of a tenant, and write with it what tells of it; gives its token."""
        if tenant.key:
            # Revoked meanwhile, it cannot be given a new secret.
            with suppress(Misuse):
                return (await self._keys.rotate(tenant.key, 0, beside=told)).token
        made = await self._keys.create(_OWNER, tenant=tenant.id, scopes=ADMIN_SCOPES, beside=told)
        await self._book.change(tenant.id, lambda known: replace(known, key=made.key.id))
        return made.token

    async def _begin_default(self, form: TenantChange) -> None:
        if form.disabled is True:
            raise _fixed("disabled")
        if not self._book.mirror.rev(DEFAULT_TENANT, DEFAULT_TENANT):
            await self._book.add(Tenant(id=DEFAULT_TENANT, name=DEFAULT_TENANT, created_at=self._now()))

    async def _changed(
        self, call: ApiCall, tenant_id: str, change: Callable[[Tenant], Tenant], action: str
    ) -> Tenant:
        if not tenant_id.isprintable():
            # PostgreSQL cannot even be asked for it.
            raise _unknown(tenant_id)
        by = call.principal.name
        after = await self._book.change(
            tenant_id,
            change,
            lambda before, after: self.audit.row(by, action, tenant_id, _shown(before), _shown(after)),
        )
        if after is None:
            raise _unknown(tenant_id)
        return after

    def _known(self, tenant_id: str) -> Tenant:
        found = self._book.find(tenant_id)
        if found is None:
            raise _unknown(tenant_id)
        self._check_there(found)
        return found

    def _check_there(self, tenant: Tenant) -> None:
        if tenant.deleted_at:
            raise _unknown(tenant.id)


def slug(name: str) -> str:
    """The id of a tenant by its name.

    Raises:
        InvalidParams: the name gives none.
    """
    if plain_name(name) != name.strip():
        raise InvalidParams("it holds no line ends and no control characters", field="name")
    made = _NO_SLUG.sub("-", name.strip().lower()).strip("-._")[:64].rstrip("-._")
    try:
        check_tenant(made)
    except Misuse as misuse:
        raise InvalidParams(str(misuse), field="name") from None
    return made


def _check_hosts(settings: TenantSettings) -> None:
    # Of those that are kept already one that is none is only passed by: a tenant must stay readable.
    for n, host in enumerate(settings.egress_hosts or ()):
        if not host_name(host):
            raise InvalidParams(
                f"{host[:80]!r} is no host: give it as URLs have it, without https://, port and wildcard",
                field=f"settings.egress_hosts[{n}]",
            )


def tenant_item(tenant: Tenant) -> TenantItem:
    """A tenant as operators see it."""
    return TenantItem(
        id=tenant.id,
        name=tenant.name,
        disabled=tenant.disabled,
        created_at=timestamp(tenant.created_at),
        quota=tenant.quota,
        settings=tenant.settings,
        alerts=tenant.alerts,
    )


def _shown(tenant: Tenant) -> dict[str, Any]:
    return to_builtins(tenant_item(tenant))


def _with_token(tenant: Tenant, token: str) -> TenantToken:
    shown = tenant_item(tenant)
    return TenantToken(
        id=shown.id,
        name=shown.name,
        disabled=shown.disabled,
        created_at=shown.created_at,
        quota=shown.quota,
        settings=shown.settings,
        alerts=shown.alerts,
        token=token,
    )


def _unknown(tenant_id: str) -> RouteNotFound:
    return RouteNotFound(f"there is no tenant {tenant_id!r}", missing="TENANT_NOT_FOUND")


def _taken(tenant_id: str) -> InvalidParams:
    return InvalidParams(
        f"there is a tenant {tenant_id!r}, or its data is not gone yet; take another name",
        field="name",
        conflict="TENANT_EXISTS",
    )


def _fixed(what: str) -> InvalidParams:
    return InvalidParams(
        f"the tenant {DEFAULT_TENANT} is the operators' own and cannot be {what}; revoke keys instead",
        field="id",
        conflict="TENANT_FIXED",
    )
