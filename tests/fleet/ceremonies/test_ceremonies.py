"""Ceremonies put together: files and documents are read, watched and fired while they run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fleet.ceremonies.stage import MINUTE, NOON, Stage
from tests.fleet.stores import Replicas
from trunkline.fleet.ceremonies import files, scheduler
from trunkline.fleet.ceremonies.ceremonies import Ceremonies
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.store.base import Store

TEXT = 'name: Stand-up\nschedule: "* * * * *"\nskill: report\ntargets: [writer]\ntenant: north\n'


def test_hb24_a_file_is_fired_changed_and_removed_while_it_runs(
    replicas: Replicas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WATCH_S", 0.01)
    monkeypatch.setattr(scheduler, "TICK_S", 0.01)
    file = tmp_path / "standup.yaml"
    file.write_text(TEXT, encoding="utf-8")

    async def work(store: Store) -> None:
        stage, fetcher = Stage(store), Fetcher(Egress())
        made = Ceremonies(
            store,
            open_task=stage.open_task,
            stop_task=stage.stop_task,
            agents_of=lambda _tenant, _skill: [],
            guarded=lambda _: fetcher,
            own=fetcher,
            variable=lambda _: None,
            folder=tmp_path,
        )
        await made.start()
        running = asyncio.create_task(made.run())
        async with asyncio.timeout(30):
            while not await stage.opened():
                # The first look sets the cursor; whatever is planned later fires.
                replicas.now += MINUTE
                await asyncio.sleep(0.02)
            file.unlink()
            while made.ceremony_store.all():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await fetcher.close()

    replicas.now = NOON
    replicas.run(work)
