"""What operators do: keys, deliveries, waiting tasks, pruning; by HTTP under `/admin/`, or on a store.

The command line comes by the same function; it uses HTTP only where a running server has the store.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from trunkline import errors
from trunkline.auth.identity import bearer
from trunkline.auth.key_store import IssuedKey, KeyInfo, KeyStore
from trunkline.auth.keys import digest_of
from trunkline.auth.principal import DEFAULT_TENANT, OPERATOR, Principal, Scope, scopes_of
from trunkline.auth.signing import Signer
from trunkline.clock import random_bits
from trunkline.config import Secret
from trunkline.log.decide import Cancel, ForceCancel
from trunkline.run.retention import prune
from trunkline.run.tasks import Tasks
from trunkline.store.base import Store
from trunkline.store.documents import DamagedDocument, DocumentScan, Kinds, find_damaged, repair
from trunkline.store.mirror import Mirror
from trunkline.store.records import AddedDoc
from trunkline.wire.spellings import plain_state

log = logging.getLogger("trunkline.admin")
PREFIX = "/admin/"
LOCAL = Principal(DEFAULT_TENANT, "operator", OPERATOR)
GRACE_MS = 24 * 3600 * 1000
_LONGEST_MS = 10**11
_MOST = 1000
# How many keys the admins of a tenant make.
KEYS_LIMIT = 10_000
# What concerns every tenant; nobody gives it away who has not got it.
_OF_THE_SERVER = frozenset({Scope.OPERATOR, Scope.METRICS})
_STATES = ("pending", "done", "dead", "dropped")
_CREATED = 201
OF_SERVER = frozenset({"POST signing:rotate", "POST store:prune", "GET documents", "POST documents:repair"})
Form = TypeVar("Form")


class KeyOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom a key is for, what it may do and how long; without a tenant it is of that of whoever asks."""

    owner: str
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    lasts_ms: int = 0


