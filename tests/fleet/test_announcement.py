"""Announcing an agent to a hub: said again in time, with patience while the hub is away, and withdrawn."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from trunkline.config import Secret, load
from trunkline.errors import Unreachable
from trunkline.fleet.announcement import AnnouncedAgent, Announcement, pause_s
from trunkline.fleet.hub_client import HubClient

LIMIT_S = 30.0


class HubStub(HubClient):
    """A hub that answers as it is told, and then that all is well."""

    def __init__(self, *answers: tuple[int, bytes] | Exception) -> None:
        super().__init__("http://hub.example", Secret("k"))
        self.answers = list(answers)
        self.heard: list[tuple[str, str, Any]] = []
        self.told = asyncio.Event()

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        self.heard.append((method, path, body))
        self.told.set()
        answer = self.answers.pop(0) if self.answers else (200, b"{}")
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("ttl_s", "failures", "pause"),
    [(60.0, 0, 20.0), (3.0, 0, 1.0), (60.0, 1, 1.0), (60.0, 3, 4.0), (60.0, 7, 60.0), (60.0, 10**6, 60.0)],
)
def test_how_long_it_waits(ttl_s: float, failures: int, pause: float) -> None:
    assert pause_s(ttl_s, failures) == pause


def test_an_agent_is_announced_again_and_withdrawn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trunkline.fleet.announcement.FIRST_PAUSE_S", 0.001)
    caplog.set_level(logging.INFO, "trunkline.fleet")
    refused = (409, b'{"detail": "a b belongs to a file"}')
    gone = Unreachable("hub.example: nobody there", reason="connect")
    url = "http://agent.example/a2a"

    async def main() -> HubStub:
        hub, leaving = HubStub(gone, gone, refused, (500, b"<html>")), asyncio.Event()
        running = asyncio.create_task(AnnouncedAgent("a b", url, hub, 0.003, leaving).run())
        async with asyncio.timeout(LIMIT_S):
            while len(hub.heard) < 7:
                await hub.told.wait()
                hub.told.clear()
            leaving.set()
            await running
        return hub

    hub = asyncio.run(main())
    assert {(method, path) for method, path, _ in hub.heard} == {("PUT", "/announce/a%20b")}
    ttls = [body["ttl"] for _, _, body in hub.heard]
    assert ttls == [0.003] * (len(ttls) - 1) + [0]
    assert {body["url"] for _, _, body in hub.heard} == {url}
    fix = "check --announce: it is the address of a hub"
    # The same trouble is said once.
    assert [record.getMessage() for record in caplog.records] == [
        f"announce.failed agent=a b hub=http://hub.example reason='hub.example: nobody there' fix={fix!r}",
        f"announce.failed agent=a b hub=http://hub.example reason='409 a b belongs to a file' fix={fix!r}",
        f"announce.failed agent=a b hub=http://hub.example reason='500' fix={fix!r}",
        f"announce.listed agent=a b url={url}",
        "announce.withdrawn agent=a b",
    ]


def test_one_that_the_hub_does_not_list_is_not_withdrawn() -> None:
    async def main() -> HubStub:
        hub, leaving = HubStub((403, b"{}")), asyncio.Event()
        running = asyncio.create_task(AnnouncedAgent("a", "http://agent.example", hub, 60, leaving).run())
        async with asyncio.timeout(LIMIT_S):
            await hub.told.wait()
            leaving.set()
            await running
        return hub

    assert [body["ttl"] for _, _, body in asyncio.run(main()).heard] == [60]


def test_without_an_address_nothing_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trunkline.fleet.announcement.ADDRESS_S", 0.001)

    async def main() -> None:
        await Announcement(load({}), ["a"], "/agents/").run()
        unserved = Announcement(load({"announce": "http://hub.example"}), ["a"], "/agents/")
        await unserved.run()
        await unserved.withdraw()

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "announce.off reason='the address of this server is unknown' fix=public_url"
    ]
