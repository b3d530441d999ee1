"""What a skill declares before it runs: which extensions it emits, which effects it has.

What it emits is read from its code, so that the card says it without the author's help. What its runs then
report is compared with what it declares; a difference is told, and never changes a run.
"""

from __future__ import annotations

import dis
import inspect
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from msgspec.structs import asdict

from trunkline.agent.binding import AuthorFunction
from trunkline.agent.extensions import CONFIDENCE, COST, DELTA, Change, RunReport, uri_of
from trunkline.agent.validation import is_number
from trunkline.errors import Misuse
from trunkline.wire.card import SKILL_PARAMETERS, Extension

if TYPE_CHECKING:
    from trunkline.agent.skill import Skill

log = logging.getLogger("trunkline.agent")
DRIFTS_KEPT = 64
TEXT_LIMIT = 256
_EffectPlace = tuple[str, str]
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


def emitted_by(function: AuthorFunction, turn: str) -> frozenset[str]:
    """The extensions whose calls stand in a function's own code; `turn` is the name its turn goes by."""
    if not turn:
        return frozenset()
    found = {name for code in _codes(function) for name in _attributes(code, turn)}
    return frozenset(_CALLS[name] for name in found if name in _CALLS)


def _codes(function: AuthorFunction) -> Iterator[CodeType]:
    """The code of a function and of those that it wraps."""
    called = function if inspect.isroutine(function) else type(function).__call__
    code = getattr(called, "__code__", None)
    if isinstance(code, CodeType):
        yield code
    inside = function.func if isinstance(function, partial) else getattr(function, "__wrapped__", None)
    if callable(inside):
        yield from _codes(inside)


def _attributes(code: CodeType, owner: str) -> Iterator[str]:
    """The attributes that code reads of the variable `owner`, in functions inside as well."""
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
    if not schemas:
        return found
    read = {skill: {"schema": schema} for skill, schema in schemas.items()}
    about = "The JSON schema of what a skill reads in a data part."
    return (*found, Extension(SKILL_PARAMETERS, about, required=False, params={"skills": read}))


# Of somebody who hands on what others report.
REPORTED = extensions_of(_EMITTED, {})


class EffectDrift(Struct, frozen=True):
    """A run whose effects are not those that its skill declares, each as `domain:path` and its sign."""

    task_id: str
    skill: str
    missing: tuple[str, ...]
    undeclared: tuple[str, ...]


class DriftMonitor:
    """Compares the runs of one agent with its declarations; `found` holds the newest that differ."""

    def __init__(self, count: Callable[[str], None] = lambda skill: None) -> None:
        self.found: deque[EffectDrift] = deque(maxlen=DRIFTS_KEPT)
        self._count = count
        self._warned: set[tuple[str, str]] = set()

    def check(self, skill: Skill, task_id: str, report: RunReport, *, success: bool) -> None:
        """Compare a run that has come to its end with what its skill declares."""
        for name, _ in report.bodies(success=success):
            if name not in skill.emits and (skill.id, name) not in self._warned:
                self._warned.add((skill.id, name))
                fix = f"@agent.skill(emits=[{name!r}]) puts it on the card"
                log.warning("extension.undeclared skill=%s extension=%s fix=%s", skill.id, name, fix)
        if not success or not skill.effects:
            return
        missing, undeclared = compare(skill.effects, report.changes)
        if not missing and not undeclared:
            return
        self.found.append(EffectDrift(task_id, skill.id, missing, undeclared))
        self._count(skill.id)
        # Quoted: a path may hold what a caller said.
        log.warning(
            "effects.drift task=%s skill=%s missing=%a undeclared=%a",
            task_id,
            skill.id,
            ", ".join(missing)[:TEXT_LIMIT],
            ", ".join(undeclared)[:TEXT_LIMIT],
        )


def compare(declared: Iterable[Effect], changes: Iterable[Change]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The declared effects that did not come about, and the changes that nobody declared.

    Additions to one place count together, by their sign; what is set or pushed has none and fits either.
    """
    expected = {(one.domain, one.path): _sign(one.delta) for one in declared}
    observed = _observed(changes)
    missing = [
        _effect_text(place, sign)
        for place, sign in expected.items()
        if observed.get(place, "none") not in (sign, "")
    ]
    undeclared = [
        _effect_text(place, sign)
        for place, sign in observed.items()
        if place not in expected or sign not in (expected[place], "")
    ]
    return tuple(missing), tuple(undeclared)


def _observed(changes: Iterable[Change]) -> dict[_EffectPlace, str]:
    sums: dict[_EffectPlace, float] = {}
    replaced: set[_EffectPlace] = set()
    for one in changes:
        place = (one.domain, one.path)
        sums.setdefault(place, 0)
        if one.op == "inc" and is_number(one.value):
            sums[place] += one.value  # pyright: ignore[reportOperatorIssue]
        else:
            replaced.add(place)
    return {
        place: "" if place in replaced else _sign(total)
        for place, total in sums.items()
        if total or place in replaced
    }


def _sign(delta: float) -> str:
    return "+" if delta > 0 else "-"


def _effect_text(place: _EffectPlace, sign: str) -> str:
    domain, path = place
    return f"{domain}:{path}{sign}"
