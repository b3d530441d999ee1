"""Probes: alive, ready or not and why, for anybody, with nothing of anybody in them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.harness import ServerProcess, message
from tests.hostile.sockets import one, request
from trunkline import Agent as Author
from trunkline import Turn
from trunkline.errors import StoreError
from trunkline.host import Application

PROBES = {"/healthz": {"status": "ok"}, "/readyz": {"status": "ready"}}


def _author() -> Author:
    agent = Author("probed", keys=("a-long-enough-key",))

    @agent.skill()
    async def echo(turn: Turn) -> str:
        """Say it back."""
        return turn.text

    return agent


def _asked(
    asking: Callable[[Application, httpx2.AsyncClient], Any], base: str = "", store: str = "memory:"
) -> Any:
    async def main() -> Any:
        app = Application(_author(), {"store": store})
        transport = httpx2.ASGITransport(app, root_path=base)
        async with (
            app.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://10.1.2.3:8000") as client,
        ):
            return await asking(app, client)

    return asyncio.run(main())


@pytest.mark.parametrize(("path", "body"), PROBES.items())
@pytest.mark.parametrize("host", [b"10.1.2.3:8000", b"evil.example", b"localhost"])
def test_a_probe_needs_no_key_and_no_name(tmp_path: Path, path: str, body: object, host: bytes) -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> Any:
        headers = {"Host": host.decode(), "Origin": "http://evil.example"}
        return [
            await client.request(verb, path, headers=headers) for verb in ("GET", "HEAD", "POST", "DELETE")
        ]

    get, head, post, delete = _asked(asking)
    assert (get.status_code, get.json(), get.headers["cache-control"]) == (200, body, "no-store")
    assert head.status_code == 200 and head.headers["content-length"] == get.headers["content-length"]
    for wrong in (post, delete):
        assert (wrong.status_code, wrong.headers["allow"], wrong.content) == (405, "GET, HEAD", b"")


@pytest.mark.parametrize("path", PROBES)
def test_probes_follow_the_mount(path: str) -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> int:
        return (await client.get(f"/agents/probed{path}")).status_code

    assert _asked(asking, "/agents/probed") == 200


def test_a_server_that_drains_is_alive_but_not_ready() -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> Any:
        app.host.drain()
        return await client.get("/healthz"), await client.get("/readyz")

    alive, ready = _asked(asking)
    assert alive.status_code == 200
    assert (ready.status_code, ready.json()) == (503, {"status": "unready", "reason": "draining"})
    assert ready.headers["retry-after"] == "1"


def test_a_store_that_takes_no_writes_is_not_ready_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # A beat, which needs no room on the disk, would say between two requests that the store is well.
    monkeypatch.setattr("trunkline.run.runner.BEAT_S", 3600.0)

    async def asking(app: Application, client: httpx2.AsyncClient) -> Any:
        async def send() -> int:
            answer = await client.post(
                "/message:send",
                json={"message": message("hello")},
                headers={"A2A-Version": "1.0", "Host": "localhost", "X-API-Key": "a-long-enough-key"},
            )
            return answer.status_code

        found = [await send(), await client.get("/readyz")]
        with monkeypatch.context() as patched:
            # Below the store: what a full disk does.
            patched.setattr(app.host.store.database._transactions, "_write", _full)
            found += [await send(), await client.get("/readyz")]
        found += [await send(), await client.get("/readyz")]
        return found

    sent, ready, refused, unready, again, back = _asked(asking)
    assert (sent, refused, again) == (200, 503, 200)
    assert (ready.status_code, back.status_code) == (200, 200)
    assert (unready.status_code, unready.json()) == (503, {"status": "unready", "reason": "store"})
    assert unready.headers["retry-after"] == "1"


def test_a_store_whose_file_was_removed_is_not_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> Any:
        before = await client.get("/readyz")
        (tmp_path / "tasks.db").unlink()
        async with asyncio.timeout(30):
            while True:
                after = await client.get("/readyz")
                if after.status_code != 200:
                    return before, after
                await asyncio.sleep(0.02)

    ready, unready = _asked(asking, store=f"sqlite:///{tmp_path}/tasks.db")
    assert ready.status_code == 200
    assert (unready.status_code, unready.json()) == (503, {"status": "unready", "reason": "store"})
    assert f"{tmp_path}/tasks.db was removed or replaced while in use" in caplog.text


def _full(*_: object) -> None:
    raise StoreError("database or disk is full")


def test_a_served_agent_answers_probes(demo_server: ServerProcess) -> None:
    for path, body in PROBES.items():
        get = one(demo_server.port, request("GET", path, None, host=b"10.1.2.3"))
        head = one(demo_server.port, request("HEAD", path, None, host=b"10.1.2.3"))
        assert (get.status, json.loads(get.body)) == (200, body)
        assert (head.status, head.body) == (200, b"")
