"""Whoever asks the fleet for work goes through here: an agent is chosen, and a task of that agent opened.

What is decided is part of the task's log. What is refused is a task too, of the hub itself, born rejected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.clock import now_ms, random_bits
from trunkline.errors import (
    Conflict,
    ContentTypeNotSupported,
    Duplicate,
    InvalidParams,
    TooManyRequests,
    Unavailable,
    UnsupportedOperation,
)
from trunkline.fleet.journal import JournalRow, Journals
from trunkline.fleet.routing.choose import (
    ALL,
    NOT_TAKEN,
    UNAVAILABLE,
    UNKNOWN_SKILL,
    Standing,
    Wish,
    choose,
    fan_out,
    nobody,
)
from trunkline.fleet.routing.guards import Guards, Storm
from trunkline.fleet.routing.standings import CatalogueFleet
from trunkline.log.correlation import correlation_id_of
from trunkline.log.events import DISPATCH_KEY, PushTarget, Routed
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.store.group_commit import Ack
from trunkline.store.records import Dedup, Where
from trunkline.wire.types import Correlation, Message, Metadata, SendRequest

log = logging.getLogger("trunkline.fleet")
# Lets an order become so many tasks while they are opened; None where nobody counts them.
Admitted = Callable[["DispatchOrder", int], AbstractAsyncContextManager[None] | None]
# The keys that are recorded with a task: the caller's own, and that of a cooldown.
Keys = tuple[Dedup | None, Dedup | None]
# The agent of tasks that nobody could be given, and the journal of what concerns no single agent.
HUB = "hub"
TARGETS_LIMIT = 100
DEDUP_MS = 24 * 3600 * 1000
# How long work for a skill that nobody has waits for the cards of agents that were just added, and its pause.
DISCOVERY_S, _PAUSE_S = 10.0, 0.05
_LOOK = 5
_LONGEST = 256
# How many decisions are kept in mind.
_DECIDED_LIMIT = 1024
_encode = msgspec.json.Encoder(order="sorted").encode


def _chance() -> float:
    return random_bits(53) / (1 << 53)


class DispatchOrder(Struct, frozen=True, kw_only=True):
    """A piece of work that somebody asks for; the conversation it belongs to is that of its message.

    `subject` is what it is about, for cooldowns; `trigger` what it was asked by; `charged` says that it was
    let in before; `can_wait` that it comes again while an agent has no room, and is not to be rejected then.
    `dedup` is the caller's own key of it; without one its correlation id is, if there is one.
    """

    tenant: str
    principal: str
    message: Message
    skill: str = ""
    targets: tuple[str, ...] = ()
    correlation_id: str = ""
    subject: str = ""
    trigger: str = "api"
    charged: bool = False
    can_wait: bool = False
    # Who may answer the questions of the task, as it is recorded.
    restriction: Metadata = {}
    metadata: Metadata | None = None
    output_modes: tuple[str, ...] = ()
    dedup: Dedup | None = None
    push: PushTarget | None = None
    trace: str = ""
    extensions: tuple[str, ...] | None = None
    correlation: Correlation | None = None
    flat: bool = False


class Dispatched(Struct, frozen=True):
    """The task that an order became: a new one, or that of the same order before."""

    feed: Feed
    is_new: bool = True


class _CooldownBegan(Exception):  # noqa: N818
    """Another caller's work started the cooldown of the chosen agent."""


class Policy(Struct, frozen=True, kw_only=True):
    """What an operator may set: who takes what names no skill, how latency weighs, and splits by skill."""

    helm: str = ""
    latency_weight: float = 0.0
    splits: Mapping[str, Mapping[str, float]] = {}


def _everything(order: DispatchOrder, count: int) -> None:
    del order, count


