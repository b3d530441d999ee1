"""Which agent does a piece of work, decided from what is known of all of them. Pure.

An explicit target is never replaced by another agent. Else a conversation stays with the agent that has it;
else one of those that have the skill is drawn: by a split that is set for the skill, or by weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from trunkline.fleet.catalogue.entry import SkillEffect
from trunkline.fleet.routing.ranking import Score, TrackRecord, ranked
from trunkline.log.events import Candidate, Routed

NO_SKILL, UNKNOWN_SKILL, UNKNOWN_TARGET = "no_skill", "unknown_skill", "unknown_target"
COOLDOWN, UNAVAILABLE, NOT_TAKEN = "cooldown", "unavailable", "not_taken"
ALL = "all"
_UNREACHABLE = "it cannot be reached, and another agent has the skill"
# More candidates than these are not recorded: a log is no list of a large fleet.
SHOWN = 20


class Standing(Struct, frozen=True, kw_only=True):
    """An agent as the choice sees it; what is not known of its health is None.

    `skills` is None while nobody knows them: its card was never read and its entry names none.
    `excluded` says why it takes nothing now, in words; `cools` that it is only a cooldown, and `is_passing`
    that it has no room or is left alone after failures, which passes.
    `is_unreachable` says that its card could not be read last time: work for it waits until it can be.
    """

    agent: str
    skills: frozenset[str] | None = frozenset()
    excluded: str = ""
    cools: bool = False
    is_passing: bool = False
    is_unreachable: bool = False
    success_rate: float | None = None
    cost_usd: float | None = None
    latency_ms: float | None = None
    track: TrackRecord = TrackRecord()
    # What the skill in question changes in shared state when it succeeds, as the agent declares it.
    effects: tuple[SkillEffect, ...] = ()
    # How many tasks it may have in work, and how long the skill in question rests for a subject.
    concurrency: int | None = None
    cooldown_s: float = 0.0


class Wish(Struct, frozen=True, kw_only=True):
    """What is asked for: a skill, or an agent, or whoever has the conversation (`sticky`).

    An agent ranks higher if it declares `effect`, the name of one ("domain:path") or a whole domain.
    """

    skill: str = ""
    effect: str = ""
    target: str = ""
    sticky: str = ""
    helm: str = ""
    key: str = ""
    split: Mapping[str, float] = {}
    latency_weight: float = 0.0


def weight(standing: Standing, latency_weight: float = 0.0) -> float:
    """Return the weight of an agent in the draw.

    It is the success rate over one plus the cost of a success, or 1 while that is unknown, times one plus the
    confidence with which the agent declares the requested effect.
    """
    preference = 1.0 + standing.track.effect
    if standing.success_rate is None:
        return preference
    made = preference * standing.success_rate / (1.0 + max(standing.cost_usd or 0.0, 0.0))
    if latency_weight and standing.latency_ms is not None:
        made /= 1.0 + latency_weight * max(standing.latency_ms, 0.0) / 1000
    return made


def draw(weights: Sequence[float], number: float) -> int:
    """The place that a number between 0 and 1 falls on; where all weigh nothing, each is as likely."""
    total = sum(weights)
    if total <= 0:
        return min(int(number * len(weights)), len(weights) - 1)
    left = number * total
    for place, one in enumerate(weights):
        left -= one
        if left < 0:
            return place
    return max(place for place, one in enumerate(weights) if one > 0)


def share_of(key: str) -> float:
    """A number from 0 up to 1 that is always the same for a key."""
    return int.from_bytes(blake2b(key.encode(), digest_size=7).digest()) / (1 << 56)


def fan_out(targets: Sequence[str], skill: str, standings: Sequence[Standing]) -> tuple[str, ...]:
    """The agents that are meant, each once: of `all` every one that has the skill."""
    if ALL not in targets:
        return tuple(dict.fromkeys(targets))
    return tuple([one.agent for one in standings if one.skills is not None and skill in one.skills])


def choose(wish: Wish, standings: Sequence[Standing], number: float) -> Routed:
    """The decision with all that speaks for it; `number` between 0 and 1 is the draw."""
    if wish.effect:
        standings = [_with_effect(one, wish.effect) for one in standings]
    by_name = {one.agent: one for one in standings}
    if wish.target:
        return _target(wish, by_name.get(wish.target), "it was asked for by name")
    sticky = by_name.get(wish.sticky)
    if sticky is not None and _may(sticky, wish.skill):
        return _target(wish, sticky, "the conversation is with it")
    if not wish.skill:
        default = by_name.get(wish.helm)
        # A default agent that the tenant does not have is not named: it may be another tenant's.
        return nobody("") if default is None else _target(wish, default, "it is the default agent")
    able = [one for one in standings if one.skills is not None and wish.skill in one.skills]
    if not able:
        return nobody(wish.skill)
    return _drawn(wish, able, number)


def _with_effect(standing: Standing, effect: str) -> Standing:
    matching = [one.confidence for one in standing.effects if effect in (one.name, one.domain)]
    if not matching:
        return standing
    return replace(standing, track=replace(standing.track, effect=max(matching)))


def nobody(skill: str) -> Routed:
    """The refusal of work that no agent is named for."""
    if not skill:
        return _refused(Wish(), NO_SKILL, "Nothing names a skill or an agent; name one of them.")
    return _refused(Wish(skill=skill), UNKNOWN_SKILL, f"No agent here has the skill {skill!r}.")


def _may(standing: Standing, skill: str) -> bool:
    return not skill or standing.skills is None or skill in standing.skills


def _target(wish: Wish, found: Standing | None, why: str) -> Routed:
    if found is None:
        reason = f"There is no agent {wish.target!r} here."
        return _refused(wish, UNKNOWN_TARGET, reason, targets=(wish.target,))
    shown = _shown(wish, [found])
    if not _may(found, wish.skill):
        reason = f"The agent {found.agent!r} has no skill {wish.skill!r}."
        return _refused(wish, UNKNOWN_SKILL, reason, shown, (found.agent,))
    if found.excluded:
        reason = f"The agent {found.agent!r} takes nothing now: {found.excluded}."
        refusal = COOLDOWN if found.cools else UNAVAILABLE
        return _refused(wish, refusal, reason, shown, (found.agent,))
    return _won(wish, found, f"{found.agent} does it: {why}.", shown)


def _drawn(wish: Wish, able: Sequence[Standing], number: float) -> Routed:
    able = _without_unreachable(able)
    shown = _shown(wish, able)
    free = [one for one in able if not one.excluded]
    if not free:
        causes = "; ".join([f"{one.agent}: {one.excluded}" for one in able[:SHOWN]])
        refusal = COOLDOWN if all([one.cools for one in able]) else UNAVAILABLE
        reason = f"No agent with the skill {wish.skill!r} takes anything now ({causes})."
        return _refused(wish, refusal, reason, shown)
    split = [wish.split.get(one.agent, 0.0) for one in free]
    if sum(split) > 0:
        winner = free[draw(split, share_of(wish.key))]
        return _won(wish, winner, f"{winner.agent} does it: the split of {wish.skill!r} says so.", shown)
    winner = free[draw([weight(one, wish.latency_weight) for one in free], number)]
    if len(able) == 1:
        why = f"it is the only agent with the skill {wish.skill!r}"
    elif len(free) == 1:
        why = f"no other agent with the skill {wish.skill!r} is free"
    else:
        why = f"drawn by weight from {len(free)} agents with the skill {wish.skill!r}"
    return _won(wish, winner, f"{winner.agent} does it: {why}.", shown)


def _without_unreachable(able: Sequence[Standing]) -> Sequence[Standing]:
    """Exclude the agents that cannot be reached while another agent is free."""
    if not any([not one.excluded and not one.is_unreachable for one in able]):
        return able
    return [
        replace(one, excluded=_UNREACHABLE) if one.is_unreachable and not one.excluded else one
        for one in able
    ]


def _won(wish: Wish, winner: Standing, reason: str, shown: tuple[Candidate, ...]) -> Routed:
    targets = (wish.target,) if wish.target else ()
    return Routed(reason, winner.agent, skill=wish.skill, targets=targets, candidates=shown)


def _refused(
    wish: Wish, refusal: str, reason: str, shown: tuple[Candidate, ...] = (), targets: tuple[str, ...] = ()
) -> Routed:
    return Routed(reason, refusal=refusal, skill=wish.skill, targets=targets, candidates=shown)


def _shown(wish: Wish, able: Sequence[Standing]) -> tuple[Candidate, ...]:
    by_name = {one.agent: one for one in able}
    order = ranked([(one.agent, one.track) for one in able])
    return tuple([_candidate(by_name[name], made, wish.latency_weight) for name, made in order[:SHOWN]])


def _candidate(standing: Standing, made: Score, latency_weight: float) -> Candidate:
    known = {
        "successRate": standing.success_rate,
        "costUsd": standing.cost_usd,
        "latencyMs": standing.latency_ms,
    }
    told = {name: value for name, value in known.items() if value is not None}
    parts = {"weight": weight(standing, latency_weight), **told, **made.parts}
    return Candidate(standing.agent, made.value, parts, standing.excluded)
