"""The models that entries name: made by pydantic-ai for their provider when first needed, and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any, Protocol

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from trunkline.errors import Misuse

# What a server of one's own is shown where no key is named: the library wants one.
_NO_KEY = "none"
_OPENAI = ("openai", "openai-chat", "openai-responses")


class ModelSource(Protocol):
    """Gives the models that entries name."""

    def find(self, name: str, base_url: str = "", api_key_env: str = "") -> Model:
        """The model of this name.

        Raises:
            Misuse: there is none, or what it needs is missing.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


class ProviderModels:
    """Models of providers; `variable` gives what the environment has of addresses and keys."""

    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._variable = variable
        # By name, address and key: as many as the operator has set up, whatever models entries name.
        self._providers: dict[tuple[str, str, str], Provider[Any]] = {}

    def find(self, name: str, base_url: str = "", api_key_env: str = "") -> Model:
        """See `ModelSource`."""
        provider, _, model = name.partition(":")
        # What OpenAI's own line of models speaks first is spoken by few who serve models like them.
        kind = "openai-chat" if provider == "openai" else provider
        given = self._given(provider, base_url, api_key_env)
        try:
            return infer_model(f"{kind}:{model}", partial(self._provider, given=given))
        except ImportError as error:
            raise Misuse(
                f"{name} needs a library of its provider: pip install 'pydantic-ai-slim[{provider}]'"
            ) from error
        except (UserError, TypeError, ValueError) as error:
            raise Misuse(f"{name}: {_first_line(error)}") from None

    def _provider(self, called: str, given: dict[str, str]) -> Provider[Any]:
        key = called, given.get("base_url", ""), given.get("api_key", "")
        known = self._providers.get(key)
        if known is None:
            known = self._providers[key] = _made(called, given)
        return known

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
        # Other libraries look for a key of theirs too, if they are given none.
        return {**found, "api_key": key or _NO_KEY} if key or address else found

    async def close(self) -> None:
        """See `ModelSource`."""
        providers = [*self._providers.values()]
        self._providers.clear()
        for provider in providers:
            # Whoever leaves it last closes what it holds.
            async with provider:
                pass


def _made(called: str, given: dict[str, str]) -> Provider[Any]:
    """A provider of this name, where the operator says it is.

    Raises:
        UserError: it cannot be what was said of it.
    """
    kind = infer_provider_class(called)
    members = signature(kind.__init__).parameters
    for name in given:
        if name not in members:
            what = "baseUrl" if name == "base_url" else "apiKeyEnv"
            raise UserError(f"{called} takes no {what}; its library has variables of its own")
    return kind(**given)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300] or type(error).__name__