class Dispatcher:
    """Chooses agents and opens their tasks."""

    def __init__(
        self,
        runner: Runner,
        fleet: CatalogueFleet,
        policy: Policy | None = None,
        *,
        now: Callable[[], int] = now_ms,
        chance: Callable[[], float] = _chance,
        admitted: Admitted = _everything,
    ) -> None:
        """Take who does the work, and what refuses orders that are too many."""
        self.policy = policy or Policy()
        self._runner = runner
        self._fleet = fleet
        self._admitted = admitted
        self._now = now
        self._chance = chance
        store = runner.tasks.store
        self._journals = Journals(store.docs)
        self._heads = store.heads
        self._guards = Guards(store.heads)
        self._storm = Storm()
        # By tenant, agent and skill, with what they were made of.
        self._decided: dict[tuple[str, str, str], tuple[Standing, float, Routed]] = {}
        # One at a time for each agent whose tasks are counted: two must not see the same place free.
        self._entering: dict[tuple[str, str], asyncio.Lock] = {}

    async def dispatch(
        self, order: DispatchOrder, *, task_id: str = "", rest_s: float = 0.0
    ) -> list[Dispatched]:
        """Open a task for each agent that is meant; one that cannot be given to anybody is rejected.

        `task_id` is the id of the task, where whoever asks has one; asked for again it is that task. Whoever
        waits for its rest anyhow says how long: so a task may be given when it has rested.

        Raises:
            InvalidParams: the order names too many agents, or its key stands for another one.
            TooManyRequests: whoever asks may not have more done now.
            Unavailable: the runner is stopping.
        """
        targets = self._targets(order)
        if ALL in order.targets and not targets and await self._discovers(order.tenant):
            targets = self._targets(order)
        if task_id and await self._is_open(order.tenant, task_id):
            return [await self._known(order.tenant, task_id)]
        counted = self._admitted(order, max(1, len(targets)))
        if counted is None:
            return await self._each(order, targets, task_id, rest_s)
        try:
            async with counted:
                return await self._each(order, targets, task_id)
        except TooManyRequests:
            known = await self._repeated(order, targets)
            if not known:
                raise
            return known

    async def _repeated(self, order: DispatchOrder, targets: tuple[str, ...]) -> list[Dispatched]:
        """The tasks that the very same order became before; none if it is new."""
        parts = [_part(order, name) for name in targets] if _is_shared(order, targets) else [order]
        found: list[Dispatched] = []
        for one in parts:
            dedup = _dedup(one)
            earlier = None if dedup is None else await self._heads.duplicate(order.tenant, dedup.key)
            if earlier is None or not earlier.task_id or _is_other(earlier, dedup):
                return []
            found.append(await self._known(order.tenant, earlier.task_id))
        return found

    async def _each(
        self, order: DispatchOrder, targets: tuple[str, ...], task_id: str, rest_s: float = 0.0
    ) -> list[Dispatched]:
        if not _is_shared(order, targets):
            return [await self._one(order, "".join(targets), task_id, rest_s)]
        if not targets:
            task_id = task_id or self._runner.ids.new()
            return [await self._open(order, nobody(order.skill), None, task_id)]
        # They are found by what they have in common, also where whoever asks gave them nothing.
        order = replace(order, correlation_id=order.correlation_id or task_id or self._runner.ids.new())
        return await asyncio.gather(
            *[self._one(_part(order, name), name, _derived(task_id, name)) for name in targets]
        )

    def _targets(self, order: DispatchOrder) -> tuple[str, ...]:
        standings = self._fleet.with_skill(order.tenant, order.skill) if ALL in order.targets else ()
        targets = fan_out(order.targets, order.skill, standings)
        if len(targets) > TARGETS_LIMIT:
            raise InvalidParams(
                f"{len(targets)} agents are meant; at most {TARGETS_LIMIT} are asked at once", field="targets"
            )
        return targets

    async def explain(self, tenant: str, principal: str, wish: Wish, context_id: str = "") -> Routed:
        """The choice that a dispatch would make now; nothing is recorded."""
        made, _ = await self._choose(tenant, principal, wish, context_id, "")
        return made

    async def check_room(self, tenant: str, agent: str) -> None:
        """Refuse work that can wait for an agent that takes none now, for a reason that passes.

        Raises:
            TooManyRequests: the agent has as many tasks as it may have, or failed too often lately.
        """
        found = self._fleet.find(tenant, agent, "")
        if found is None:
            return
        if why := found.excluded if found.is_passing else await self._guards.busy(tenant, found):
            raise _passing_refusal(agent, why)

    async def sticky(self, tenant: str, principal: str, context_id: str) -> str:
        """The agent that has a conversation of this principal; empty if there is none."""
        if not context_id:
            return ""
        where = Where(principal=principal, context_id=context_id)
        page = await self._runner.tasks.store.heads.list(tenant, where, size=_LOOK)
        own = [head.agent for head in page.heads if head.agent not in (HUB, "") and not head.parent]
        return own[0] if own else ""

    async def _one(self, order: DispatchOrder, target: str, task_id: str, rest_s: float = 0.0) -> Dispatched:
        if task_id and await self._is_open(order.tenant, task_id):
            return await self._known(order.tenant, task_id)
        task_id = task_id or self._runner.ids.new()
        while True:
            with contextlib.suppress(_CooldownBegan):
                return await self._give(order, target, task_id, rest_s)

    async def _give(self, order: DispatchOrder, target: str, task_id: str, rest_s: float) -> Dispatched:
        """Choose an agent and open the task.

        Raises:
            _CooldownBegan: the cooldown of the agent has begun since the choice.
            TooManyRequests: no agent has room, and the order can wait.
        """
        effect = _effect(order)
        wish = Wish(skill=order.skill, effect=effect, target=target, key=order.correlation_id or task_id)
        named = self._named(order.tenant, wish)
        if named is not None:
            return await self._open(order, *named, task_id, rest_s)
        context_id = order.message.context_id
        while True:
            routed, winner = await self._choose(
                order.tenant, order.principal, wish, context_id, order.subject, can_wait=order.can_wait
            )
            if routed.refusal == UNKNOWN_SKILL and not target and await self._discovers(order.tenant):
                continue
            if winner is None or winner.concurrency is None:
                break
            async with self._entering.setdefault((order.tenant, winner.agent), asyncio.Lock()):
                # Another may have taken the last place since the choice.
                again = Wish(skill=order.skill, target=winner.agent)
                checked, _ = await self._choose(order.tenant, order.principal, again, "", order.subject)
                if checked.winner:
                    return await self._open(order, routed, winner, task_id)
        return await self._open(order, routed, winner, task_id, rest_s)

    async def _discovers(self, tenant: str) -> bool:
        """Wait for agents that have not shown their cards yet; return whether all have now, or failed to.

        A hub that has just started would reject the work, and its repeats, though an agent can do it.
        """
        if not self._fleet.is_discovering(tenant):
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCOVERY_S):
                while self._fleet.is_discovering(tenant):  # noqa: ASYNC110 - cards come by themselves
                    await asyncio.sleep(_PAUSE_S)
        return not self._fleet.is_discovering(tenant)

    async def _choose(
        self,
        tenant: str,
        principal: str,
        wish: Wish,
        context_id: str,
        subject: str,
        *,
        can_wait: bool = False,
    ) -> tuple[Routed, Standing | None]:
        policy, skill = self.policy, wish.skill
        if (quick := self._named(tenant, wish)) is not None:
            return quick
        sticky = "" if wish.target else await self.sticky(tenant, principal, context_id)
        wish = replace(
            wish,
            sticky=sticky,
            helm=policy.helm,
            split=policy.splits.get(skill, {}),
            latency_weight=policy.latency_weight,
        )
        names = [wish.target] if wish.target else [sticky, "" if skill else policy.helm]
        named = [self._fleet.find(tenant, name, skill) for name in names if name]
        able = self._fleet.with_skill(tenant, skill) if skill and not wish.target else ()
        found = {one.agent: one for one in (*able, *named) if one is not None}
        now = self._now()
        standings = await self._guards.judge(tenant, skill, subject, [*found.values()], now)
        routed = choose(wish, standings, self._chance())
        passing = next((one for one in standings if one.is_passing), None)
        if can_wait and passing is not None and not routed.winner:
            # Others took the room since `check_room`.
            raise _passing_refusal(passing.agent, passing.excluded)
        return routed, next((one for one in standings if one.agent == routed.winner), None)

    def _named(self, tenant: str, wish: Wish) -> tuple[Routed, Standing | None] | None:
        """The decision on work for an agent that was named; None where more decides than is known of it."""
        if not wish.target or wish.effect:
            return None
        named = self._fleet.find(tenant, wish.target, wish.skill)
        if named is None or named.cooldown_s or named.concurrency is not None:
            return None
        # What is known of it seldom changes.
        key, weight = (tenant, named.agent, wish.skill), self.policy.latency_weight
        known = self._decided.get(key)
        if known is None or known[0] is not named or known[1] != weight:
            # A skill is any text that a caller names.
            if len(self._decided) >= _DECIDED_LIMIT:
                self._decided.clear()
            routed = choose(replace(wish, latency_weight=weight), [named], 0.0)
            known = self._decided[key] = named, weight, routed
        routed = known[2]
        return routed, named if routed.winner else None

    async def _open(
        self,
        order: DispatchOrder,
        routed: Routed,
        winner: Standing | None,
        task_id: str,
        rest_s: float = 0.0,
    ) -> Dispatched:
        dedup, claim = _dedup(order), None
        if winner is not None and winner.cooldown_s and not await self._is_known(order.tenant, dedup):
            claim = await self._guards.claim(order.tenant, order.skill, order.subject, winner, self._now())
            if claim is None:
                raise _CooldownBegan
        request = SendRequest(
            message=order.message,
            accepted_output_modes=order.output_modes,
            metadata=_metadata(order, task_id),
            correlation=order.correlation,
            flat=order.flat,
        )
        # While a breaker is open it must hear at once that work has gone to its agent.
        rests = rest_s > 0 and self._fleet.is_sound
        try:
            routed, feed, opened = self._submit(order, request, (dedup, claim), routed, task_id)
            if rests:
                # One wake-up instead of two: the feed hears of a failed append as well.
                await self._runner.tasks.rest(feed, rest_s)
            if not feed.state.seq:
                await opened
        except Duplicate as earlier:
            if claim is not None and earlier.key == claim.key:
                raise _CooldownBegan from None
            if _is_other(earlier, dedup):
                raise InvalidParams(
                    "this key or correlation id was used for other work; use a fresh one",
                    field="correlationId" if order.dedup is None else "Idempotency-Key",
                    conflict="DUPLICATE_ID",
                ) from None
            return await self._known(order.tenant, earlier.task_id)
        except Conflict:
            # Under this very id it was opened before.
            return await self._known(order.tenant, task_id)
        if routed.refusal:
            await self._alarm(order, routed)
        elif not rests:
            self._fleet.tell_try(order.tenant, routed.winner)
        return Dispatched(feed)

    async def _is_known(self, tenant: str, dedup: Dedup | None) -> bool:
        """Whether an order has become a task before, so that it begins nothing anew."""
        return dedup is not None and await self._heads.duplicate(tenant, dedup.key) is not None

    def _submit(
        self, order: DispatchOrder, request: SendRequest, keys: Keys, routed: Routed, task_id: str
    ) -> tuple[Routed, Feed, Ack]:
        """Open the task; if the agent does not accept it, as a refused one that starts no cooldown."""
        try:
            return routed, *self._submitted(order, request, keys, routed, task_id)
        except KeyError:
            why = f"The agent {routed.winner!r} is being added or removed in this moment; try again."
            refused = replace(routed, winner="", refusal=UNAVAILABLE, reason=why)
        except (ContentTypeNotSupported, InvalidParams, UnsupportedOperation) as error:
            # Each of several agents has an outcome of its own, so this is none of the whole order.
            why = f"{routed.winner} does not take it: {error.message}"
            refused = replace(routed, winner="", refusal=NOT_TAKEN, reason=why)
        return refused, *self._submitted(order, request, (keys[0], None), refused, task_id)

    def _submitted(
        self, order: DispatchOrder, request: SendRequest, keys: Keys, routed: Routed, task_id: str
    ) -> tuple[Feed, Ack]:
        dedup, claim = keys
        return self._runner.submit(
            order.tenant,
            order.principal,
            request,
            dedup,
            agent=routed.winner or HUB,
            task_id=task_id,
            trace=order.trace,
            push=order.push,
            extensions=order.extensions,
            routed=routed,
            claim=claim,
        )

    async def _is_open(self, tenant: str, task_id: str) -> bool:
        """Return whether a task is in the log.

        Raises:
            Unavailable: an attempt to open it failed, and the runner still looks whether it was written.
        """
        feed = await self._runner.tasks.load(tenant, task_id)
        if feed is not None and not feed.state.seq:
            raise Unavailable("it is not known yet whether the task was opened; try again")
        return feed is not None

    async def _known(self, tenant: str, task_id: str) -> Dispatched:
        feed = await self._runner.tasks.load(tenant, task_id)
        if feed is None:
            raise Unavailable("the task of this work is no longer there; use a fresh key")
        return Dispatched(feed, is_new=False)

    async def _alarm(self, order: DispatchOrder, routed: Routed) -> None:
        now = self._now()
        target = "".join(routed.targets[:1])
        if not self._storm.count((order.tenant, routed.refusal, order.skill, target), now):
            return
        log.warning(
            "dispatch.storm tenant=%s refusal=%s skill=%a target=%a",
            order.tenant,
            routed.refusal,
            order.skill,
            target,
        )
        about = {"refusal": routed.refusal, "skill": order.skill[:_LONGEST], "target": target[:_LONGEST]}
        await self._journals.add(order.tenant, HUB, JournalRow(now, "storm", about))


