"""Deliveries and settings as operators see them, and no secret in either."""

from __future__ import annotations

import asyncio

from tests.fleet.office import Office, office
from trunkline.auth.principal import CALLER, Principal, Scope
from trunkline.config import Secret, Settings
from trunkline.fleet.call import ApiCall
from trunkline.fleet.server_lists import ServerApi
from trunkline.store.url import store_from_url

CANARY = "canary-of-the-settings"


def test_settings_show_no_secret() -> None:
    settings = Settings(
        store=f"postgresql://me:{CANARY}@db/x?password={CANARY}",
        keys=(Secret(CANARY),),
        secret_key=Secret(CANARY),
    )
    api = ServerApi(store_from_url("memory:"), settings, "", lambda _: ())
    shown = asyncio.run(api.settings(ApiCall(Principal("default", "boss", CALLER), "default")))
    assert CANARY not in repr(shown)
    values = {one.name: one.value for one in shown.items}
    assert (values["keys"], values["secret_key"], values["port"]) == (("***",), "***", 8000)
    assert set(values) == set(Settings.__struct_fields__)


def test_nodes_name_the_agents_of_ones_tenant_and_to_an_operator_all() -> None:
    async def work(at: Office) -> None:
        await at.store.nodes.join("n9", ["desk", "theirs"])

        async def named(tenant: str, *scopes: Scope) -> set[str]:
            call = ApiCall(Principal(tenant, "me", frozenset(scopes)), tenant)
            registered = {"north": ["desk"], "south": ["theirs"]}
            api = ServerApi(at.store, Settings(), "desk", lambda one: registered[one])
            page = await api.nodes(call)
            return {name for one in page.items for name in one.agents}

        assert await named("north", Scope.ADMIN) == {"desk"}
        assert await named("south", Scope.ADMIN) == {"desk", "theirs"}
        assert await named("north", Scope.ADMIN, Scope.OPERATOR) >= {"desk", "theirs"}

    office(work)


def test_deliveries_and_settings_are_for_admins() -> None:
    async def work(at: Office) -> None:
        task = await at.send("alice", "ask")
        hook = {"id": "c1", "url": f"http://127.0.0.1:9/hook?key={CANARY}", "token": CANARY}
        path = f"/tasks/{task['id']}/pushNotificationConfigs"
        made = await at.ask("alice", "POST", path, {"taskId": task["id"], **hook}, **{"A2A-Version": "1.0"})
        assert made.status_code == 200, made.text
        await at.ask("carol", "POST", f"/api/inbox/{task['id']}", {"decision": "respond", "text": "x"})
        await at.until(task["id"], "completed")
        whole = await at.get("root", f"/api/deliveries?task={task['id']}")
        assert {(one["taskId"], one["config"], one["host"]) for one in whole["items"]} == {
            (task["id"], "c1", "127.0.0.1")
        }
        page = await at.get("root", "/api/deliveries?limit=1")
        rest = await at.get("root", f"/api/deliveries?after={page['next']}")
        both = [one["id"] for one in [*page["items"], *rest["items"]]]
        assert both == [one["id"] for one in whole["items"]] and rest["next"] is whole["next"] is None
        assert (await at.get("stranger", "/api/deliveries"))["items"] == []
        detail = await at.ask("alice", "GET", f"/api/tasks/{task['id']}")
        assert len(detail.json()["deliveries"]) == len(both) and CANARY not in detail.text
        names = [one["name"] for one in (await at.get("all", "/api/settings"))["items"]]
        assert "store" in names
        # Whose machine it is not is shown what its callers meet.
        seen = {one["name"] for one in (await at.get("stranger", "/api/settings"))["items"]}
        assert {"wait_limit", "retention", "inbox_ttl"} <= seen
        assert not seen & {"store", "host", "keys", "secret_key", "egress_hosts", "mcp_manifest", "issuers"}
        (node,) = (await at.get("root", "/api/nodes"))["items"]
        assert (node["id"], node["alive"]) == (at.application.host.runner.node, True)
        assert "desk" in node["agents"] and "" not in node["agents"] and node["beatAt"] > "2020"
        for who in ("alice", "carol"):
            for path in ("/api/deliveries", "/api/settings", "/api/nodes"):
                assert (await at.ask(who, "GET", path)).status_code == 403
        bad = await at.ask("root", "GET", "/api/deliveries?state=lost")
        assert (bad.status_code, bad.json()["field"]) == (400, "state")

    office(work, dev=True, secret_key="sixteen or more of them")
