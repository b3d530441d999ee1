"""A hub and its channels: /ask, reports of schedules by the bot, and a kind of channel of the workspace."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fleet.notify.desk import Desk, desk
from trunkline.clock import now_ms
from trunkline.errors import Misuse
from trunkline.fleet.routing.dispatcher import HUB
from trunkline.hub.hub import Hub

__all__ = ["desk"]
KEY = Ed25519PrivateKey.generate()
AGENTS = """
agents:
  - {name: demo, import: "trunkline.demo:agent"}
"""
NOTIFY = """
helm: demo
notify:
  - name: team
    discord: "4711"
    discord_token_env: BOT
    discord_public_key: "%s"
    discord_api: http://%s/api
    about: [alerts]
    calls: true
  - {name: office, channel: "hub_channels:Memory"}
"""
MODULE = """
from trunkline.fleet.notify import Channel

class Memory(Channel):
    sent = []

    def __init__(self, settings):
        pass

    async def send(self, message):
        self.sent.append(message.chat)
        return ""
"""
SCHEDULE = """
name: Daily
schedule: "0 14 * * *"
skill: echo
targets: [demo]
message: echo hello
notifyChannel: "{channel}"
"""


def workspace(folder: Path, desk: Desk) -> Path:
    (folder / "agents.yaml").write_text(AGENTS)
    (folder / "hub_channels.py").write_text(MODULE)
    (folder / "hub.yaml").write_text(NOTIFY % (KEY.public_key().public_bytes_raw().hex(), desk.place))
    (folder / "ceremonies").mkdir()
    for name, channel in (("by-bot", "1469080556720623699"), ("by-name", "office")):
        (folder / f"ceremonies/{name}.yaml").write_text(SCHEDULE.format(channel=channel))
    return folder


async def until(found: Callable[[], Any]) -> Any:
    async with asyncio.timeout(30):
        while not (value := found()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return value


def test_a_hub_posts_where_its_people_are_and_does_what_they_ask(tmp_path: Path, desk: Desk) -> None:
    hub = Hub(workspace(tmp_path, desk), {"store": "memory:", "drain_limit": 0.2}, {"BOT": "canary"})
    desk.status = 200
    desk.answer = lambda method, path, body: b'{"id": "77"}'

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await hub.host.serve(scope, receive, send, HUB)

    def posted(path: str) -> list[Any]:
        return [json.loads(body) for at, _, body in desk.heard if at == f"/api/{path}"]

    async def main() -> None:
        transport = httpx2.ASGITransport(app)
        async with (
            hub.host.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client,
        ):
            (command,) = await until(lambda: posted("applications/77/commands"))
            assert command["name"] == "ask"
            for name in ("by-bot", "by-name"):
                assert (await client.post(f"/api/ceremonies/{name}/run", json={})).status_code == 200
            (report,) = await until(lambda: posted("channels/1469080556720623699/messages"))
            assert report["content"].startswith("Daily: success (task ")
            own: Any = sys.modules["hub_channels"]
            (text,) = await until(lambda: own.Memory.sent)
            assert text.startswith("Daily: success (task ")
            options = [{"name": "message", "value": "echo hello"}]
            asked = {"type": 2, "id": "1", "channel_id": "4711", "data": {"name": "ask", "options": options}}
            body = json.dumps({**asked, "member": {"user": {"username": "ada"}}}).encode()
            moment = str(now_ms() // 1000)
            headers = {
                "X-Signature-Timestamp": moment,
                "X-Signature-Ed25519": KEY.sign(moment.encode() + body).hex(),
            }
            shown = await client.post("/channels/team", content=body, headers=headers)
            assert shown.json()["data"]["content"] == "ada asks the hub: echo hello"
            (result,) = await until(lambda: posted("channels/4711/messages"))
            assert result["content"].startswith("demo: completed\n")

    asyncio.run(main())


def test_a_channel_that_cannot_be_made_keeps_the_hub_from_starting(tmp_path: Path, desk: Desk) -> None:
    with pytest.raises(Misuse, match="hub.yaml: notify team: the environment has no BOT"):
        Hub(workspace(tmp_path, desk), {"store": "memory:"}, {})
