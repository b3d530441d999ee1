"""Model agents in the catalogue of a hub: by files and the API, for each tenant its own, or with a reason."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import V1, opened, run

OPERATOR = (*V1, ("authorization", "Bearer boss"))


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
