"""The tenants of a hub as its store has them: known in memory, changed by compare-and-set."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from trunkline.auth.identity import ClosedTenants
from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.config import seconds
from trunkline.errors import Conflict, StoreError
from trunkline.fleet.catalogue.entry import Kind
from trunkline.fleet.health.alerts import DailyCost, FailureRate, SkillCount, check_cooldown
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.mirror import Mirror
from trunkline.store.parts import Docs
from trunkline.store.records import AddedDoc, TenantDoc

KIND = "tenant"
_TRIES = 10
_LONGEST_LIST = 256
_TOOL = re.compile(r"(mcp|step|model|delegate):[^\x00-\x1f\x7f]{1,512}")
_Host = Annotated[str, Meta(min_length=1, max_length=255)]


class TenantQuota(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much a tenant or a key may use; what is None is not limited."""

    requests_per_minute: Annotated[int, Meta(gt=0, le=1_000_000)] | None = None
    concurrent_tasks: Annotated[int, Meta(gt=0, le=1_000_000)] | None = None
    tokens_per_day: Annotated[int, Meta(gt=0, le=10**15)] | None = None
    cost_per_day: Annotated[float, Meta(gt=0, le=1e9)] | None = None


NO_QUOTA = TenantQuota()


class TenantSettings(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a tenant is served; None means that the default of the hub applies.

    `egress_hosts` and `egress_networks` are callable in addition to public addresses, `retention` limits how
    long ended tasks are kept, and `kinds` the agents that the tenant may have. `tools` are the MCP tools,
    steps, models and delegates that its own workflows and models may use.
    """

    egress_hosts: Annotated[tuple[_Host, ...], Meta(max_length=_LONGEST_LIST)] | None = None
    egress_networks: Annotated[tuple[_Host, ...], Meta(max_length=_LONGEST_LIST)] | None = None
    retention: float | str | None = None
    kinds: Annotated[tuple[Kind, ...], Meta(max_length=8)] | None = None
    tools: Annotated[tuple[str, ...], Meta(max_length=_LONGEST_LIST)] | None = None

    def __post_init__(self) -> None:
        for tool in self.tools or ():
            if not _TOOL.fullmatch(tool):
                forms = "mcp:SERVER/TOOL, step:NAME, model:NAME or delegate:AGENT"
                raise ValueError(f"tools: {tool[:80]!r} is none of {forms}; * at the end matches any rest")
        # The path of an error ends at the settings; which of them it is stands in the text.
        try:
            if self.retention is not None:
                seconds(self.retention)
        except ValueError as error:
            raise ValueError(f"retention: {error}") from None
        try:
            for network in self.egress_networks or ():
                ip_network(network, strict=False)
        except ValueError as error:
            raise ValueError(f"egress_networks: {error}") from None

    def allows_tool(self, tool: str) -> bool:
        """Return whether `tools` lists a tool, literally or by a prefix that ends in `*`."""
        return any([tool.startswith(one[:-1]) if one[-1] == "*" else tool == one for one in self.tools or ()])

    def allows_server(self, server: str) -> bool:
        """Return whether `tools` lists a tool of an MCP server."""
        every = f"mcp:{server}/"
        return self.allows_tool(every) or any([one.startswith(every) for one in self.tools or ()])

    @property
    def kept_s(self) -> float:
        """How many seconds ended tasks are kept at most; 0 if the hub alone decides."""
        return 0.0 if self.retention is None else seconds(self.retention)


class TenantAlerts(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the figures of a tenant may be before somebody is told; what is None is as the hub has it."""

    failure_rate_1h: FailureRate | None = None
    daily_cost_usd: DailyCost | None = None
    orphaned_skills: SkillCount | None = None
    cooldown: float | str | None = None

    def __post_init__(self) -> None:
        if self.cooldown is not None:
            check_cooldown(self.cooldown)


Given = TypeVar("Given", bound=Struct)


def filled(own: Struct, other: Given) -> Given:
    """What a tenant has of its own, and what every tenant has where it has not."""
    given = {name: getattr(own, name) for name in own.__struct_fields__}
    return replace(other, **{name: value for name, value in given.items() if value is not None})


class Tenant(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tenant as it is kept; `key` is the id of the key that was made with it. Moments are milliseconds."""

    id: str
    name: str
    created_at: int
    disabled: bool = False
    deleted_at: int = 0
    key: str = ""
    quota: TenantQuota = NO_QUOTA
    settings: TenantSettings = TenantSettings()
    alerts: TenantAlerts = TenantAlerts()


def _disabled_tenant(tenant: str, now: int) -> bytes:
    """Return the body that replaces a damaged tenant: it is disabled, as the damaged one may have been."""
    return msgspec.json.encode(
        Tenant(id=tenant, name=tenant, created_at=now, disabled=tenant != DEFAULT_TENANT)
    )


TENANTS: DocumentKind[Tenant] = DocumentKind(KIND, json_decoder(Tenant), _disabled_tenant)


class TenantBook:
    """The tenants that somebody made or limited; `changed` is called with the ID of each that has changed.

    The tenant `default` is there without a document, and so is one that only keys name. A tenant whose
    document is damaged is closed, but neither its work nor its data are touched.
    """

    def __init__(
        self, docs: Docs, closed: ClosedTenants, changed: Callable[[str], None] = lambda tenant: None
    ) -> None:
        self._docs = docs
        self._closed = closed
        self._told = changed
        self.mirror = Mirror(docs, TENANTS, self._changed, set_aside=self._set_aside)

    def find(self, tenant: str) -> Tenant | None:
        """A tenant by its id; one that was deleted is known until its data is gone."""
        found = self.mirror.documents.get((DEFAULT_TENANT, tenant))
        return None if found is None else found.value

    def all(self) -> list[Tenant]:
        """Every tenant of the store by id, deleted ones too."""
        return sorted([one.value for one in self.mirror.documents.values()], key=lambda one: one.id)

    async def add(self, tenant: Tenant, told: AddedDoc | None = None) -> None:
        """Keep a new tenant, and with it the row that tells of it.

        Raises:
            Conflict: there is one of this id.
        """
        body = msgspec.json.encode(tenant)
        await self.mirror.put(DEFAULT_TENANT, tenant.id, body, expected_rev=0, beside=told)

    async def change(
        self,
        tenant: str,
        change: Callable[[Tenant], Tenant],
        tell: Callable[[Tenant, Tenant], AddedDoc | None] = lambda before, after: None,
    ) -> Tenant | None:
        """Change a tenant, and write with it the row that tells of it; None if there is no such tenant.

        Raises:
            StoreError: it was not written.
        """
        for _ in range(_TRIES):
            doc = await self._docs.get(DEFAULT_TENANT, KIND, tenant)
            if doc is None:
                return None
            before = TENANTS.read(doc.id, doc.body)
            after = change(before)
            try:
                body = msgspec.json.encode(after)
                told = tell(before, after)
                await self.mirror.put(DEFAULT_TENANT, tenant, body, expected_rev=doc.rev, beside=told)
            except Conflict:
                continue
            return after
        raise StoreError(f"tenant {tenant} changes faster than it can be written")

    async def stands(self, tenant: Tenant) -> bool:
        """Whether the store still has a tenant as it is given here."""
        return await self._standing(tenant) is not None

    async def clear(self, tenant: Tenant) -> bool:
        """Remove the documents and dedup keys of a tenant, if it stands as given here; whether it does."""
        doc = await self._standing(tenant)
        return doc is not None and await self._docs.clear(tenant.id, under=doc, kind=KIND)

    async def forget(self, tenant: Tenant) -> None:
        """Remove the last that is known of a tenant, if it stands; its id may be given again."""
        if (doc := await self._standing(tenant)) is not None:
            await self._docs.delete(DEFAULT_TENANT, KIND, tenant.id, doc.body)
        await self.mirror.refresh()

    async def _standing(self, tenant: Tenant) -> TenantDoc | None:
        doc = await self._docs.get(DEFAULT_TENANT, KIND, tenant.id)
        if doc is None or TENANTS.read(doc.id, doc.body) != tenant:
            return None
        return TenantDoc(DEFAULT_TENANT, doc.id, doc.rev, doc.body)

    def _changed(self, _owner: str, tenant: str, value: Tenant | None) -> None:
        if value is not None and value.disabled:
            self._closed.close(tenant)
        else:
            self._closed.open(tenant)
        self._told(tenant)

    def _set_aside(self, _owner: str, tenant: str, _reason: str) -> None:
        self._closed.close(tenant)
        self._told(tenant)
