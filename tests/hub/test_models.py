"""Model agents in the catalogue of a hub: by files and the API, for each tenant its own, or with a reason."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import answer, opened, run
from tests.gateway.model.openai_server import ModelServer, Reply, results, told


def test_an_entry_whose_model_cannot_be_asked_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)

    async def scene() -> None:
        async with opened(
            tmp_path, "agents: [{name: a, model: 'nobody:x'}, {name: b, model: 'openai:x'}]"
        ) as ask:
            assert "nobody" in (await ask.ready("a"))["reason"]
            assert "OPENAI_API_KEY" in (await ask.ready("b"))["reason"]
            status, wrong = await ask("POST /api/agents", {"name": "c", "model": "openai:x", "brevity": "no"})
            assert (status, wrong["field"]) == (400, "brevity")
            status, wrong = await ask(
                "POST /api/agents", {"name": "c", "model": "openai:x", "base_url": "http://a"}
            )
            assert (status, wrong["field"]) == (400, "baseUrl")

    run(scene())


def test_without_the_extra_an_entry_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        one for one in sys.modules if one.startswith(("trunkline.hub.models", "trunkline.gateway.model."))
    ]:
        if not name.endswith(".notes"):
            monkeypatch.delitem(sys.modules, name)
    load = builtins.__import__

    def missing(name: str, *given: Any, **more: Any) -> Any:
        if name.startswith("pydantic_ai"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="pydantic_ai")
        return load(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", missing)

    async def scene() -> None:
        async with opened(tmp_path, "agents: [{name: a, model: 'openai:x'}]", OPENAI_API_KEY="k") as ask:
            reason = (await ask.ready("a"))["reason"]
            assert reason == "models need pydantic_ai: pip install 'trunkline[model]'"

    run(scene())


def scribe(body: dict[str, Any]) -> Reply:
    """A model that keeps what it is told and says who it is, with all that it has kept."""
    if not results(body):
        text = body["messages"][-1]["content"]
        calls = [("mem", {"action": "add", "text": text}), ("write", {"path": f"{text}.txt", "text": text})]
        return Reply(
            calls=[
                *calls,
                ("mem", {"action": "list"}),
                ("list", {}),
                ("agent", {"name": "other", "message": "x"}),
            ]
        )
    return Reply([told(body).partition("\n")[0], " ", " | ".join(results(body)[2:])])


def test_two_tenants_have_models_of_one_name_and_nothing_of_each_other(tmp_path: Path) -> None:
    capabilities = ["/mem", "/write", "/list", "/agent"]

    async def scene() -> None:
        with ModelServer(scribe) as server:
            async with opened(
                tmp_path, "agents: []", key="operators-key-1", OPENAI_BASE_URL=server.url
            ) as boss:
                callers = [await boss.tenant(name) for name in ("north", "south")]
                for caller, role in zip(callers, ("cook", "smith"), strict=True):
                    entry = {"name": "same", "model": "openai:x", "role": role, "capabilities": capabilities}
                    assert (await caller("POST /api/agents", entry))[0] == 200
                    assert (await caller.ready("same"))["state"] == "ready"
                await callers[0]("POST /api/agents", {"name": "other", "model": "openai:x"})
                await callers[0].ready("other")
                said = []
                for caller, text in zip(callers, ("canary-north", "canary-south"), strict=True):
                    task = await caller.say("same", text)
                    said.append(str(task))
                    assert answer(task).startswith(f"You are same, {'cook' if 'north' in text else 'smith'}.")
                assert "canary-south" not in said[0] and "canary-north" not in said[1]
                # An agent of the other tenant is nobody.
                assert "there is no agent 'other'" in str(server.asked[-1]) and "sub_agent" not in said[1]
        assert sorted(one.name for one in (tmp_path / "files").rglob("*.txt")) == [
            "canary-north.txt",
            "canary-south.txt",
        ]

    run(scene())


def test_a_name_that_a_model_has_is_no_other_kind_of_agent_elsewhere(tmp_path: Path) -> None:
    async def scene() -> None:
        with ModelServer(lambda _: Reply(["Here."])) as server:
            async with opened(
                tmp_path, "agents: []", key="operators-key-1", OPENAI_BASE_URL=server.url
            ) as boss:
                north, south = [await boss.tenant(name) for name in ("north", "south")]
                await north("POST /api/agents", {"name": "same", "model": "openai:x"})
                await north.ready("same")
                await south("POST /api/agents", {"name": "same", "url": "http://127.0.0.1:1"})
                found = await south.until("GET /api/agents/same", lambda one: bool(one.get("reason")))
                assert found["state"] == "unreachable"
                assert answer(await north.say("same", "there?")) == "Here."

    run(scene())


def test_an_entry_may_become_a_model_and_health_counts_what_it_costs(tmp_path: Path) -> None:
    async def scene() -> None:
        with ModelServer(lambda _: Reply(["Here."])) as server:
            async with opened(tmp_path, "agents: []", OPENAI_BASE_URL=server.url) as ask:
                await ask("POST /api/agents", {"name": "a", "url": "http://127.0.0.1:1"})
                await ask("PUT /api/agents/a", {"name": "a", "model": "openai:x"})
                await ask.until(
                    "GET /api/agents/a", lambda one: (one["kind"], one["state"]) == ("model", "ready")
                )
                assert answer(await ask.say("a", "there?")) == "Here."
                found = await ask.until("GET /api/agents/a", lambda one: one["health"]["total"] == 1)
                assert found["health"]["costUsd"] == pytest.approx((100 * 3 + 10 * 15) / 1e6)

    run(scene())
