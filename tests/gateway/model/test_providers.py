"""The models that entries name: any provider's, with the operator's addresses and keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

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
        ("anthropic:claude", "pip install 'pydantic-ai-slim[anthropic]'"),
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
