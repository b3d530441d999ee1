"""Entries that are models: what they may say, and how a mistake is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trunkline.cli.hub_check import check
from trunkline.errors import InvalidParams
from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.fleet.catalogue.model_entry import Advisor, ModelLimits, ModelMemory

WHOLE = {
    "name": "scout", "model": "openai:small", "role": "scout", "goal": "find", "personality": "calm",
    "rules": ["no jokes"], "brevity": "lite", "maxTokens": 99, "temperature": 0.2,
    "capabilities": ["/fetch", "/agent"], "artifacts": False,
    "limits": {"modelCalls": 3, "tool_calls": 4, "delegations": 1, "seconds": 9, "resultBytes": 300},
    "memory": {"messages": 3, "bytes": 1000, "ageDecay": False, "ageHalfLifeDays": 10, "ageFloor": 0.1},
    "advisor": "anthropic:wise",
}  # fmt: skip


def test_every_member_is_read_from_files_and_by_the_api() -> None:
    for owner in ("file", "api"):
        entry = read_entry(WHOLE, owner)  # type: ignore[arg-type]
        model = entry.model
        assert entry.kind == "model" and model is not None
        assert (model.model, model.description, model.brevity) == ("openai:small", "scout — find", "lite")
        assert (model.max_tokens, model.temperature, model.artifacts) == (99, 0.2, False)
        assert model.limits == ModelLimits(
            model_calls=3, tool_calls=4, delegations=1, seconds=9, result_bytes=300
        )
        assert model.memory == ModelMemory(
            messages=3, bytes=1000, age_decay=False, age_half_life_days=10, age_floor=0.1
        )
        assert model.advisor == Advisor(model="anthropic:wise")


def test_a_file_may_name_where_the_model_is_and_its_key() -> None:
    given = {"name": "a", "model": "openai:x", "baseUrl": "http://127.0.0.1:1/v1", "apiKeyEnv": "KEY"}
    model = read_entry(given, "file", {"KEY": "k"}.get).model
    assert model is not None and (model.base_url, model.api_key_env) == ("http://127.0.0.1:1/v1", "KEY")
    with pytest.raises(InvalidParams, match="KEY is not set"):
        read_entry(given, "file")


@pytest.mark.parametrize(
    ("members", "field", "words"),
    [
        ({"model": "small"}, "model", "provider:name"),
        ({"model": "openai:a b"}, "model", "provider:name"),
        ({"url": "http://a.test"}, "url", "either a url"),
        ({"capabilities": ["/exec"]}, "capabilities[0]", "no capability '/exec'"),
        ({"capabilities": ["/mem", "/mem"]}, "capabilities[1]", "twice"),
        ({"capabilities": ["/search"]}, "capabilities[0]", "search in hub.yaml"),
        ({"brevity": "short"}, "brevity", "short"),
        ({"maxTokens": 0}, "maxTokens", ">= 1"),
        ({"temperature": 3}, "temperature", "<= 2"),
        ({"limits": {"modelCals": 3}}, "limits.modelCals", "did you mean 'modelCalls'?"),
        ({"memory": {"bytes": -1}}, "memory.bytes", ">= 0"),
        ({"advisor": "wise"}, "advisor", "provider:name"),
        ({"advisor": {"model": "wise"}}, "advisor.model", "provider:name"),
        ({"advisor": {"modell": "a:b"}}, "advisor.modell", "did you mean 'model'?"),
        ({"baseUrl": "http://a.test"}, "baseUrl", "only a file"),
        ({"apiKeyEnv": "KEY"}, "apiKeyEnv", "only a file"),
        ({"goal": "${SECRET}"}, "goal", "no variables here"),
        ({"headers": {"x": "y"}}, "headers", "runs here"),
        ({"mode": "spoken"}, "mode", "not taken: how an agent speaks"),
        ({"channel": "voice"}, "channel", "not taken: an answer is text"),
        ({"intent": {"mode": "llm"}}, "intent", "not taken: who is asked"),
        ({"index": True}, "index", "helm of hub.yaml"),
        ({"event_types": ["text"]}, "eventTypes", "artifacts says"),
        ({"advisorModel": "a:b"}, "advisorModel", "write it as advisor"),
        ({"memory": {"autoTag": True}}, "memory.autoTag", "notes have no tags"),
        ({"memory": {"intent_routing": True}}, "memory.intentRouting", "not taken"),
    ],
)
def test_a_mistake_by_the_api_is_named(members: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        read_entry({"name": "a", "model": "openai:x", **members}, "api")
    assert (refused.value.field, words in refused.value.message) == (field, True), refused.value


@pytest.mark.parametrize("members", [{"role": "x"}, {"capabilities": ["/mem"]}, {"baseUrl": "http://a.test"}])
def test_other_agents_have_none_of_it(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match="only an agent with a model"):
        read_entry({"name": "a", "url": "http://a.test", **members}, "file")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_an_address_is_one(provider: str) -> None:
    with pytest.raises(InvalidParams, match="not an http"):
        read_entry({"name": "a", "model": f"{provider}:x", "baseUrl": "ftp://x"}, "file")


def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key of nobody")
    (tmp_path / "agents.yaml").write_text(
        "agents:\n  - name: a\n    model: openai:x\n    capabilities:\n      - /mem\n      - /search\n"
    )
    (wrong,) = check(str(tmp_path))
    assert "agents.yaml, line 6" in wrong and "/search needs a search engine" in wrong
    (tmp_path / "hub.yaml").write_text("search: http://search.test/search\n")
    assert check(str(tmp_path)) == []
    (tmp_path / "hub.yaml").write_text("name: x\nsearch: here\n")
    assert "hub.yaml, line 2: this is not an http://" in check(str(tmp_path))[0]


def test_the_entry_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key of nobody")
    page = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text()
    shown = page.partition("## Agents that are models")[2].partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "agents.yaml").write_text(shown)
    assert "model: openai:" in shown and check(str(tmp_path)) == []
