"""The ceremonies that there are: those of files, and those that are kept in the store's documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.errors import Conflict, InvalidParams
from trunkline.fleet.ceremonies.ceremony import Ceremony, CeremonyForm
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.mirror import TENANT_BYTES, Mirror
from trunkline.store.parts import Docs

KIND = "ceremony"
# How many ceremonies a tenant may keep in the store.
TENANT_LIMIT = 1000


class StoredCeremony(Struct, frozen=True):
    """A ceremony as its document has it."""

    form: CeremonyForm
    since: int
    changed_at: int = 0


CEREMONIES: DocumentKind[StoredCeremony] = DocumentKind(KIND, json_decoder(StoredCeremony))


class CeremonyFault(Struct, frozen=True):
    """A file or document that holds no valid schedule: its ID, and what is wrong, with file and line.

    The tenant of a file cannot be read, so its fault is shown to those who have the files.
    """

    id: str
    reason: str
    tenant: str = DEFAULT_TENANT


class CeremonyStore:
    """Every ceremony by tenant and id, a file's before one in the store; `changed` is told of changes."""

    def __init__(self, docs: Docs, changed: Callable[[tuple[str, str]], None]) -> None:
        self._docs = docs
        self._changed = changed
        self.mirror = Mirror(
            docs,
            CEREMONIES,
            lambda tenant, one_id, _: self._told((tenant, one_id)),
            tenant_bytes=TENANT_BYTES,
        )
        self._filed: dict[tuple[str, str], Ceremony] = {}
        self._all: Mapping[tuple[str, str], Ceremony] | None = None
        self._file_faults: Sequence[CeremonyFault] = ()

    @property
    def faults(self) -> list[CeremonyFault]:
        """The files that hold no valid schedule, and the damaged documents."""
        damaged = [
            CeremonyFault(one_id, f"its document is damaged: {found.reason}; delete or repair it", tenant)
            for (tenant, one_id), found in self.mirror.damaged.items()
        ]
        return [*self._file_faults, *damaged]

    def all(self) -> Mapping[tuple[str, str], Ceremony]:
        """The ceremonies of all tenants."""
        if self._all is None:
            kept = {key: _ceremony(key[0], one.value) for key, one in self.mirror.documents.items()}
            self._all = {**kept, **self._filed}
        return self._all

    def of(self, tenant: str) -> list[Ceremony]:
        """The ceremonies of a tenant, by their ids."""
        return sorted((one for one in self.all().values() if one.tenant == tenant), key=lambda one: one.id)

    def take_files(self, filed: Sequence[Ceremony], faults: Sequence[CeremonyFault]) -> None:
        """Take the ceremonies of files in the place of those that files had before."""
        found = {one.key: one for one in filed}
        before, self._filed, self._file_faults = self._filed, found, faults
        for key in {*before, *found}:
            if before.get(key) != found.get(key):
                self._told(key)

    async def refresh(self) -> None:
        """Take up what has changed in the store."""
        await self.mirror.refresh()

    async def follow(self) -> None:
        """Take up what other replicas change, until the store closes."""
        await self.mirror.follow()

    async def put(self, one: Ceremony, *, over: Ceremony | None) -> None:
        """Keep a ceremony, a new one or in the place of the one that it was made of.

        Raises:
            InvalidParams: it is there already, or is being changed by somebody else; or there are too many.
        """
        if over is None and sum(key[0] == one.tenant for key in self.mirror.documents) >= TENANT_LIMIT:
            raise InvalidParams(
                f"a tenant has at most {TENANT_LIMIT} ceremonies; delete one first", conflict="CEREMONY_LIMIT"
            )
        if over is not None and self.all().get(one.key) != over:
            raise taken(one.id)
        rev = 0 if over is None and one.key not in self.mirror.damaged else self.mirror.rev(*one.key)
        body = msgspec.json.encode(StoredCeremony(one.form, one.since, one.changed_at))
        try:
            await self.mirror.put(one.tenant, one.id, body, expected_rev=rev)
        except Conflict:
            await self.mirror.refresh()
            raise taken(one.id) from None

    async def delete(self, tenant: str, one_id: str) -> None:
        """Remove a schedule from the store."""
        await self._docs.delete(tenant, KIND, one_id)
        await self.mirror.refresh()

    def _told(self, key: tuple[str, str]) -> None:
        self._all = None
        self._changed(key)


def taken(ceremony_id: str) -> InvalidParams:
    """The refusal of an id that somebody else has, or that has just been changed."""
    return InvalidParams(
        f"ceremony {ceremony_id!r} already exists, or it has just been changed; read it first",
        field="id",
        conflict="CEREMONY_EXISTS",
    )


def _ceremony(tenant: str, stored: StoredCeremony) -> Ceremony:
    # Earlier versions took channels of the operator's machine from every tenant.
    form = stored.form if tenant == DEFAULT_TENANT else replace(stored.form, notify_channel="")
    return Ceremony(tenant=tenant, form=form, owner="api", since=stored.since, changed_at=stored.changed_at)
