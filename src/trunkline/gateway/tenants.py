"""The tenants of a hub as its store has them: known in memory, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from trunkline.auth.identity import ClosedTenants
from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.errors import Conflict, StoreError
from trunkline.store.mirror import Mirror
from trunkline.store.parts import Docs
from trunkline.store.records import Doc

KIND = "tenant"
_TRIES = 10


class KeyQuota(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much a key may use; what is None is not limited."""

    requests_per_minute: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    concurrent_tasks: Annotated[int, Meta(gt=0, le=1_000_000)] | None = None


class TenantQuota(KeyQuota, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much a tenant may use; what is None is not limited, or as the hub has it for every tenant."""

    cost_per_day: Annotated[float, Meta(gt=0, le=1e9)] | None = None

    def over(self, other: TenantQuota) -> TenantQuota:
        """This quota, with the limits of another one where it has none."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return replace(other, **{name: limit for name, limit in given.items() if limit is not None})


class Tenant(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tenant as it is kept; `key` is the id of the key that was made with it. Moments are milliseconds."""

    id: str
    name: str
    created_at: int
    disabled: bool = False
    deleted_at: int = 0
    key: str = ""
    quota: TenantQuota = TenantQuota()


class TenantBook:
    """The tenants that somebody made or limited; `changed` is told the id of each that has changed.

    The tenant `default` is there without a document, and so is one that only keys name.
    """

    def __init__(
        self, docs: Docs, closed: ClosedTenants, changed: Callable[[str], None] = lambda tenant: None
    ) -> None:
        self._docs = docs
        self._closed = closed
        self._told = changed
        self.mirror = Mirror(docs, KIND, _read, self._changed)

    def find(self, tenant: str) -> Tenant | None:
        """A tenant by its id; one that was deleted is known until its data is gone."""
        found = self.mirror.documents.get((DEFAULT_TENANT, tenant))
        return None if found is None else found.value

    def all(self) -> list[Tenant]:
        """Every tenant of the store by id, deleted ones too."""
        return sorted([one.value for one in self.mirror.documents.values()], key=lambda one: one.id)

    async def add(self, tenant: Tenant) -> None:
        """Keep a new tenant.

        Raises:
            Conflict: there is one of this id.
        """
        await self.mirror.put(DEFAULT_TENANT, tenant.id, msgspec.json.encode(tenant), expected_rev=0)

    async def change(self, tenant: str, change: Callable[[Tenant], Tenant]) -> tuple[Tenant, Tenant] | None:
        """Change a tenant; gives it as it was and as it is, None if there is no such tenant.

        Raises:
            StoreError: it was not written.
        """
        for _ in range(_TRIES):
            doc = await self._docs.get(DEFAULT_TENANT, KIND, tenant)
            if doc is None:
                return None
            before = _read(doc)
            after = change(before)
            try:
                body = msgspec.json.encode(after)
                await self.mirror.put(DEFAULT_TENANT, tenant, body, expected_rev=doc.rev)
            except Conflict:
                continue
            return before, after
        raise StoreError(f"tenant {tenant} changes faster than it can be written")

    async def forget(self, tenant: str) -> None:
        """Remove the last that is known of a tenant; its id may be given again."""
        await self._docs.delete(DEFAULT_TENANT, KIND, tenant)
        await self.mirror.refresh()

    def _changed(self, _owner: str, tenant: str, value: Tenant | None) -> None:
        if value is not None and value.disabled:
            self._closed.close(tenant)
        else:
            self._closed.open(tenant)
        self._told(tenant)


def _read(doc: Doc) -> Tenant:
    try:
        return msgspec.json.decode(doc.body, type=Tenant)
    except msgspec.MsgspecError as error:
        # Not passed by: one that is disabled must not come in because nobody can read that it is.
        raise StoreError(f"tenant {doc.id} in the store cannot be read: {error}") from None
