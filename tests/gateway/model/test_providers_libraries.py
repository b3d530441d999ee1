"""Each provider of models that can be led to a server of ours speaks to it: words, tools, tokens, errors.

Libraries that are not among those of the tests are run by `make providers`; without them their cases are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from msgspec.structs import replace

from tests.gateway.model.hub import answer, named, opened, reason, run
from tests.gateway.model.openai_server import ModelServer, Reply
from trunkline.gateway.model import providers
from trunkline.net.egress import Egress
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse
from trunkline.net.http_client import SocketHttpClient
from trunkline.net.httpx_transport import guarded_client

COST = "https://proto-labs.ai/a2a/ext/cost-v1"
KEY = "sk-mine"
# By provider: the module of its library, what follows the address of the server, and the path that is asked.
BY_LIBRARY = {
    "anthropic": ("anthropic", "", "/v1/messages"),
    "bedrock": ("boto3", "", "/model/small/converse-stream"),
    "cohere": ("cohere", "", "/v2/chat"),
    "google": ("google.genai", "", "/v1/models/small:streamGenerateContent"),
    "google-cloud": ("google.genai", "", "/publishers/google/models/small:streamGenerateContent"),
    "groq": ("groq", "", "/openai/v1/chat/completions"),
    "huggingface": ("huggingface_hub", "/v1", "/v1/chat/completions"),
    "mistral": ("mistralai", "", "/v1/chat/completions"),
}
DIAL_THEMSELVES = {"bedrock", "cohere", "groq", "huggingface"}
# Those of OpenAI's library that are served at one place, with the host of it.
AT_HOME = {
    "alibaba": "dashscope-intl.aliyuncs.com",
    "azure": "ours.openai.azure.com",
    "azure-responses": "ours.openai.azure.com",
    "cerebras": "api.cerebras.ai",
    "crusoe": "api.inference.crusoecloud.com",
    "deepseek": "api.deepseek.com",
    "fireworks": "api.fireworks.ai",
    "github-copilot": "api.githubcopilot.com",
    "heroku": "us.inference.heroku.com",
    "litellm": "api.openai.com",
    "meta": "api.meta.ai",
    "moonshotai": "api.moonshot.ai",
    "nebius": "api.studio.nebius.com",
    "openrouter": "openrouter.ai",
    "ovhcloud": "oai.endpoints.kepler.ai.cloud.ovh.net",
    "sambanova": "api.sambanova.ai",
    "snowflake": "ours.snowflakecomputing.com",
    "together": "api.together.xyz",
    "vercel": "ai-gateway.vercel.sh",
    "vllm": "vllm.example",
    "zai": "api.z.ai",
}
# What some of the libraries read themselves.
VARIABLES = {
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AZURE_OPENAI_ENDPOINT": "https://ours.openai.azure.com",
    "OPENAI_API_VERSION": "2025-01-01",
    "SNOWFLAKE_ACCOUNT": "ours",
    "SNOWFLAKE_TOKEN": KEY,
    "SNOWFLAKE_PAT": KEY,
    "VLLM_BASE_URL": "https://vllm.example/v1",
}


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


LIBRARIES = [
    pytest.param(
        name, marks=pytest.mark.skipif(not _is_there(found[0]), reason=f"{found[0]} is not installed")
    )
    for name, found in BY_LIBRARY.items()
]


def _reply(body: dict[str, Any]) -> Reply:
    is_told = "a.txt has 3 bytes." in str(body)
    return (
        Reply(["It is ", "done."]) if is_told else Reply(calls=[("write", {"path": "a.txt", "text": "abc"})])
    )


class Dialled:
    """What goes out by the client of the hub: to `server` in the place of where it should go, if that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = ""
        self.hosts: list[str] = []
        monkeypatch.setattr(providers, "guarded_client", lambda client: guarded_client(_Led(self, client)))


class _Led:
    def __init__(self, dialled: Dialled, own: HttpClient) -> None:
        self._dialled, self._own = dialled, own
        self._local = SocketHttpClient(Egress(networks=("127.0.0.0/8",)))

    async def open(self, request: HttpRequest) -> HttpResponse:
        asked = urlsplit(request.url)
        self._dialled.hosts.append(asked.hostname or "")
        if not self._dialled.server:
            return await self._own.open(request)
        path = urlunsplit(("", "", asked.path, asked.query, ""))
        return await self._local.open(replace(request, url=self._dialled.server + path))

    async def close(self) -> None:
        await self._own.close()
        await self._local.close()


async def _checked(ask: Any, server: ModelServer, path: str) -> None:
    found = await ask.ready("helper")
    assert found["state"] == "ready", found
    task = await ask.say("helper", "write")
    assert answer(task) == "It is done.", reason(task)
    assert len(named(task, "a.txt")) == len(named(task, "tool_call")) == 1
    assert len(server.asked) == 2 and all([path in one for one in server.paths]), server.paths
    assert "- be kind" in str(server.asked[0])
    assert named(task, "response")[0]["metadata"][COST]["usage"] == {"input_tokens": 200, "output_tokens": 20}


def _entry(provider: str, address: str = "") -> str:
    model = "openai/small" if provider == "openrouter" else "small"
    # Its address is known to the library of Cohere by a variable alone.
    where = f'baseUrl: "{address}", ' if address and provider != "cohere" else ""
    key = "" if provider in ("bedrock", "snowflake") else "apiKeyEnv: MINE, "
    return (
        f'agents:\n  - {{name: helper, model: "{provider}:{model}", {where}{key}'
        "capabilities: [/write], rules: [be kind]}\n"
    )


@pytest.mark.parametrize("provider", LIBRARIES)
def test_a_library_speaks_to_the_server_that_an_entry_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    dialled, (_, behind, path) = Dialled(monkeypatch), BY_LIBRARY[provider]

    async def scene() -> None:
        with ModelServer(_reply) as server:
            address = server.url.removesuffix("/v1") + behind
            monkeypatch.setenv("CO_BASE_URL", address)
            async with opened(tmp_path, _entry(provider, address), MINE=KEY) as ask:
                await _checked(ask, server, path)
                shown = " ".join(server.headers[0].values())
                assert (KEY in shown) is (provider != "bedrock")
                # The others obey no egress rule, so only files may name them.
                assert len(dialled.hosts) == (0 if provider in DIAL_THEMSELVES else 2)
                server.answer = lambda _: Reply(status=401)
                assert reason(await ask.say("helper", "go")).startswith("auth_failed: ")

    run(scene())


@pytest.mark.parametrize("provider", list(AT_HOME))
def test_a_provider_that_is_served_at_one_place_is_called_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    dialled = Dialled(monkeypatch)

    async def scene() -> None:
        with ModelServer(_reply) as server:
            dialled.server = server.url.removesuffix("/v1")
            async with opened(tmp_path, _entry(provider), MINE=KEY) as ask:
                await _checked(ask, server, "")
                assert set(dialled.hosts) == {AT_HOME[provider]}
                assert KEY in " ".join(server.headers[0].values())

    run(scene())
