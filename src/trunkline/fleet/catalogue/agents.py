"""The catalogue over the operator's API: agents are listed, added, changed, removed, and told what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.auth.principal import Scope as AuthScope
from trunkline.auth.vault import Vault
from trunkline.errors import Conflict, InvalidParams, RouteNotFound, Unreachable
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, PageQuery
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.discovery import CardDiscovery
from trunkline.fleet.catalogue.documents import LONGEST_TTL_S, CatalogueDocuments, KeptEntry, KeptOverride
from trunkline.fleet.catalogue.entry import Entry, Kind
from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.fleet.catalogue.history import CatalogueHistory
from trunkline.fleet.catalogue.listed import Listed, ListedSkill, Override
from trunkline.fleet.catalogue.probe import AT_ONCE, BY_TENANT, Probed, ProbeForm, probe
from trunkline.fleet.catalogue.roster import Roster, roster
from trunkline.fleet.health.health_records import AgentHealth
from trunkline.fleet.route import api_route
from trunkline.net.egress import Egress, shown
from trunkline.net.places import TenantPlaces
from trunkline.wire.codes import AGENT_NOT_FOUND
from trunkline.wire.spellings import timestamp

_CREDENTIALS_LIMIT = 4096
# How often somebody whose word counts tries to be the last, and how much longer he waits each time.
_ATTEMPTS, _PAUSE_S = 50, 0.005
# What the credentials of agents are sealed about.
ABOUT = "credentials of an agent"


class AgentItem(ApiStruct, frozen=True, kw_only=True):
    """An agent of the catalogue."""

    name: str
    kind: str
    owner: str
    state: str
    reason: str = ""
    url: str = ""
    description: str
    tags: tuple[str, ...]
    skills: tuple[ListedSkill, ...]
    streaming: bool
    push: bool
    versions: tuple[str, ...]
    version: str = ""
    card_at: str = ""
    breaker: str
    health: AgentHealth


class HistoryRow(ApiStruct, frozen=True, kw_only=True):
    """Something that happened to an entry: its card, its state or its text is another."""

    at: str
    kind: str
    about: dict[str, Any]


class AgentDetail(AgentItem, frozen=True, kw_only=True):
    """An agent with what happened to its entry, the oldest first."""

    log: list[HistoryRow]


class AnnounceForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an agent is that announces itself, and for how many seconds that holds; 0 ends it there."""

    url: str
    ttl: float = 60.0


class Removed(ApiStruct, frozen=True, kw_only=True):
    """The agent that was removed."""

    name: str


class CatalogueParts(Struct, frozen=True, kw_only=True):
    """The parts that the API of a catalogue works with; without a vault it takes no credentials."""

    catalogue: Catalogue
    documents: CatalogueDocuments
    discovery: CardDiscovery
    history: CatalogueHistory
    # The egress rules of a tenant: for an agent that it registers at a URL, and for addresses that it probes.
    agent_egress: Callable[[str, str], Egress]
    probe_egress: Callable[[str], Egress]
    vault: Vault | None
    now_ms: Callable[[], int]
    health: Callable[[str, str], AgentHealth]


