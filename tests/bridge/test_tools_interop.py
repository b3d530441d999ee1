"""Agents that are not ours are tools like others: the official SDK's, in both versions, and fasta2a's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trunkline.bridge.tools import tools
from trunkline.client.client import Client
from trunkline.net.in_process import InProcessHttpClient

pytestmark = pytest.mark.sdk


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_the_official_sdk(version: str) -> None:
    from tests.interop.sdk_server import BASE, application

    async def main() -> list[str]:
        http_client = InProcessHttpClient(application("1.0", "0.3"))
        async with Client(BASE, http_client=http_client, version=version) as client, tools(client) as box:
            (tool,) = box
            said = await box.call(tool.name, {"query": "hello"})
            asked = await box.call(tool.name, {"query": "ask"})
            told = await box.call(tool.name, {"query": "blue", "task_id": asked.task_id})
            assert told.task_id == asked.task_id
        await http_client.close()
        return [tool.name, said.text, asked.question, told.text]

    found = asyncio.run(asyncio.wait_for(main(), 20))
    assert found == ["a2a__official__obey", "hello", "Which one?", "blue"]


def test_fasta2a_whose_card_lists_no_skill_and_no_text() -> None:
    from tests.interop.fasta2a_server import application

    async def main() -> tuple[str, str]:
        app: Any = application()
        http_client = InProcessHttpClient(app)
        async with (
            app.router.lifespan_context(app),
            Client("http://localhost", http_client=http_client, poll_s=0.02) as client,
            tools(client) as box,
        ):
            (tool,) = box
            said = await box.call(tool.name, {"query": "hello"})
            await http_client.close()
        return tool.name, said.text

    assert asyncio.run(asyncio.wait_for(main(), 20)) == ("a2a__fast", "hello")
