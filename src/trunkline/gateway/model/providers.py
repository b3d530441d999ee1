"""The models that entries name: made by pydantic-ai for their provider when first needed, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from trunkline.errors import Misuse

# How many are kept with their connections; beyond that the longest unused is made again when it is needed.
_KEPT = 256
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
        self._made: dict[tuple[str, str, str], Model] = {}

    def find(self, name: str, base_url: str = "", api_key_env: str = "") -> Model:
        """See `ModelSource`."""
        given = self._given(name.partition(":")[0], base_url, api_key_env)
        key = name, given.get("base_url", ""), given.get("api_key", "")
        made = self._made.pop(key, None) or self._make(name, given)
        self._made[key] = made
        if len(self._made) > _KEPT:
            del self._made[next(iter(self._made))]
        return made

    def _given(self, provider: str, base_url: str, api_key_env: str) -> dict[str, str]:
        """What the operator has said of where a provider is, and with which key."""
        found: dict[str, str] = {}
        if provider in _OPENAI:
            address = base_url or self._variable("OPENAI_BASE_URL") or ""
            # A key is for whom it was given: that of the environment is not shown to an entry's own server.
            key = "" if base_url else self._variable("OPENAI_API_KEY") or ""
            found = {"base_url": address} if address else {}
            found |= {"api_key": key or _NO_KEY} if key or address else {}
        if api_key_env:
            found["api_key"] = self._variable(api_key_env) or ""
        return found

    def _make(self, name: str, given: dict[str, str]) -> Model:
        provider, _, model = name.partition(":")
        # What OpenAI's own line of models speaks first is spoken by few who serve models like them.
        kind = "openai-chat" if provider == "openai" else provider

        def provided(called: str) -> Provider[Any]:
            return infer_provider_class(called)(**given)

        try:
            return infer_model(f"{kind}:{model}", provided)
        except ImportError as error:
            raise Misuse(
                f"{name} needs a library of its provider: pip install 'pydantic-ai-slim[{provider}]'"
            ) from error
        except (UserError, TypeError, ValueError) as error:
            raise Misuse(f"{name}: {_first_line(error)}") from None

    async def close(self) -> None:
        """See `ModelSource`."""
        made = [*self._made.values()]
        self._made.clear()
        for model in made:
            # Entered and left once, whoever made it closes what it holds.
            async with model:
                pass


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300] or type(error).__name__