class AgentsApi:
    """The operations of the API on the catalogue of a tenant."""

    def __init__(self, parts: CatalogueParts) -> None:
        self._parts = parts
        self._probes = TenantPlaces(AT_ONCE, BY_TENANT)

    @api_route("GET /agents", AuthScope.READ)
    async def list(self, call: ApiCall, asked: PageQuery) -> ApiPage:
        """A page of the agents of the catalogue, by name."""
        found = [one for one in self._parts.catalogue.listed(call.tenant) if one.entry.name > asked.after]
        page = found[: asked.limit]
        following = page[-1].entry.name if len(found) > len(page) else None
        return ApiPage([AgentItem(**self._item(call, one)) for one in page], following)

    @api_route("GET /roster", AuthScope.READ)
    async def roster(self, call: ApiCall) -> Roster:
        """The agents elsewhere in a few lines, for models and routers; who is dead is marked."""
        return roster(self._parts.catalogue.listed(call.tenant))

    @api_route("GET /agents/{name}", AuthScope.READ)
    async def get(self, call: ApiCall) -> AgentDetail:
        """An agent of the catalogue, with what happened to its entry.

        Raises:
            RouteNotFound: there is none of this name.
        """
        listed = self._found(call)
        rows = await self._parts.history.rows(call.tenant, listed.entry)
        hidden = () if _sees_reasons(call, listed) else ("reason",)
        shown_rows = [
            HistoryRow(
                at=timestamp(row.at),
                kind=row.kind,
                about={name: value for name, value in row.about.items() if name not in hidden},
            )
            for row in rows
        ]
        return AgentDetail(**self._item(call, listed), log=shown_rows)

    @api_route("POST /agents", AuthScope.ADMIN)
    async def create(self, call: ApiCall, raw: dict[str, Any]) -> AgentItem:
        """Add an agent.

        Raises:
            InvalidParams: a member does not fit, or the name is taken, which is a conflict.
        """
        name = self._read(call, _without_credentials(raw)).name
        known = self._parts.catalogue.find(call.tenant, name)
        if known is not None or self._parts.documents.kept(call.tenant, name) is not None:
            raise _taken(name, "file" if known is None else known.entry.owner)
        self._check_free(name)
        return await self._keep(call, name, raw, None)

    def _check_kind(self, tenant: str, kind: Kind) -> None:
        if not self._parts.catalogue.allows(tenant, kind):
            raise InvalidParams(f"no agents of the kind {kind} here: the operator sets kinds", field="kind")

    def _check_free(self, name: str) -> None:
        if self._parts.catalogue.is_reserved(name):
            raise _taken(name, "file")

    @api_route("PUT /agents/{name}", AuthScope.ADMIN)
    async def replace(self, call: ApiCall, raw: dict[str, Any]) -> AgentItem:
        """Put another entry in the place of an agent's.

        Raises:
            RouteNotFound: there is none of this name.
            InvalidParams: a member does not fit, or it is not the API's, which is a conflict.
        """
        kept = self._owned(call, "api")
        if raw.get("name", call.id) != call.id:
            raise InvalidParams("an agent keeps its name; add another one and remove this", field="name")
        return await self._keep(call, call.id, {**raw, "name": call.id}, kept)

    @api_route("DELETE /agents/{name}", AuthScope.ADMIN)
    async def remove(self, call: ApiCall) -> Removed:
        """Remove an agent; its open tasks are followed to their end.

        Raises:
            RouteNotFound: there is none of this name.
            InvalidParams: a file owns it, which is a conflict.
        """
        if not self._parts.documents.is_damaged(call.tenant, call.id):
            self._owned(call, "api", "announce")
        await self._parts.documents.delete(call.tenant, call.id)
        return Removed(name=call.id)

    @api_route("POST /agents/{name}/enable", AuthScope.ADMIN)
    async def enable(self, call: ApiCall) -> AgentItem:
        """Let an agent take work, until its text changes."""
        return await self._override(call, "enabled")

    @api_route("POST /agents/{name}/disable", AuthScope.ADMIN)
    async def disable(self, call: ApiCall) -> AgentItem:
        """Give an agent nothing new, until its text changes."""
        return await self._override(call, "disabled")

    @api_route("POST /agents/{name}/drain", AuthScope.ADMIN)
    async def drain(self, call: ApiCall) -> AgentItem:
        """Let an agent run empty: nothing new, and what is open goes on to its end."""
        return await self._override(call, "draining")

    async def _override(self, call: ApiCall, override: Override) -> AgentItem:
        listed = self._found(call)
        if listed.entry.fault:
            raise InvalidParams(f"its entry is invalid: {_reason(call, listed)}", conflict="ENTRY_INVALID")
        kept = KeptOverride(override=override, revision=listed.entry.revision)
        await _last(lambda: self._parts.documents.put_override(call.tenant, call.id, kept), self._parts)
        return AgentItem(**self._item(call, self._found(call)))

    @api_route("POST /agents/{name}/refresh", AuthScope.ADMIN)
    async def refresh(self, call: ApiCall) -> AgentItem:
        """Ask an agent for its card now.

        Raises:
            RouteNotFound: there is none of this name.
        """
        self._found(call)
        key = self._parts.catalogue.key_of(call.tenant, call.id)
        if key is not None:
            await self._parts.discovery.refresh(key)
        return AgentItem(**self._item(call, self._found(call)))

    @api_route("PUT /announce/{name}", AuthScope.ANNOUNCE)
    async def announce(self, call: ApiCall, form: AnnounceForm) -> AgentItem:
        """Say where an agent is; it is listed until ttl seconds have passed.

        Raises:
            InvalidParams: a member does not fit, or the name is somebody else's, which is a conflict.
        """
        if not 0 <= form.ttl <= LONGEST_TTL_S:
            raise InvalidParams(f"give seconds, at most {LONGEST_TTL_S}", field="ttl")
        raw = {"name": call.id, "url": form.url}
        kept = KeptEntry(
            owner="announce",
            raw=raw,
            by=call.principal.name,
            until=self._parts.now_ms() + int(form.ttl * 1000),
        )
        self._check_kind(call.tenant, read_entry(raw, "announce", tenant=call.tenant).kind)
        await self._check_address(call.tenant, form.url)
        if not form.ttl:
            earlier = self._announced(call)
            found = AgentItem(**self._item(call, self._found(call)))
            # Whoever stops after another process has taken its place takes nothing from that.
            if earlier is not None and earlier.raw["url"] == form.url:
                await self._parts.documents.delete(call.tenant, call.id)
            return found

        async def put() -> None:
            await self._parts.documents.put(call.tenant, call.id, kept, over=self._announced(call))

        await _last(put, self._parts)
        return AgentItem(**self._item(call, self._found(call)))

    def _announced(self, call: ApiCall) -> KeptEntry | None:
        """What the caller has announced under a name before; nobody else may have the name."""
        known = self._parts.catalogue.find(call.tenant, call.id)
        earlier = self._parts.documents.kept(call.tenant, call.id)
        if known is not None and known.entry.owner != "announce":
            raise _taken(call.id, known.entry.owner)
        if earlier is not None and earlier.by != call.principal.name:
            raise _taken(call.id, "announce")
        self._check_free(call.id)
        return earlier

    @api_route("POST /a2a/probe", AuthScope.WRITE)
    async def probe(self, call: ApiCall, form: ProbeForm) -> Probed:
        """Whether an agent is at an address."""
        return await probe(form.url, self._parts.probe_egress(call.tenant), self._probes, call.tenant)

    async def _keep(
        self, call: ApiCall, name: str, raw: dict[str, Any], known: KeptEntry | None
    ) -> AgentItem:
        plain = _without_credentials(raw)
        entry = self._read(call, plain)
        self._check_kind(call.tenant, entry.kind)
        if entry.peer is not None:
            await self._check_address(call.tenant, entry.peer.url)
            if entry.peer.login is not None:
                token_url = entry.peer.login.token_url
                await self._check_address(call.tenant, token_url, "auth.tokenUrl")
        sealed = self._sealed(raw, "" if known is None else self._still_sealed(call, entry, known))
        now = self._parts.now_ms()
        kept = KeptEntry(owner="api", raw=plain, by=call.principal.name, sealed=sealed, at=now)
        try:
            await self._parts.documents.put(call.tenant, name, kept, over=known)
        except Conflict:
            await self._parts.documents.refresh()
            raise InvalidParams(f"{name} has just been changed", conflict="CHANGED") from None
        return AgentItem(**self._item(call, self._found(ApiCall(call.principal, call.tenant, name))))

    def _read(self, call: ApiCall, raw: dict[str, Any]) -> Entry:
        return read_entry(raw, "api", tenant=call.tenant, searches=self._parts.catalogue.searches)

    async def _check_address(self, tenant: str, url: str, field: str = "url") -> None:
        try:
            await self._parts.agent_egress(tenant, url).check(url)
        except Unreachable as error:
            raise InvalidParams(str(error), field=field) from None

    def _still_sealed(self, call: ApiCall, entry: Entry, known: KeptEntry) -> str:
        """The credentials that are kept already, if the changed entry shows them to nobody else."""
        try:
            before = self._read(call, known.raw)
        except InvalidParams:
            return ""
        return known.sealed if _shown_to(before) == _shown_to(entry) else ""

    def _sealed(self, raw: dict[str, Any], known: str) -> str:
        auth = raw.get("auth")
        if not isinstance(auth, dict):
            return ""
        members = cast("dict[str, Any]", auth)
        scheme = members.get("scheme", "apiKey")
        secret = members.get("credentials")
        if secret is None:
            if not known:
                raise InvalidParams(
                    "give the credentials: none are kept for this address",
                    field="auth.credentials",
                )
            return f"{scheme} {known.partition(' ')[2]}"
        if (
            not isinstance(secret, str)
            or not 0 < len(secret) <= _CREDENTIALS_LIMIT
            or not secret.isprintable()
        ):
            raise InvalidParams("credentials are a text of ASCII letters", field="auth.credentials")
        if self._parts.vault is None:
            raise InvalidParams(
                "this server has nowhere to keep credentials: set secret_key", field="auth.credentials"
            )
        return f"{scheme} {self._parts.vault.seal(secret, ABOUT)}"

    def _found(self, call: ApiCall) -> Listed:
        found = self._parts.catalogue.find(call.tenant, call.id)
        if found is None:
            raise RouteNotFound(f"there is no agent {call.id[:80]!r}", missing=AGENT_NOT_FOUND)
        return found

    def _owned(self, call: ApiCall, *owners: str) -> KeptEntry:
        owner = self._found(call).entry.owner
        kept = self._parts.documents.kept(call.tenant, call.id)
        if owner not in owners or kept is None:
            raise _taken(call.id, owner)
        return kept

    def _item(self, call: ApiCall, listed: Listed) -> dict[str, Any]:
        entry = listed.entry
        return {
            "name": entry.name,
            "kind": entry.kind,
            "owner": entry.owner,
            "state": listed.state,
            "reason": _reason(call, listed),
            "url": "" if entry.peer is None else shown(entry.peer.url),
            "description": listed.description,
            "tags": entry.tags,
            "skills": listed.skills,
            "streaming": listed.streaming,
            "push": listed.push,
            "versions": listed.versions,
            "version": listed.version,
            "card_at": timestamp(listed.card_at) if listed.card_at else "",
            "breaker": listed.breaker,
            "health": self._parts.health(call.tenant, entry.name),
        }


