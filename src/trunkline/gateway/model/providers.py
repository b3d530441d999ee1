"""The models that entries name: made by pydantic-ai for their provider when first needed, and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from trunkline.errors import Misuse
from trunkline.fleet.catalogue.model_entry import ModelEntry
from trunkline.gateway.model.scripted import scripted_model
from trunkline.net.egress import Egress, target
from trunkline.net.http_client import SocketHttpClient
from trunkline.net.httpx_transport import GuardedClient, guarded_client

# What a server of one's own is shown where no key is named: the library wants one.
_NO_KEY = "none"
_OPENAI = ("openai", "openai-chat", "openai-responses")
# Their libraries take no client of httpx2, or take one and pass it over.
_DIAL_THEMSELVES = ("cohere", "groq", "huggingface")
_SIGN = ("bedrock",)


class ModelSource(Protocol):
    """Gives the models that entries name."""

    def find(
        self, name: str, base_url: str = "", api_key_env: str = "", *, egress: Egress | None = None
    ) -> Model:
        """The model of this name; what a tenant names is called where its rule `egress` allows.

        Raises:
            Misuse: there is none, what it needs is missing, or no rule holds for its library.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


def entry_model(models: ModelSource, entry: ModelEntry, name: str, egress: Egress | None) -> Model:
    """The model of an entry or of its advisor; where it is served the entry says of its own alone.

    Raises:
        Misuse: see `ModelSource`.
    """
    is_own = name == entry.model
    return models.find(
        name, entry.base_url if is_own else "", entry.api_key_env if is_own else "", egress=egress
    )


class MadeProvider(NamedTuple):
    """A provider of pydantic-ai, and the client that it dials with, unless it has one of its own."""

    provider: Provider[Any]
    client: GuardedClient | None


class ProviderModels:
    """Models of providers, and of scripts in the workspace; `variable` reads the environment."""

    def __init__(self, variable: Callable[[str], str | None], workspace: Path = Path()) -> None:
        self._variable = variable
        self._workspace = workspace
        # By name, address, key and rule: as many as the operator has set up, whatever models entries name.
        self._providers: dict[tuple[str, str, str, Egress | None], MadeProvider] = {}

    def find(
        self, name: str, base_url: str = "", api_key_env: str = "", *, egress: Egress | None = None
    ) -> Model:
        """See `ModelSource`."""
        provider, _, model = name.partition(":")
        if provider == "script":
            if egress is not None:
                raise Misuse(f"{name}: only files may name a script, because it is a file of the server")
            return scripted_model(self._workspace / model)
        # What OpenAI's own line of models speaks first is spoken by few who serve models like them.
        kind = "openai-chat" if provider == "openai" else provider
        given = self._given(provider, base_url, api_key_env)
        try:
            # An address that we were told is the operator's, whoever names the model.
            rule = None if "base_url" in given else egress
            return infer_model(f"{kind}:{model}", partial(self._provider, given=given, egress=rule))
        except ImportError as error:
            raise Misuse(
                f"{name} needs a library of its provider: pip install 'pydantic-ai-slim[{provider}]'"
            ) from error
        except Exception as error:  # noqa: BLE001 - whatever a library raises, its models are not there
            raise Misuse(f"{name}: {_first_line(error)}") from None

    def _provider(self, called: str, given: dict[str, str], egress: Egress | None) -> Provider[Any]:
        key = called, given.get("base_url", ""), given.get("api_key", ""), egress
        known = self._providers.get(key)
        if known is None:
            known = self._providers[key] = _made(called, given, egress)
        return known.provider

    def _given(self, provider: str, base_url: str, api_key_env: str) -> dict[str, str]:
        """What the operator has said of where a provider is, and with which key."""
        address, key = base_url, ""
        if provider in _OPENAI:
            address = base_url or self._variable("OPENAI_BASE_URL") or ""
            # A key is for whom it was given: that of the environment is not shown to an entry's own server.
            key = "" if base_url else self._variable("OPENAI_API_KEY") or ""
        found = {"base_url": address} if address else {}
        if api_key_env:
            return {**found, "api_key": self._variable(api_key_env) or ""}
        # Other libraries look for a key of theirs too, if given none; one that signs shows it to nobody.
        is_shown = bool(key or address) and provider not in _SIGN
        return {**found, "api_key": key or _NO_KEY} if is_shown else found

    async def close(self) -> None:
        """See `ModelSource`."""
        providers = [*self._providers.values()]
        self._providers.clear()
        for provider, client in providers:
            # Whoever leaves it last closes what it holds.
            async with provider:
                pass
            if client is not None:
                await client.aclose()


def _made(called: str, given: dict[str, str], egress: Egress | None) -> MadeProvider:
    """A provider of this name, where the operator says it is; without a rule that place may be anywhere.

    Raises:
        UserError: it cannot be what was said of it, or would pass over the rule.
        Unreachable: its address is none.
    """
    kind = infer_provider_class(called)
    members = signature(kind.__init__).parameters
    for name in given:
        if name not in members:
            what = "baseUrl" if name == "base_url" else "apiKeyEnv"
            raise UserError(f"{called} takes no {what}; its library has variables of its own")
    if called in _DIAL_THEMSELVES or "http_client" not in members:
        if egress is not None:
            raise UserError(f"the library of {called} obeys no egress rule; only files may name its models")
        return MadeProvider(kind(**given), None)
    rule = egress or Egress()
    client = guarded_client(SocketHttpClient(rule))
    options: dict[str, Any] = {**given, "http_client": client}
    provider = kind(**options)
    if egress is None:
        # Where it is may be known to its library alone.
        rule.allow([target(provider.base_url).host], ())
    return MadeProvider(provider, client)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300] or type(error).__name__
