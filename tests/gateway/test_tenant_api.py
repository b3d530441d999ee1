"""The acts of operators on tenants, on a store in memory: what each answers, refuses and leaves behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from trunkline.auth.identity import ClosedTenants, Identity
from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import OPERATOR, Principal
from trunkline.errors import InvalidParams, RouteNotFound, StoreError, Unauthenticated
from trunkline.fleet.call import ApiCall, PageQuery
from trunkline.fleet.health.alerts import AlertLimits
from trunkline.gateway.audit import Audit
from trunkline.gateway.tenant_api import ADMIN_SCOPES, AuditApi, TenantApi, TenantChange, TenantForm, slug
from trunkline.gateway.tenants import TenantAlerts, TenantBook, TenantQuota, TenantSettings, filled
from trunkline.store.sqlite.store import SqliteStore

BOSS = Principal("default", "boss", OPERATOR)


class Desk:
    """The tenants of a store, its keys and its door."""

    def __init__(self, store: SqliteStore) -> None:
        ticks = itertools.count(1_800_000_000_000)
        self.clock = 0.0
        self.ring = Keyring((), lambda: next(ticks))
        self.closed = ClosedTenants(lambda: self.clock)
        self.store = store
        self.book = TenantBook(store.docs, self.closed)
        self.keys = KeyStore(store.docs, self.ring, lambda: next(ticks))
        self.audit = Audit(store.docs, lambda: next(ticks))
        self.api = TenantApi(self.book, self.keys, self.audit, lambda: next(ticks))
        self.identity = Identity(self.ring, closed=self.closed)

    def call(self, tenant: str = "") -> ApiCall:
        return ApiCall(BOSS, "default", tenant)

    def who(self, token: str) -> Principal | None:
        try:
            return self.identity.known({b"x-api-key": token.encode()})
        except Unauthenticated as refused:
            assert refused.message == "the key is not known here"
            return None

    async def rows(self, **query: Any) -> list[Any]:
        page = await AuditApi(self.api.audit).page(PageQuery(limit=200, **query))
        return msgspec.to_builtins(page.items)


def run(case: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        store = SqliteStore(None, now_ms=lambda: 1)
        await store.open()
        try:
            await case(Desk(store))
        finally:
            await store.close()

    asyncio.run(whole())


def test_a_tenant_is_made_with_a_key_that_is_kept_as_a_digest() -> None:
    async def case(desk: Desk) -> None:
        made = await desk.api.create(desk.call(), TenantForm(name="Acme & Sons"))
        assert (made.id, made.name, made.disabled) == ("acme-sons", "Acme & Sons", False)
        found = desk.who(made.token)
        assert found is not None
        assert (found.tenant, {one.value for one in found.scopes}) == ("acme-sons", set(ADMIN_SCOPES))
        assert "operator" not in ADMIN_SCOPES
        kept = [*await desk.store.docs.list_all("tenant"), *await desk.store.docs.list_all("api-key")]
        assert len(kept) == 2 and all([made.token.encode() not in one.body for one in kept])
        shown = msgspec.json.encode((await desk.api.list(PageQuery())).items)
        assert b"acme-sons" in shown and b"token" not in shown
        for name in ("Acme Sons", "default"):
            with pytest.raises(InvalidParams) as refused:
                await desk.api.create(desk.call(), TenantForm(name=name))
            assert refused.value.details["conflict"] == "TENANT_EXISTS"

    run(case)


def test_a_disabled_tenant_is_nobody_and_is_somebody_again_with_the_same_key() -> None:
    async def case(desk: Desk) -> None:
        token = (await desk.api.create(desk.call(), TenantForm(name="acme"))).token
        lasting = desk.identity.lasting({b"x-api-key": token.encode()})
        assert lasting is not None and lasting()
        assert (await desk.api.change(desk.call("acme"), TenantChange(disabled=True))).disabled
        assert desk.who(token) is None
        # What it has open hears of its end first, and ends within a second.
        assert lasting()
        desk.clock += 0.9
        assert not lasting()
        await desk.api.change(desk.call("acme"), TenantChange(disabled=False))
        assert desk.who(token) is not None and lasting()

    run(case)


def test_a_new_key_ends_the_one_before() -> None:
    async def case(desk: Desk) -> None:
        first = (await desk.api.create(desk.call(), TenantForm(name="acme"))).token
        second = (await desk.api.rotate(desk.call("acme:rotate"))).token
        assert desk.who(first) is None and desk.who(second) is not None
        found = desk.book.find("acme")
        assert found is not None
        # Revoked by hand, it is replaced by another one.
        await desk.keys.revoke(found.key)
        third = (await desk.api.rotate(desk.call("acme:rotate"))).token
        assert desk.who(second) is None and desk.who(third) is not None

    run(case)


def test_what_was_deleted_is_unknown_and_its_id_is_not_given_again() -> None:
    async def case(desk: Desk) -> None:
        token = (await desk.api.create(desk.call(), TenantForm(name="acme"))).token
        other = await desk.keys.create("ci", tenant="acme")
        assert (await desk.api.delete(desk.call("acme"))).disabled
        assert desk.who(token) is None and desk.who(other.token) is None
        assert (await desk.api.list(PageQuery())).items == []
        for act in (
            desk.api.get(desk.call("acme")),
            desk.api.rotate(desk.call("acme")),
            desk.api.change(desk.call("acme"), TenantChange(disabled=False)),
            desk.api.delete(desk.call("acme")),
            desk.api.get(desk.call("nobody")),
        ):
            with pytest.raises(RouteNotFound):
                await act
        with pytest.raises(InvalidParams):
            await desk.api.create(desk.call(), TenantForm(name="acme"))
        assert [one["action"] for one in await desk.rows()] == ["tenant.deleted", "tenant.created"]

    run(case)


def test_the_default_tenant_can_be_limited_and_not_shut_out() -> None:
    async def case(desk: Desk) -> None:
        for act in (
            desk.api.change(desk.call("default"), TenantChange(disabled=True)),
            desk.api.delete(desk.call("default")),
            desk.api.change(desk.call("default"), TenantChange()),
        ):
            with pytest.raises(InvalidParams):
                await act
        limits = TenantQuota(concurrent_tasks=3)
        assert (await desk.api.change(desk.call("default"), TenantChange(quota=limits))).quota == limits
        found = desk.book.find("default")
        assert found is not None and found.quota == limits

    run(case)


def test_the_audit_says_who_did_what_and_nothing_secret() -> None:
    async def case(desk: Desk) -> None:
        made = await desk.api.create(desk.call(), TenantForm(name="acme"))
        await desk.api.create(desk.call(), TenantForm(name="other"))
        await desk.api.change(desk.call("acme"), TenantChange(disabled=True))
        rotated = await desk.api.rotate(desk.call("acme"))
        rows = await desk.rows()
        assert [one["action"] for one in rows] == [
            "tenant.rotated", "tenant.changed", "tenant.created", "tenant.created",
        ]  # fmt: skip
        changed = rows[1]
        assert set(changed) == {"at", "by", "action", "tenant", "before", "after"}
        assert (changed["by"], changed["before"]["disabled"], changed["after"]["disabled"]) == (
            "boss", False, True,
        )  # fmt: skip
        assert made.token not in str(rows) and rotated.token not in str(rows)
        assert len(await desk.rows(tenant="other")) == 1
        first = await AuditApi(desk.api.audit).page(PageQuery(limit=3))
        assert first.next is not None
        rest = await AuditApi(desk.api.audit).page(PageQuery(limit=3, after=first.next))
        assert msgspec.to_builtins([*first.items, *rest.items]) == rows and rest.next is None

    run(case)


class Unwritable:
    """Documents of which the audit cannot be written."""

    def __init__(self, docs: Any) -> None:
        self._docs = docs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._docs, name)

    async def put(self, *given: Any, beside: Any = None) -> int:
        if beside is not None:
            raise StoreError("the disk is full")
        return await self._docs.put(*given)


def test_nothing_changes_that_cannot_be_written_down() -> None:
    async def case(desk: Desk) -> None:
        token = (await desk.api.create(desk.call(), TenantForm(name="acme"))).token
        docs: Any = Unwritable(desk.store.docs)
        for mirror in (desk.book.mirror, desk.keys.mirror):
            monkey: Any = mirror
            monkey._docs = docs
        for act in (
            desk.api.create(desk.call(), TenantForm(name="other")),
            desk.api.change(desk.call("acme"), TenantChange(disabled=True)),
            desk.api.rotate(desk.call("acme")),
            desk.api.delete(desk.call("acme")),
        ):
            with pytest.raises(StoreError):
                await act
        await desk.book.mirror.refresh()
        assert desk.who(token) is not None
        assert [one.id for one in (await desk.api.list(PageQuery())).items] == ["acme"]
        assert [one["action"] for one in await desk.rows()] == ["tenant.created"]

    run(case)


def test_settings_are_kept_shown_and_checked() -> None:
    async def case(desk: Desk) -> None:
        await desk.api.create(desk.call(), TenantForm(name="acme"))
        settings = TenantSettings(egress_hosts=("crm.internal",), retention="1d", kinds=("peer",))
        changed = await desk.api.change(desk.call("acme"), TenantChange(settings=settings))
        assert changed.settings == settings and settings.kept_s == 86400
        assert (await desk.rows())[0]["after"]["settings"]["kinds"] == ["peer"]
        for host in ("https://crm.internal", "*.internal", "crm.internal:8080"):
            unknown = TenantSettings(egress_hosts=("10.0.0.1", host))
            with pytest.raises(InvalidParams, match="as URLs have it") as refused:
                await desk.api.change(desk.call("acme"), TenantChange(settings=unknown))
            assert refused.value.field == "settings.egress_hosts[1]"
        assert (await desk.api.change(desk.call("acme"), TenantChange(settings=None))).settings == (
            TenantSettings()
        )

    run(case)


@pytest.mark.parametrize(
    "wrong",
    [
        {"settings": {"retention": "soon"}},
        {"settings": {"egress_networks": ["10.0.0.0/99"]}},
        {"settings": {"kinds": ["robot"]}},
        {"settings": {"more": 1}},
        {"alerts": {"failure_rate_1h": 1.1}},
        {"alerts": {"daily_cost_usd": -1}},
        {"alerts": {"orphaned_skills": 0.5}},
        {"alerts": {"cooldown": "soon"}},
        {"alerts": {"more": 1}},
    ],
)
def test_settings_that_do_not_fit(wrong: dict[str, Any]) -> None:
    ((_, members),) = wrong.items()
    (named,) = members
    with pytest.raises(msgspec.ValidationError, match=named):
        msgspec.convert(wrong, TenantChange)


def test_limits_of_alerts_are_kept_shown_and_taken_back() -> None:
    async def case(desk: Desk) -> None:
        await desk.api.create(desk.call(), TenantForm(name="acme"))
        alerts = TenantAlerts(daily_cost_usd=5, cooldown="1h")
        changed = await desk.api.change(desk.call("acme"), TenantChange(alerts=alerts))
        assert changed.alerts == alerts == (await desk.api.get(desk.call("acme"))).alerts
        row = (await desk.rows())[0]
        assert (row["before"]["alerts"], row["after"]["alerts"]) == (
            {},
            {"daily_cost_usd": 5, "cooldown": "1h"},
        )
        assert filled(alerts, AlertLimits(orphaned_skills=3)) == AlertLimits(
            daily_cost_usd=5, cooldown="1h", orphaned_skills=3
        )
        assert (await desk.api.change(desk.call("acme"), TenantChange(alerts=None))).alerts == TenantAlerts()

    run(case)


def test_tenants_are_listed_in_pages() -> None:
    async def case(desk: Desk) -> None:
        for name in "cab":
            await desk.api.create(desk.call(), TenantForm(name=name))
        first = await desk.api.list(PageQuery(limit=2))
        assert ([one.id for one in first.items], first.next) == (["a", "b"], "b")
        rest = await desk.api.list(PageQuery(limit=2, after="b"))
        assert ([one.id for one in rest.items], rest.next) == (["c"], None)

    run(case)


@pytest.mark.parametrize(
    ("name", "made"), [("Acme", "acme"), ("  Ünï Corp. ", "n-corp"), ("a" * 80, "a" * 64), ("A_b.c", "a_b.c")]
)
def test_the_id_of_a_name(name: str, made: str) -> None:
    assert slug(name) == made


@pytest.mark.parametrize("name", ["", "...", "API", "v1", "日本", "a\x00b", "a\nb", "a\x1b[31mb"])
def test_a_name_that_gives_no_id(name: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        slug(name)
    assert refused.value.field == "name"


def test_limits_of_a_tenant_win_over_those_of_the_hub() -> None:
    hub = TenantQuota(requests_per_minute=60, concurrent_tasks=10)
    assert filled(TenantQuota(concurrent_tasks=3), hub) == TenantQuota(
        requests_per_minute=60, concurrent_tasks=3
    )
