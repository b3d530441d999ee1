"""What a hub and its agents declare on their cards is what they do, and settings of sites hold for all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2

from tests.harness import V1, message
from trunkline.demo import agent as demo
from trunkline.fleet.routing.dispatcher import HUB
from trunkline.hub.hub import Hub
from trunkline.wire.service_parameters import IDEMPOTENT_SEND

COST = "https://proto-labs.ai/a2a/ext/cost-v1"
LISTED = "/v1/a2a/agents/demo"
AGENTS = """
agents:
  - {name: demo, import: "trunkline.demo:agent"}
  - {name: far, url: "http://127.0.0.1:1", skills: [fly]}
"""


def _hub(tmp_path: Path, settings: str = "{}") -> Hub:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "hub.yaml").write_text(f"helm: demo\nsettings: {settings}")
    return Hub(tmp_path, {"store": "memory:", "drain_limit": 0.2}, {})


async def _declared(client: httpx2.AsyncClient, base: str) -> dict[str, Any]:
    card = (await client.get(f"{base}/.well-known/agent-card.json", headers=V1)).json()
    return {one["uri"]: one.get("params") for one in card["capabilities"]["extensions"]}


def test_hb36_cards_declare_what_is_emitted_and_answers_name_what_was_asked_for(tmp_path: Path) -> None:
    hub = _hub(tmp_path)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await hub.host.serve(scope, receive, send, HUB)

    async def main() -> None:
        transport = httpx2.ASGITransport(app)
        async with (
            hub.host.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            own = {one.uri: one.params for one in demo.extensions}
            listed = await _declared(client, LISTED)
            assert own.keys() <= listed.keys() and IDEMPOTENT_SEND in listed
            # What is elsewhere, and the hub as a whole, hand on what is reported to them.
            for base in ("", "/v1/a2a/agents/far"):
                declared = await _declared(client, base)
                assert {COST, IDEMPOTENT_SEND} <= declared.keys() and not any(declared.values())
            for base in ("", LISTED):
                headers = {**V1, "A2A-Extensions": COST, "Content-Type": "application/json"}
                body = {"message": message("hello")}
                answer = await client.post(f"{base}/message:send", json=body, headers=headers)
                assert (answer.status_code, answer.headers.get("a2a-extensions")) == (200, COST), answer.text

    asyncio.run(main())


def test_the_form_of_webhooks_is_that_of_the_hub_for_all_of_its_agents(tmp_path: Path) -> None:
    for settings, whole in (("{push_format: task}", None), ("{}", set[str]())):
        hub = _hub(tmp_path, settings)
        assert hub.host.notifier is not None
        assert hub.host.notifier._whole == whole
