"""What a run says about itself: its cost, its confidence, its effects.

Each goes out twice: as a data part that names its media type, and under the extension's URI in the
artifact's metadata, because clients in the field read the one or the other.
"""

from __future__ import annotations

from msgspec import Struct

from trunkline.wire.types import Metadata, Part

_URI = "https://proto-labs.ai/a2a/ext/"
_TYPE = "application/vnd.protolabs."
OPS = ("set", "inc", "push")


class Usage(Struct, omit_defaults=True):
    """Tokens and money that a run used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cost_usd: float | None = None

    def __bool__(self) -> bool:
        return bool(self.input_tokens or self.output_tokens or self.cost_usd)


class Confidence(Struct):
    """How sure the agent is, 0 to 1."""

    value: float
    explanation: str = ""


class Effect(Struct, frozen=True):
    """A change that the run made in the world it shares with others."""

    domain: str
    path: str
    value: object
    op: str = "inc"


class Report:
    """Gathers what a run says about itself and shapes it at the end."""

    __slots__ = ("confidence", "effects", "usage")

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.confidence: Confidence | None = None
        self.effects: list[Effect] = []

    def parts(self, *, success: bool, duration_ms: int) -> list[tuple[str, Part]]:
        """The data parts with the URI of their extension."""
        found: list[tuple[str, Part]] = []
        if self.usage:
            found.append(_part("cost-v1", _cost(self.usage, success=success, duration_ms=duration_ms)))
        if self.confidence is not None:
            body: Metadata = {"confidence": self.confidence.value, "success": success}
            if self.confidence.explanation:
                body["explanation"] = self.confidence.explanation
            found.append(_part("confidence-v1", body))
        if self.effects and success:
            deltas = [
                {"domain": one.domain, "path": one.path, "op": one.op, "value": one.value}
                for one in self.effects
            ]
            found.append(_part("worldstate-delta-v1", {"deltas": deltas}))
        return found


def _cost(used: Usage, *, success: bool, duration_ms: int) -> Metadata:
    tokens = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
    if used.cache_creation_input_tokens:
        tokens["cache_creation_input_tokens"] = used.cache_creation_input_tokens
    if used.cache_read_input_tokens:
        tokens["cache_read_input_tokens"] = used.cache_read_input_tokens
    body: Metadata = {"usage": tokens, "durationMs": duration_ms, "success": success}
    if used.cost_usd is not None:
        body["costUsd"] = used.cost_usd
    return body


def _part(name: str, body: Metadata) -> tuple[str, Part]:
    mime_type = f"{_TYPE}{name}+json"
    return _URI + name, Part(data=body, media_type=mime_type, metadata={"mimeType": mime_type})
