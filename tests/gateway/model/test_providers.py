"""The models that entries name: any provider's, with the operator's addresses and keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import answer, named, opened, reason, run
from tests.gateway.model.openai_server import ModelServer, Reply
from trunkline.errors import Misuse
from trunkline.gateway.model import providers
from trunkline.gateway.model.providers import ProviderModels
from trunkline.net import httpx_transport
from trunkline.net.egress import Egress

PROBE = """
import sys
import trunkline.hub.models
from trunkline.gateway.model.providers import ProviderModels
assert not {"openai", "anthropic"} & set(sys.modules), "a provider is loaded before it is used"
ProviderModels({"OPENAI_API_KEY": "x"}.get).find("openai:a")
assert "openai" in sys.modules
"""


def test_a_model_of_openai_goes_where_the_operator_says() -> None:
    async def scene() -> None:
        models = ProviderModels(
            {"OPENAI_BASE_URL": "http://a.test/v1", "OPENAI_API_KEY": "k", "MINE": "m"}.get
        )
        by_environment = models.find("openai:small")
        assert str(by_environment.base_url).startswith("http://a.test/v1")
        assert by_environment.client is models.find("openai:large").client  # type: ignore[attr-defined]
        # The key of the environment is not shown to another server.
        own = models.find("openai:small", "http://b.test/v1")
        assert (str(own.base_url).rstrip("/"), own.client.api_key) == ("http://b.test/v1", "none")  # type: ignore[attr-defined]
        assert models.find("openai:small", "http://b.test/v1", "MINE").client.api_key == "m"  # type: ignore[attr-defined]
        await models.close()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody:x", "nobody"),
        ("openai:x", "OPENAI_API_KEY"),
        ("mistral:x", "pip install 'pydantic-ai-slim[mistral]'"),
        ("groq:x", "pip install 'pydantic-ai-slim[groq]'"),
    ],
)
def test_what_is_missing_is_named(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(Misuse) as refused:
        ProviderModels(lambda _: None).find(name)
    assert words in str(refused.value)


def test_no_library_of_a_provider_is_loaded_before_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_provider_that_is_served_at_one_place_takes_no_other() -> None:
    with pytest.raises(Misuse, match="deepseek takes no baseUrl"):
        ProviderModels(lambda _: None).find("deepseek:x", "http://a.test")


COST = "https://proto-labs.ai/a2a/ext/cost-v1"
IS_THERE = pytest.mark.skipif(find_spec("anthropic") is None, reason="the library of the provider is missing")


@pytest.mark.parametrize(
    ("provider", "base", "path"),
    [
        ("openai", "/v1", "/v1/chat/completions"),
        ("openai-responses", "/v1", "/v1/responses"),
        ("ollama", "/v1", "/v1/chat/completions"),
        pytest.param("anthropic", "", "/v1/messages", marks=IS_THERE),
    ],
)
def test_each_protocol_carries_words_tools_and_tokens(
    tmp_path: Path, provider: str, base: str, path: str
) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        is_told = "a.txt has 3 bytes." in str(body)
        return (
            Reply(["It is ", "done."])
            if is_told
            else Reply(calls=[("write", {"path": "a.txt", "text": "abc"})])
        )

    async def scene() -> None:
        with ModelServer(reply) as server:
            address = server.url.removesuffix("/v1") + base
            agents = (
                f'agents:\n  - {{name: helper, model: "{provider}:small", baseUrl: "{address}", '
                "apiKeyEnv: MINE, capabilities: [/write], rules: [be kind]}\n"
            )
            async with opened(tmp_path, agents, MINE="sk-mine") as ask:
                assert (await ask.ready("helper"))["state"] == "ready"
                parts = [{"text": "write"}, {"raw": "iVBORw==", "mediaType": "image/png"}]
                task = await ask.say("helper", "", parts=parts)
                assert answer(task) == "It is done."
                assert len(named(task, "a.txt")) == len(named(task, "tool_call")) == 1
                assert server.paths == [path] * 2
                assert "iVBORw==" in str(server.asked[0]) and "- be kind" in str(server.asked[0])
                assert server.headers[0]["authorization"] == "Bearer sk-mine"
                usage = named(task, "response")[0]["metadata"][COST]["usage"]
                assert usage == {"input_tokens": 200, "output_tokens": 20}

    run(scene())


@pytest.mark.parametrize("provider", ["openai", pytest.param("anthropic", marks=IS_THERE)])
def test_an_error_of_each_provider_is_a_code(tmp_path: Path, provider: str) -> None:
    async def scene() -> None:
        with ModelServer(lambda _: Reply(status=429)) as server:
            address = server.url if provider == "openai" else server.url.removesuffix("/v1")
            agents = f'agents:\n  - {{name: helper, model: "{provider}:small", baseUrl: "{address}"}}\n'
            async with opened(
                tmp_path, agents, ANTHROPIC_API_KEY="sk-other", OPENAI_API_KEY="sk-other"
            ) as ask:
                await ask.ready("helper")
                assert "rate_limited: " in str((await ask.say("helper", "go"))["status"])
                assert "sk-other" not in str(server.headers)

    run(scene())


def test_models_that_a_tenant_names_are_called_where_its_egress_rule_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        with ModelServer(lambda _: Reply(["Here."])) as server:
            monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
            agents = 'agents:\n  - {name: ours, model: "ollama:small", tenants: all}\n'
            async with opened(tmp_path, agents, dev=False, key="operators-key-1") as boss:
                caller = await boss.tenant("north")
                await caller("POST /api/agents", {"name": "theirs", "model": "ollama:small"})
                for name in ("ours", "theirs"):
                    assert (await caller.ready(name))["state"] == "ready"
                refused = await caller.say("theirs", "where are you?")
                assert reason(refused).startswith("unavailable: ") and server.asked == []
                # What the operator's file names is called wherever it is.
                assert answer(await caller.say("ours", "where are you?")) == "Here."
                for networks, said in ((["127.0.0.0/8"], "Here."), ([], "")):
                    settings = {"settings": {"egress_networks": networks}}
                    assert (await boss("PATCH /admin/tenants/north", settings))[0] == 200
                    assert answer(await caller.say("theirs", "and now?")) == said

    run(scene())


@pytest.mark.parametrize("provider", ["openai", pytest.param("anthropic", marks=IS_THERE)])
def test_an_answer_without_an_end_or_a_word_ends_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    monkeypatch.setattr(httpx_transport, "ANSWER_BYTES", 100_000)

    async def scene() -> None:
        with ModelServer(lambda _: Reply(raw=[b": nothing\n\n" * 1000] * 1000)) as server:
            agents = f'agents:\n  - {{name: helper, model: "{provider}:small", baseUrl: "{server.url}"}}\n'
            async with opened(tmp_path, agents) as ask:
                await ask.ready("helper")
                assert reason(await ask.say("helper", "go")).startswith("limit_reached: ")
                assert len(server.asked) == 1

    run(scene())


def test_a_provider_leads_nowhere_else(tmp_path: Path) -> None:
    async def scene() -> None:
        with (
            ModelServer(lambda _: Reply(["Here."])) as other,
            ModelServer(lambda _: Reply(status=307, location=f"{other.url}/chat/completions")) as server,
        ):
            agents = f'agents:\n  - {{name: helper, model: "openai:small", baseUrl: "{server.url}"}}\n'
            async with opened(tmp_path, agents) as ask:
                await ask.ready("helper")
                assert reason(await ask.say("helper", "go")).startswith("provider_error: ")
                assert (len(server.asked), other.asked) == (1, [])

    run(scene())


def test_a_library_that_dials_by_itself_is_for_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_DIAL_THEMSELVES", ("deepseek",))
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    models = ProviderModels(lambda _: None)
    assert models.find("deepseek:x").model_name == "x"
    with pytest.raises(Misuse, match="only files may name its models"):
        models.find("deepseek:x", egress=Egress())


def test_tenants_of_one_rule_share_a_provider_and_others_do_not() -> None:
    models, rule = ProviderModels(lambda _: None), Egress()
    first: Any = models.find("ollama:a", "http://a.test/v1")
    # Its address is the operator's, so no rule of a tenant is asked.
    assert first.client is models.find("ollama:b", "http://a.test/v1", egress=rule).client  # type: ignore[attr-defined]
    given = ProviderModels({"OPENAI_API_KEY": "k"}.get)
    by_rule: Any = given.find("openai:a", egress=rule)
    assert by_rule.client is given.find("openai:b", egress=rule).client  # type: ignore[attr-defined]
    assert by_rule.client is not given.find("openai:a", egress=Egress()).client  # type: ignore[attr-defined]
