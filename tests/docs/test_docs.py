"""Every Python block of the docs runs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.docs.pages import blocks
from trunkline import Agent, Turn
from trunkline.config import Settings


@pytest.mark.parametrize(
    ("page", "test"),
    [
        ("agents", "test_shout"),
        ("durability", "test_sell"),
        ("extensions", "test_sell"),
        ("limits", "test_plan"),
        ("webhooks", "test_receive"),
    ],
)
def test_a_page_that_tests_itself(page: str, test: str) -> None:
    space: dict[str, Any] = {}
    for block in blocks(f"docs/{page}.md", "python"):
        exec(compile(block, f"docs/{page}.md", "exec"), space)
    asyncio.run(space[test]())


def test_agents_page_wraps_an_agent_of_a_framework() -> None:
    (block,) = [one for one in blocks("docs/agents.md", "python") if "pydantic_ai" in one]
    space: dict[str, Any] = {"Agent": Agent, "Turn": Turn}
    exec(compile(block, "docs/agents.md", "exec"), space)

    async def main() -> Any:
        async with space["advisor"].test_client() as client:
            return await client.send("Rain?")

    assert asyncio.run(main())["artifacts"][0]["parts"][0]["text"] == "Take an umbrella."


def test_serving_page_mounts_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scribe.py").write_text(blocks("README.md", "python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TRUNKLINE_STORE", "memory:")
    monkeypatch.delitem(sys.modules, "scribe", raising=False)
    space: dict[str, Any] = {}
    exec(compile(blocks("docs/serving.md", "python")[0], "docs/serving.md", "exec"), space)

    async def main() -> list[dict[str, Any]]:
        app = space["app"]
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            paths = ("/agents/scribe/.well-known/agent-card.json", "/.well-known/agent-card.json")
            return [(await client.get(path)).json() for path in paths]

    inner, outer = asyncio.run(main())
    assert inner["url"].endswith("/agents/scribe/a2a")
    assert outer["url"] == inner["url"]


def test_serving_page_composes_lifespans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scribe.py").write_text(blocks("README.md", "python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TRUNKLINE_STORE", "memory:")
    monkeypatch.delitem(sys.modules, "scribe", raising=False)
    space: dict[str, Any] = {}
    (block,) = [one for one in blocks("docs/serving.md", "python") if "asynccontextmanager" in one]
    exec(compile(block, "docs/serving.md", "exec"), space)

    async def main() -> None:
        app = space["app"]
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client,
        ):
            assert app.state.prices == {"tea": 3}
            assert (await client.get("/agents/scribe/readyz")).status_code == 200
        assert app.state.prices == {}

    asyncio.run(main())


def test_every_setting_is_on_the_serving_page() -> None:
    text = Path(__file__).parents[2].joinpath("docs/serving.md").read_text(encoding="utf-8")
    assert [name for name in Settings.__struct_fields__ if f"`{name}`" not in text] == []
