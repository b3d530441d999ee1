"""What a run reports about itself: its cost, its confidence, its effects."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, to_builtins
from msgspec.structs import asdict, astuple

from trunkline.agent.validation import is_number, read_json, read_text
from trunkline.errors import Misuse
from trunkline.wire.reports import URI
from trunkline.wire.types import Metadata

COST = "cost-v1"
CONFIDENCE = "confidence-v1"
DELTA = "worldstate-delta-v1"
OPS = ("set", "inc", "push")


def uri_of(name: str) -> str:
    """The URI of an extension on the wire."""
    return URI + name


class Usage(Struct, omit_defaults=True):
    """Tokens and money that a run used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cost_usd: float | None = None

    def __bool__(self) -> bool:
        return any(astuple(self))

    def plus(self, more: Usage) -> Usage:
        """The sum of two usages."""
        known = [cost for cost in (self.cost_usd, more.cost_usd) if cost is not None]
        return Usage(
            self.input_tokens + more.input_tokens,
            self.output_tokens + more.output_tokens,
            self.cache_creation_input_tokens + more.cache_creation_input_tokens,
            self.cache_read_input_tokens + more.cache_read_input_tokens,
            sum(known) if known else None,
        )


class Confidence(Struct, omit_defaults=True):
    """How sure the agent is, 0 to 1."""

    confidence: float
    explanation: str = ""


class Change(Struct, frozen=True):
    """A change that the run made in the world it shares with others."""

    domain: str
    path: str
    value: object
    op: str = "inc"


class RunReport(Struct):
    """Gathers what a run says about itself and shapes it at the end, as far as the caller wants it."""

    # The URIs that the caller named; None if it named none, so that it gets all.
    only: tuple[str, ...] | None = None
    usage: Usage | None = None
    confidence: Confidence | None = None
    changes: list[Change] = []

    def add_usage(self, more: Usage) -> None:
        """Add to what was used.

        Raises:
            Misuse: something of it is no number.
        """
        for name in more.__struct_fields__:
            value = getattr(more, name)
            if not is_number(value) and not (value is None and name == "cost_usd"):
                raise Misuse(f"{name} is a number, not {type(value).__name__}")
        self.usage = more if self.usage is None else self.usage.plus(more)

    def set_confidence(self, value: float, explanation: str) -> None:
        """Say how sure the answer is.

        Raises:
            Misuse: the value is no number, or the explanation no text.
        """
        try:
            known = float(value)
        except (TypeError, ValueError, OverflowError):
            raise Misuse(f"value is a number, not {type(value).__name__}") from None
        self.confidence = Confidence(min(1.0, max(0.0, known)), read_text("explanation", explanation))

    def add_change(self, made: Change) -> None:
        """Add a change.

        Raises:
            Misuse: no reader would understand it.
        """
        if made.op not in OPS:
            raise Misuse(f"effect op {made.op!r} is none of {', '.join(OPS)}")
        if made.op == "inc" and not is_number(made.value):
            raise Misuse(f'an effect adds a number, not {made.value!r}; to say what now holds, use op="set"')
        domain, path = read_text("domain", made.domain), read_text("path", made.path)
        if not domain or not path:
            raise Misuse("an effect's domain and path are text that is not empty")
        # A copy: what the author does to its value afterwards changes nothing that was said.
        value = read_json("value", made.value)
        self.changes.append(Change(domain, path, value, read_text("op", made.op)))

    def bodies(self, *, success: bool, duration_ms: int = 1) -> Iterator[tuple[str, Metadata]]:
        """The body of each report, by the name of its extension."""
        if self.usage:
            yield COST, _cost(self.usage, success=success, duration_ms=duration_ms)
        if self.confidence is not None:
            yield CONFIDENCE, {**to_builtins(self.confidence), "success": success}
        if self.changes and success:
            yield DELTA, {"deltas": [asdict(one) for one in self.changes]}

    def sorted_out(self, *, success: bool, duration_ms: int) -> tuple[Metadata, Metadata]:
        """The bodies of the reports that the caller wants, by the URI of their extension; and the others."""
        wanted: Metadata = {}
        untold: Metadata = {}
        for name, body in self.bodies(success=success, duration_ms=duration_ms):
            uri = uri_of(name)
            (wanted if self.only is None or uri in self.only else untold)[uri] = body
        return wanted, untold


def _plain(value: float | None) -> float | None:
    if value is None or type(value) in (int, float):
        return value
    return int(value) if isinstance(value, int) else float(value)


def _cost(used: Usage, *, success: bool, duration_ms: int) -> Metadata:
    # Numbers of another library's own kind are none to a log, though they are to their author.
    counts = {name: _plain(value) for name, value in asdict(used).items()}
    cost = {"costUsd": counts.pop("cost_usd")} if used.cost_usd is not None else {}
    tokens = {"input_tokens": 0, "output_tokens": 0} | {name: one for name, one in counts.items() if one}
    return {"usage": tokens, "durationMs": duration_ms, "success": success, **cost}