class KeyFacts(Struct, frozen=True):
    """Whose a key is and what it may do: all that is written down of it."""

    owner: str
    tenant: str
    scopes: tuple[str, ...]


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the secret before still opens."""

    grace_ms: int = GRACE_MS


class Prune(Struct, frozen=True, forbid_unknown_fields=True):
    """How long ago a task must have ended to be forgotten."""

    older_than_ms: int


class Repair(Struct, frozen=True, forbid_unknown_fields=True):
    """A damaged document, and the body that replaces it in base64; without one it is removed."""

    tenant: str
    kind: str
    id: str
    body: bytes | None = None


class WaitingTask(Struct, frozen=True):
    """An open task of an agent that no living process carries."""

    id: str
    tenant: str
    agent: str
    state: str


class Admin:
    """The acts of operators on one store."""

    def __init__(
        self, store: Store, keys: KeyStore, signer: Callable[[], Signer | None], tasks: Tasks
    ) -> None:
        """Take a store with its keys, its signer and its tasks as this process sees them."""
        self._store = store
        self._tasks = tasks
        self._stored_keys = keys
        self._signer = signer
        # What is written down beside an act on a key, where that is wanted: by whom, what, and whose.
        self.audited: Callable[[str, str, KeyFacts], AddedDoc] | None = None
        # Whether a tenant was deleted, so that a key of it would open nothing.
        self.is_deleted: Callable[[str], bool] = lambda tenant: False
        # Every kind of document that the store may have, and the copies that are loaded after a repair.
        self.kinds: Callable[[], Kinds] = dict
        self.mirrors: Callable[[], Sequence[Mirror[Any]]] = tuple
        # Whoever can read the file that the server writes it to may do everything.
        self.token = Secret(f"{random_bits(256):064x}")
        self._digest = digest_of(self.token.reveal().encode())

    def operator(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """The operator on this machine, if it is the one who asks."""
        given = digest_of(headers.get(b"x-api-key") or bearer(headers))
        return LOCAL if hmac.compare_digest(given, self._digest) else None

    async def perform(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, *, principal: Principal
    ) -> tuple[int, bytes]:
        """One act; gives status and answer. Without the scope `operator` it concerns one's own tenant alone.

        Raises:
            RouteNotFound: there is no such act.
            Forbidden: it concerns the whole server, or another tenant.
            InvalidParams: it cannot be done as asked.
            StoreError: the store does not answer.
        """
        place, colon, act = path.removeprefix(PREFIX).rpartition(":")
        kind, _, name = (place if colon else path.removeprefix(PREFIX)).partition("/")
        if not all([text.isprintable() for text in (path, *query.values())]):
            # PostgreSQL cannot even be asked for a text with a NUL in it.
            raise errors.InvalidParams("names and filters hold printable characters only")
        crosses, by, status = Scope.OPERATOR in principal.scopes, principal.name, 200
        if not crosses:
            query = _narrowed(query, principal.tenant)
        try:
            match method, kind, name, act if colon else "":
                case "GET", "keys", "", "":
                    answer = {"keys": await self._keys(principal)}
                case "POST", "keys", "", "":
                    status, answer = _CREATED, await self._create(_read(body, KeyOrder), principal)
                case "POST", "keys", key_id, "revoke":
                    answer = await self._revoke(key_id, principal)
                case "POST", "keys", key_id, "rotate":
                    answer = await self._rotate(key_id, _read(body, Rotation), principal)
                case "GET", "deliveries", "", "":
                    answer = await self._deliveries(query)
                case "POST", "deliveries", "", "replay":
                    answer = await self._replay_dead(query, by)
                case "POST", "deliveries", delivery_id, "replay":
                    answer = await self._replay(delivery_id, principal)
                case "GET", "tasks", "", "":
                    answer = await self._waiting(query)
                case "POST", "tasks", task_id, "cancel":
                    answer = await self._cancel(task_id, query.get("tenant", principal.tenant), by)
                case _:
                    answer = await self._perform_for_server(path, method, body, principal)
        except errors.Misuse as misuse:
            raise errors.InvalidParams(str(misuse)) from None
        return status, msgspec.json.encode(answer)

    async def _perform_for_server(
        self, path: str, method: str, body: bytes, principal: Principal
    ) -> dict[str, object]:
        """Perform an act on the whole server, which needs the scope `operator`."""
        act = f"{method} {path.removeprefix(PREFIX)}"
        if act not in OF_SERVER:
            raise errors.RouteNotFound("no such path here; tenants are those of a hub")
        if Scope.OPERATOR not in principal.scopes:
            raise _beyond("the whole server")
        match act:
            case "POST signing:rotate":
                return await self._rotate_signing(principal.name)
            case "POST store:prune":
                return await self._prune(_read(body, Prune), principal.name)
            case "GET documents":
                return {"documents": await self._damaged()}
            case _:
                return await self._repair(_read(body, Repair), principal.name)

    async def _keys(self, principal: Principal) -> list[KeyInfo]:
        known = await self._stored_keys.list()
        if Scope.OPERATOR in principal.scopes:
            return known
        own = [one for one in known if one.tenant == principal.tenant]
        return [one for one in own if _is_within(one.scopes, principal)]

    async def _told_of(self, key_id: str, principal: Principal, action: str) -> AddedDoc | None:
        """What is written down of an act on a key, which whoever acts may know of."""
        # A key of another tenant is answered like one that does not exist. One of the whole server is out of
        # reach too: whoever rotates it is given its secret.
        found = [one for one in await self._keys(principal) if one.id == key_id]
        if not found:
            raise errors.Misuse(f"there is no key {key_id!r}")
        return self._told(principal, action, KeyFacts(found[0].owner, found[0].tenant, found[0].scopes))

    def _told(self, principal: Principal, action: str, facts: KeyFacts) -> AddedDoc | None:
        # What the admins of a tenant do with its keys is their own, and would fill what is kept for ever.
        if self.audited is None or Scope.OPERATOR not in principal.scopes:
            return None
        return self.audited(principal.name, action, facts)

    async def _create(self, wanted: KeyOrder, principal: Principal) -> IssuedKey:
        by, tenant = principal.name, wanted.tenant or principal.tenant
        if Scope.OPERATOR not in principal.scopes:
            if tenant != principal.tenant:
                raise _beyond("another tenant")
            if not _is_within(wanted.scopes, principal):
                raise _beyond("the whole server")
            await self._check_room(tenant)
        if self.is_deleted(tenant):
            raise errors.Misuse(f"the tenant {tenant!r} was deleted; a key of it would open nothing")
        made = await self._stored_keys.create(
            wanted.owner,
            tenant=tenant,
            scopes=wanted.scopes,
            lasts_ms=_span(wanted.lasts_ms, "lasts_ms"),
            beside=self._told(principal, "key.created", KeyFacts(wanted.owner, tenant, wanted.scopes)),
        )
        log.info("admin.key.created key=%s owner=%a tenant=%a by=%a", made.key.id, wanted.owner, tenant, by)
        return made

    async def _check_room(self, tenant: str) -> None:
        # A revoked key stays for good, so it counts: every process has all keys of all tenants in memory.
        if sum([one.tenant == tenant for one in await self._stored_keys.list()]) >= KEYS_LIMIT:
            raise errors.InvalidParams(
                f"a tenant makes at most {KEYS_LIMIT} keys, revoked ones too; rotate one instead"
            )

    async def _revoke(self, key_id: str, principal: Principal) -> KeyInfo:
        told = await self._told_of(key_id, principal, "key.revoked")
        shown = await self._stored_keys.revoke(key_id, beside=told)
        log.info("admin.key.revoked key=%s owner=%a by=%a", shown.id, shown.owner, principal.name)
        return shown

    async def _rotate(self, key_id: str, wanted: Rotation, principal: Principal) -> IssuedKey:
        grace_ms = _span(wanted.grace_ms, "grace_ms")
        told = await self._told_of(key_id, principal, "key.rotated")
        made = await self._stored_keys.rotate(key_id, grace_ms, beside=told)
        log.info("admin.key.rotated key=%s owner=%a by=%a", made.key.id, made.key.owner, principal.name)
        return made

    async def _rotate_signing(self, by: str) -> dict[str, object]:
        signer = self._signer()
        if signer is None:
            raise errors.InvalidParams("nothing is signed here: push is off, or it has no secret_key")
        kid = await signer.rotate()
        log.info("admin.signing.rotated kid=%s by=%a", kid, by)
        return {"kid": kid}

    async def _deliveries(self, query: Mapping[str, str]) -> dict[str, object]:
        state = query.get("state") or None
        if state is not None and state not in _STATES:
            raise errors.InvalidParams(f"state is one of {', '.join(_STATES)}", field="state")
        found = await self._store.outbox.list(
            tenant=query.get("tenant") or None,
            task_id=query.get("task") or None,
            state=state,
            limit=_limit(query),
            after=query.get("after", ""),
        )
        return {"deliveries": found}

    async def _waiting(self, query: Mapping[str, str]) -> dict[str, object]:
        if query.get("waiting") != "1":
            raise errors.InvalidParams(
                "say waiting=1: the tasks whose agent no process carries", field="waiting"
            )
        found = await self._store.nodes.waiting(
            query.get("tenant") or None, _limit(query), query.get("after", "")
        )
        states = [(one, plain_state(one.state)) for one in found]
        return {"tasks": [WaitingTask(one.task_id, one.tenant, one.agent, state) for one, state in states]}

    async def _cancel(self, task_id: str, tenant: str, by: str) -> dict[str, object]:
        # The list is in the order of ids: from a prefix on, the task itself is among the first.
        page = await self._store.nodes.waiting(tenant, after=task_id[:-1])
        feed = None
        if any([one.task_id == task_id for one in page]):
            feed = await self._tasks.load(tenant, task_id)
        if feed is None:
            raise errors.InvalidParams(
                f"no task {task_id!r} waits for its agent; see the list of waiting tasks"
            )
        # Nobody runs it, so there is nobody who could be asked to stop first.
        await self._tasks.change(feed, Cancel(by))
        if not feed.state.over:
            await self._tasks.change(feed, ForceCancel())
        log.info("admin.task.canceled task=%s tenant=%a by=%a", task_id, tenant, by)
        return {"id": task_id, "state": plain_state(feed.state.state)}

    async def _replay(self, delivery_id: str, principal: Principal) -> dict[str, object]:
        may = await self._may_replay(delivery_id, principal)
        if not may or not await self._store.outbox.replay(delivery_id):
            raise errors.InvalidParams(f"no delivery {delivery_id!r} has ended; see the list of deliveries")
        log.info("admin.delivery.replayed delivery=%a by=%a", delivery_id, principal.name)
        return {"id": delivery_id, "state": "pending"}

    async def _may_replay(self, delivery_id: str, principal: Principal) -> bool:
        if Scope.OPERATOR in principal.scopes:
            return True
        task_id, after = delivery_id.partition("_")[0], ""
        while page := await self._store.outbox.list(
            tenant=principal.tenant, task_id=task_id, limit=_MOST, after=after
        ):
            if any([one.id == delivery_id for one in page]):
                return True
            after = page[-1].id
        return False

    async def _replay_dead(self, query: Mapping[str, str], by: str) -> dict[str, object]:
        filters = {"tenant": query.get("tenant") or None, "task_id": query.get("task") or None}
        count, after = 0, ""
        while page := await self._store.outbox.list(state="dead", limit=_MOST, after=after, **filters):
            after = page[-1].id
            for dead in page:
                count += await self._store.outbox.replay(dead.id)
        log.info("admin.deliveries.replayed count=%d by=%a", count, by)
        return {"replayed": count}

    async def _prune(self, wanted: Prune, by: str) -> dict[str, object]:
        now = await self._store.clock.now()
        before = now - _span(wanted.older_than_ms, "older_than_ms")
        gone = await prune(self._store, before)
        self._tasks.forget(before)
        shrunk = await self._store.maintenance.compact(now)
        log.info("admin.store.pruned forgotten=%d compacted=%d by=%a", gone, shrunk, by)
        return {"forgotten": gone, "compacted": shrunk}

    async def _damaged(self) -> list[DamagedDocument]:
        found = find_damaged(self._store.docs, self.kinds(), DocumentScan())
        return [one async for one in found]

    async def _repair(self, wanted: Repair, by: str) -> dict[str, object]:
        done = await repair(
            self._store.docs,
            self.kinds(),
            await self._store.clock.now(),
            tenant=wanted.tenant,
            kind=wanted.kind,
            doc_id=wanted.id,
            body=wanted.body,
        )
        for mirror in self.mirrors():
            await mirror.catch_up()
        log.info(
            "admin.document.repaired kind=%a id=%a tenant=%a done=%s by=%a",
            wanted.kind, wanted.id, wanted.tenant, done, by,
        )  # fmt: skip
        return {"tenant": wanted.tenant, "kind": wanted.kind, "id": wanted.id, "done": done}


def _is_within(scopes: Iterable[str], principal: Principal) -> bool:
    """Whether keys with these scopes show no more of the whole server than the principal is shown itself."""
    return scopes_of(scopes) & _OF_THE_SERVER <= principal.scopes


def _beyond(what: str) -> errors.Forbidden:
    return errors.Forbidden(f"this concerns {what}; it needs a key with the scope operator")


def _narrowed(query: Mapping[str, str], tenant: str) -> Mapping[str, str]:
    if query.get("tenant", tenant) != tenant:
        raise _beyond("another tenant")
    return {**query, "tenant": tenant}


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", "100")
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 0 < int(text) <= _MOST:
        raise errors.InvalidParams(f"limit is a number from 1 to {_MOST}", field="limit")
    return int(text)


def _span(milliseconds: int, field: str) -> int:
    if not 0 <= milliseconds <= _LONGEST_MS:
        raise errors.InvalidParams(f"{field} must be 0 to {_LONGEST_MS}", field=field)
    return milliseconds


def _read(body: bytes, form: type[Form]) -> Form:
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.InvalidParams(f"the body does not fit: {error}") from None