def _sees_reasons(call: ApiCall, listed: Listed) -> bool:
    """Return whether the caller may read why an agent is invalid or unreachable: not a tenant, of files."""
    is_of_tenant = listed.entry.owner == "file" and call.tenant != DEFAULT_TENANT
    return not is_of_tenant or AuthScope.OPERATOR in call.principal.scopes


def _reason(call: ApiCall, listed: Listed) -> str:
    return listed.full_reason if _sees_reasons(call, listed) else listed.reason


async def _last(put: Callable[[], Any], parts: CatalogueParts) -> None:
    """Write over what others wrote meanwhile: the later word counts."""
    for attempt in range(_ATTEMPTS):
        try:
            return await put()
        except Conflict:
            await asyncio.sleep(_PAUSE_S * attempt)
            await parts.documents.refresh()
    raise InvalidParams("it is changed by others all the time", conflict="CHANGED")


def _taken(name: str, owner: str) -> InvalidParams:
    why = {
        "file": "an agent in a file of the workspace; edit that file",
        "api": "an agent that is registered by the API; remove it, or choose another name",
        "announce": "an agent that announces itself; stop its process, or choose another name",
    }
    return InvalidParams(f"the name {name!r} is used by {why[owner]}", field="name", conflict="NAME_TAKEN")


def _shown_to(entry: Entry) -> tuple[object, ...]:
    """Who learns the credentials of an agent: whoever could choose that anew could read what nobody may."""
    peer = entry.peer
    return () if peer is None else (peer.url, peer.card_url, peer.verify_tls, peer.login)


def _without_credentials(raw: dict[str, Any]) -> dict[str, Any]:
    auth = raw.get("auth")
    if not isinstance(auth, dict):
        return raw
    members = cast("dict[str, Any]", auth)
    return {**raw, "auth": {key: value for key, value in members.items() if key != "credentials"}}
