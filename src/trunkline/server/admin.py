"""What operators do: keys, the signing key, deliveries, pruning; by HTTP under `/admin/`, or on a store.

The command line comes by the same function; it uses HTTP only where a running server has the store.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from trunkline import errors
from trunkline.auth.identity import bearer
from trunkline.auth.key_store import KeyInfo, KeyStore
from trunkline.auth.keys import digest_of
from trunkline.auth.principal import DEFAULT_TENANT, OPERATOR, Principal, Scope
from trunkline.auth.signing import Signer
from trunkline.clock import random_bits
from trunkline.config import Secret
from trunkline.run.retention import prune
from trunkline.store.base import Store

log = logging.getLogger("trunkline.admin")
PREFIX = "/admin/"
LOCAL = Principal(DEFAULT_TENANT, "operator", OPERATOR)
GRACE_MS = 24 * 3600 * 1000
_LONGEST_MS = 10**11
_MOST = 1000
_STATES = ("pending", "done", "dead", "dropped")
_CREATED = 201
Form = TypeVar("Form")


class KeyOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom a key is for, what it may do and how long."""

    owner: str
    tenant: str = DEFAULT_TENANT
    scopes: tuple[str, ...] = ()
    lasts_ms: int = 0


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the secret before still opens."""

    grace_ms: int = GRACE_MS


class Prune(Struct, frozen=True, forbid_unknown_fields=True):
    """How long ago a task must have ended to be forgotten."""

    older_than_ms: int


class Admin:
    """The acts of operators on one store."""

    def __init__(
        self,
        store: Store,
        book: KeyStore,
        signer: Callable[[], Signer | None],
        forget: Callable[[int], None] | None = None,
    ) -> None:
        """Take a store with its keys and signer; `forget` lets go of what this process holds of old tasks."""
        self._store = store
        self._forget = forget
        self._book = book
        self._signer = signer
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
        crosses, by = Scope.OPERATOR in principal.scopes, principal.name
        if not crosses:
            if query.get("tenant", principal.tenant) != principal.tenant:
                raise _beyond("another tenant")
            query = {**query, "tenant": principal.tenant}
        try:
            match method, kind, name, act if colon else "":
                case "GET", "keys", "", "":
                    return 200, msgspec.json.encode({"keys": await self._keys(principal)})
                case "POST", "keys", "", "":
                    return _CREATED, await self._create(_read(body, KeyOrder), principal)
                case "POST", "keys", key_id, "revoke":
                    await self._check_key(key_id, principal)
                    return 200, await self._revoke(key_id, by)
                case "POST", "keys", key_id, "rotate":
                    await self._check_key(key_id, principal)
                    return 200, await self._rotate(key_id, _read(body, Rotation), by)
                case "GET", "deliveries", "", "":
                    return 200, await self._deliveries(query)
                case "POST", "deliveries", "", "replay":
                    return 200, await self._replay_dead(query, by)
                case "POST", "deliveries", delivery_id, "replay":
                    return 200, await self._replay(delivery_id, principal)
                case "POST", "signing" | "store", "", "rotate" | "prune" if not crosses:
                    raise _beyond("the whole server")
                case "POST", "signing", "", "rotate":
                    return 200, await self._rotate_signing(by)
                case "POST", "store", "", "prune":
                    return 200, await self._prune(_read(body, Prune), by)
                case _:
                    raise errors.RouteNotFound("there is no such act for operators")
        except errors.Misuse as misuse:
            raise errors.InvalidParams(str(misuse)) from None

    async def _keys(self, principal: Principal) -> list[KeyInfo]:
        known = await self._book.list()
        return (
            known if Scope.OPERATOR in principal.scopes else [one for one in known if _is_of(one, principal)]
        )

    async def _check_key(self, key_id: str, principal: Principal) -> None:
        # A key of another tenant is answered like one that does not exist. An operator's key is out of reach
        # too: whoever rotates it is given its secret.
        if Scope.OPERATOR not in principal.scopes and not any(
            [one.id == key_id for one in await self._keys(principal)]
        ):
            raise errors.Misuse(f"there is no key {key_id!r}; trunkline keys list shows them")

    async def _create(self, wanted: KeyOrder, principal: Principal) -> bytes:
        by = principal.name
        if Scope.OPERATOR not in principal.scopes:
            if wanted.tenant != principal.tenant:
                raise _beyond("another tenant")
            if Scope.OPERATOR.value in wanted.scopes:
                raise _beyond("the whole server")
        made = await self._book.create(
            wanted.owner,
            tenant=wanted.tenant,
            scopes=wanted.scopes,
            lasts_ms=_span(wanted.lasts_ms, "lasts_ms"),
        )
        log.info(
            "admin.key.created key=%s owner=%a tenant=%a by=%a", made.key.id, wanted.owner, wanted.tenant, by
        )
        return msgspec.json.encode(made)

    async def _revoke(self, key_id: str, by: str) -> bytes:
        shown = await self._book.revoke(key_id)
        log.info("admin.key.revoked key=%s owner=%a by=%a", shown.id, shown.owner, by)
        return msgspec.json.encode(shown)

    async def _rotate(self, key_id: str, wanted: Rotation, by: str) -> bytes:
        made = await self._book.rotate(key_id, _span(wanted.grace_ms, "grace_ms"))
        log.info("admin.key.rotated key=%s owner=%a by=%a", made.key.id, made.key.owner, by)
        return msgspec.json.encode(made)

    async def _rotate_signing(self, by: str) -> bytes:
        signer = self._signer()
        if signer is None:
            raise errors.InvalidParams("nothing is signed here: push is off, or it has no secret_key")
        kid = await signer.rotate()
        log.info("admin.signing.rotated kid=%s by=%a", kid, by)
        return msgspec.json.encode({"kid": kid})

    async def _deliveries(self, query: Mapping[str, str]) -> bytes:
        state = query.get("state") or None
        if state is not None and state not in _STATES:
            raise errors.InvalidParams(f"state is one of {', '.join(_STATES)}", field="state")
        limit = query.get("limit", "100")
        if not limit.isascii() or not limit.isdigit() or len(limit) > 4 or not 0 < int(limit) <= _MOST:
            raise errors.InvalidParams(f"limit is a number from 1 to {_MOST}", field="limit")
        found = await self._store.outbox.list(
            tenant=query.get("tenant") or None,
            task_id=query.get("task") or None,
            state=state,
            limit=int(limit),
            after=query.get("after", ""),
        )
        return msgspec.json.encode({"deliveries": found})

    async def _replay(self, delivery_id: str, principal: Principal) -> bytes:
        by = principal.name
        if not await self._may_replay(delivery_id, principal) or not await self._store.outbox.replay(
            delivery_id
        ):
            raise errors.InvalidParams(f"no delivery {delivery_id!r} has ended; see the list of deliveries")
        log.info("admin.delivery.replayed delivery=%a by=%a", delivery_id, by)
        return msgspec.json.encode({"id": delivery_id, "state": "pending"})

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

    async def _replay_dead(self, query: Mapping[str, str], by: str) -> bytes:
        filters = {"tenant": query.get("tenant") or None, "task_id": query.get("task") or None}
        count, after = 0, ""
        while page := await self._store.outbox.list(state="dead", limit=_MOST, after=after, **filters):
            after = page[-1].id
            for dead in page:
                count += await self._store.outbox.replay(dead.id)
        log.info("admin.deliveries.replayed count=%d by=%a", count, by)
        return msgspec.json.encode({"replayed": count})

    async def _prune(self, wanted: Prune, by: str) -> bytes:
        now = await self._store.clock.now()
        before = now - _span(wanted.older_than_ms, "older_than_ms")
        gone = await prune(self._store, before)
        if self._forget is not None:
            self._forget(before)
        shrunk = await self._store.maintenance.compact(now)
        log.info("admin.store.pruned forgotten=%d compacted=%d by=%a", gone, shrunk, by)
        return msgspec.json.encode({"forgotten": gone, "compacted": shrunk})


def _is_of(key: KeyInfo, principal: Principal) -> bool:
    return key.tenant == principal.tenant and Scope.OPERATOR.value not in key.scopes


def _beyond(what: str) -> errors.Forbidden:
    return errors.Forbidden(f"this concerns {what}; it needs a key with the scope operator")


def _span(milliseconds: int, field: str) -> int:
    if not 0 <= milliseconds <= _LONGEST_MS:
        raise errors.InvalidParams(f"{field} must be 0 to {_LONGEST_MS}", field=field)
    return milliseconds


def _read(body: bytes, form: type[Form]) -> Form:
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.InvalidParams(f"the body does not fit: {error}") from None
