"""What an operation answers when tasks move on while it reads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trunkline import Client
from trunkline.clock import now_ms
from trunkline.demo import agent
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.types import TaskPage


def test_a_list_is_ordered_by_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[list[str], TaskPage]:
        application = agent.asgi(store="memory:", drain_limit=0)
        async with (
            application.lifespan(),
            Client("http://localhost", http_client=InProcessHttpClient(application)) as client,
        ):
            asked = [(await client.send(f"ask {place}")).task_id for place in range(3)]
            read, before = application.store.heads.list, now_ms()

            async def heads(*about: Any, **more: Any) -> Any:
                page = await read(*about, **more)
                monkeypatch.undo()
                while now_ms() == before:
                    pass
                await client.cancel(asked[0])
                return page

            monkeypatch.setattr(application.store.heads, "list", heads)
            return asked, await client.list()

    asked, page = asyncio.run(main())
    assert [task.id for task in page.tasks] == [asked[0], asked[2], asked[1]]