def _passing_refusal(agent: str, why: str) -> TooManyRequests:
    return TooManyRequests(f"the agent {agent!r} takes no work now: {why}", field="concurrency")


def _effect(order: DispatchOrder) -> str:
    """Return the effect that the request names as a hint, or an empty string."""
    for metadata in (order.message.metadata, order.metadata):
        hint = (metadata or {}).get("effectHint")
        if isinstance(hint, str):
            return hint
    return ""


def _is_other(earlier: Duplicate, dedup: Dedup | None) -> bool:
    """Whether a key stands for other work than this."""
    return dedup is None or earlier.digest != dedup.digest


def _is_shared(order: DispatchOrder, targets: tuple[str, ...]) -> bool:
    """Whether an order is one for several, each of whom has a part of it."""
    return len(targets) > 1 or ALL in order.targets


def _part(order: DispatchOrder, target: str) -> DispatchOrder:
    """An order for one of several agents: each knows its own part again."""
    dedup = order.dedup
    if dedup is not None:
        dedup = replace(dedup, key=f"{dedup.key}\x1f{target}")
    return replace(order, targets=(target,), dedup=dedup)


def _derived(task_id: str, target: str) -> str:
    return f"{task_id}.{blake2b(target.encode(), digest_size=6).hexdigest()}" if task_id else ""


def _dedup(order: DispatchOrder) -> Dedup | None:
    if order.dedup is not None or not order.correlation_id:
        return order.dedup
    said = order.message
    what = (order.skill, order.targets, said.parts, said.context_id, order.metadata)
    key = "\x1f".join([order.principal, "c", order.correlation_id, *order.targets])
    return Dedup(key, blake2b(_encode(what), digest_size=16).digest(), DEDUP_MS)


def _metadata(order: DispatchOrder, task_id: str) -> Metadata:
    """What the request is recorded with; a peer is told the skill and the correlation id of it alone."""
    correlation_id = correlation_id_of(order.correlation, None) or order.correlation_id or task_id
    told = {"correlationId": correlation_id, "trigger": order.trigger, **order.restriction}
    named = {"skillHint": order.skill} if order.skill else {}
    return {**(order.metadata or {}), **named, DISPATCH_KEY: told}
