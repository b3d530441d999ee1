"""The models that entries name: any provider's, with the operator's addresses and keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import answer, named, opened, run
from tests.gateway.model.openai_server import ModelServer, Reply
from trunkline.errors import Misuse
from trunkline.gateway.model.providers import ProviderModels

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
