"""What a skill declares before it runs: which extensions it emits, which effects it has.

What it emits is read from its code, so that the card says it without the author's help.
"""

from __future__ import annotations

import dis
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import CodeType
from typing import cast

from msgspec import Struct
from msgspec.structs import asdict

from trunkline.agent.binding import Author
from trunkline.agent.extensions import CONFIDENCE, COST, DELTA, is_number, uri_of
from trunkline.errors import Misuse
from trunkline.wire.card import SKILL_PARAMETERS, Extension

DOMAIN = "effect-domain-v1"
NAME_LIMIT = 256
# In the order in which they stand on a card.
ABOUT = {
    COST: "Tokens, money and time that a run took, also when it failed.",
    CONFIDENCE: "How sure the agent is of its answer, from 0 to 1.",
    DOMAIN: "What the skills change in shared state when they succeed.",
    DELTA: "What a successful run has changed in shared state.",
}
_EMITTED = (COST, CONFIDENCE, DELTA)
_CALLS = {"usage": COST, "confidence": CONFIDENCE, "effect": DELTA}


class Effect(Struct, frozen=True):
    """What a skill changes in shared state when it succeeds; planners read it on the card.

    The sign of `delta` is what a run is held to; `confidence` is how likely the change is, 0 to 1.
    """

    domain: str
    path: str
    delta: float = 1
    confidence: float = 1.0


def read_effects(given: object) -> tuple[Effect, ...]:
    """The effects that an author declares, as `Effect` or as the same members in a mapping.

    Raises:
        Misuse: one cannot be; the message says which and why.
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise Misuse("effects is a list: effects=[Effect(domain, path, delta, confidence)]")
    effects = tuple(map(_effect, cast("Iterable[object]", given)))
    places = [(one.domain, one.path) for one in effects]
    for domain, path in places:
        if places.count((domain, path)) > 1:
            raise Misuse(f"the effect on {domain!r} {path!r} is declared twice")
    return effects


def _effect(given: object) -> Effect:
    if isinstance(given, Mapping):
        try:
            given = Effect(**cast("Mapping[str, object]", given))  # pyright: ignore[reportArgumentType]
        except TypeError as error:
            raise Misuse(f"an effect has domain, path, delta and confidence: {error}") from None
    if not isinstance(given, Effect):
        raise Misuse(f"an effect is Effect(domain, path, delta, confidence), not {given!r}")
    if not _is_name(given.domain) or not _is_name(given.path):
        raise Misuse(f"domain and path are 1 to {NAME_LIMIT} printable characters: {given}")
    if not is_number(given.delta) or not math.isfinite(given.delta) or not given.delta:
        raise Misuse(f"delta is a number other than 0, as its sign is what counts: {given}")
    if not is_number(given.confidence) or not 0 <= given.confidence <= 1:
        raise Misuse(f"confidence is a number from 0 to 1: {given}")
    return given


def _is_name(word: object) -> bool:
    return isinstance(word, str) and word.isprintable() and 0 < len(word) <= NAME_LIMIT


def read_emits(given: object) -> tuple[str, ...]:
    """The extensions that an author says a skill emits.

    Raises:
        Misuse: there is no such extension.
    """
    known = ", ".join(map(repr, _EMITTED))
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Misuse(f"emits is a list of {known}")
    names = tuple(cast("Iterable[object]", given))
    for name in names:
        if name not in _EMITTED:
            raise Misuse(f"a skill emits {known}, not {name!r}")
    return cast("tuple[str, ...]", names)


def emitted_by(function: Author, turn: str) -> frozenset[str]:
    """The extensions whose calls stand in a function's own code; `turn` is the name its turn goes by."""
    if not turn:
        return frozenset()
    found = {name for code in _codes(function) for name in _attributes(code, turn)}
    return frozenset(_CALLS[name] for name in found if name in _CALLS)


def _codes(function: Author) -> Iterator[CodeType]:
    """The code of a function and of those that it wraps."""
    called = function if inspect.isroutine(function) else type(function).__call__
    code = getattr(called, "__code__", None)
    if isinstance(code, CodeType):
        yield code
    inside = function.func if isinstance(function, partial) else getattr(function, "__wrapped__", None)
    if callable(inside):
        yield from _codes(inside)


def _attributes(code: CodeType, owner: str) -> Iterator[str]:
    """What is asked of the variable `owner`, in functions inside as well."""
    loaded: object = None
    for each in dis.get_instructions(code):
        if each.opname == "EXTENDED_ARG":
            continue
        # Only the names count: how a variable or an attribute is loaded changes from Python to Python.
        name = cast("object", each.argval)
        if loaded == owner and isinstance(name, str):
            yield name
        # One instruction may load two variables; the second lies on top.
        loaded = name
        if isinstance(name, tuple) and name:
            loaded = cast("tuple[object, ...]", name)[-1]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _attributes(inner, owner)


def extensions_of(
    emits: Iterable[str],
    effects: Mapping[str, Sequence[Effect]],
    schemas: Mapping[str, Mapping[str, object]] | None = None,
) -> tuple[Extension, ...]:
    """What a card says of the extensions that skills emit, of what they change and of what they read."""
    declared = {skill: {"effects": [asdict(one) for one in own]} for skill, own in effects.items() if own}
    named = {*emits, DOMAIN} if declared else set(emits)
    found = tuple(
        Extension(
            uri_of(name), about, required=False, params={"skills": declared} if name == DOMAIN else None
        )
        for name, about in ABOUT.items()
        if name in named
    )
    return (*found, _parameters(schemas)) if schemas else found


def _parameters(schemas: Mapping[str, Mapping[str, object]]) -> Extension:
    skills = {skill: {"schema": schema} for skill, schema in schemas.items()}
    about = "The JSON schema of what a skill reads in a data part."
    return Extension(SKILL_PARAMETERS, about, required=False, params={"skills": skills})
