"""What one agent tells the next of the chain of tasks they are part of: hops, budget, cost and deadline.

It travels in the metadata of messages, and nowhere else: the message that opened a task is in its log,
so whoever goes on with the task reads the same. Pure; the time is passed in.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from trunkline.errors import InvalidParams, UnsupportedOperation
from trunkline.log.fold import State
from trunkline.wire.types import Message, Metadata, SendRequest

KEY = "trunkline.chain"
HOPS, BUDGET, DEADLINE, COST = "CHAIN_HOPS", "CHAIN_BUDGET", "CHAIN_DEADLINE", "CHAIN_COST"
_LONGEST_ROOT = 256
_LARGEST = 2**53
# The part of what is left that one call is given: a smaller one lets a task call more, and these fewer.
_PART = 16
# A run may ask from several threads; handing out takes no time, so that one lock is enough for all.
_handing_out = threading.Lock()


class Bounds(Struct, frozen=True):
    """How many tasks may be in a line, and how many there may be below one root with the root itself."""

    hops: int = 8
    tasks: int = 1024


class Hops(Struct, frozen=True):
    """Where a task stands: its root, how many tasks are before it, how many may be made, and until when.

    `budget` counts the task that the message opens; without one there is no limit but the reader's own.
    `cost` is what the task and all below it may cost, in dollars.
    """

    root: str = ""
    hops: int = 0
    budget: int | None = None
    deadline: int | None = None
    cost: float | None = None


def check(request: SendRequest, bounds: Bounds, now_ms: int) -> None:
    """Whether a message may open a task.

    Raises:
        InvalidParams: what it says of its chain cannot be read; the path is named.
        UnsupportedOperation: the chain is too long, has made as many tasks as it may, or is too late.
    """
    chain = _read(request.message.metadata, request.metadata)
    if chain is None:
        return
    if chain.hops >= bounds.hops:
        raise _refused(
            HOPS,
            f"this would be task {chain.hops + 1} in a line, and hop_limit is {bounds.hops}: is it a loop?",
        )
    if chain.budget is not None and chain.budget <= 0:
        raise _refused(
            BUDGET, "the chain has made as many tasks as it may; its first agent's task_budget says how many"
        )
    if chain.cost is not None and chain.cost <= 0:
        raise _refused(COST, "what the chain may cost is spent")
    if chain.deadline is not None and chain.deadline <= now_ms:
        raise _refused(DEADLINE, "the deadline of the chain has passed; nobody waits for the answer")


def is_called(state: State) -> bool:
    """Whether a task was asked for by another agent, and not by a person or a program."""
    chain = _recorded(state) if state.message.metadata or state.metadata else None
    return chain is not None and chain.hops > 0


def deadline(state: State) -> int | None:
    """The deadline of a task's chain, if it has one; that of the last answer counts, where it names one."""
    answer = state.answers[-1] if state.answers else None
    if isinstance(answer, Message) and answer.metadata and KEY in answer.metadata:
        renewed = _chain_of(answer.metadata, None)
        if renewed is not None and renewed.deadline is not None:
            return renewed.deadline
    if not state.message.metadata and not state.metadata:
        return None
    chain = _recorded(state)
    return None if chain is None else chain.deadline


class Grants(Struct):
    """What one run gives to those it calls: a share of what its task may still make, so never too much.

    `spent` is what the run itself has cost so far; `left` are the tasks that it may still have made.
    """

    bounds: Bounds
    left: int | None = None
    given: float = 0.0
    spent: float = 0.0

    def cost_left(self, state: State) -> float | None:
        """What the task and all below it may still cost; None if nobody has set a bound."""
        chain = _recorded(state)
        # What was given away counts as spent: what becomes of it below is not always told.
        return None if chain is None or chain.cost is None else chain.cost - self.spent - self.given

    def take(self, state: State) -> Metadata:
        """The chain for one message to another agent.

        Raises:
            UnsupportedOperation: the chain ends here; the text says why, `details["reason"]` in a word.
        """
        chain = _recorded(state) or Hops()
        bounds = self.bounds
        hops = chain.hops + 1
        if hops >= bounds.hops:
            raise _refused(
                HOPS, f"task {state.task_id} is the last that hop_limit ({bounds.hops}) allows in a line"
            )
        with _handing_out:
            if self.left is None:
                # The task itself is one of those that its caller allowed.
                self.left = min(chain.budget or bounds.tasks, bounds.tasks) - 1
            if self.left < 1:
                raise _refused(
                    BUDGET,
                    f"task {state.task_id} has handed out all of its part of task_budget ({bounds.tasks})",
                )
            dollars = self.cost_left(state)
            if dollars is not None and dollars <= 0:
                raise _refused(COST, f"task {state.task_id} has spent what it may cost")
            # Half of it, so that something is left for its own work and for others.
            self.given += (dollars or 0.0) / 2
            # Enough for a line as long as it may be; and much stays for others, however many are called.
            share = min(self.left, max(bounds.hops - hops, self.left // _PART))
            self.left -= share
        given: Metadata = {"root": chain.root or state.task_id, "hops": hops, "budget": share}
        given |= {} if dollars is None else {"cost": dollars / 2}
        return given if chain.deadline is None else {**given, "deadline": chain.deadline}


def grants_after(state: State, calls: int, spent: float) -> Grants:
    """Return the grants of a run after some calls, each of which had half of what was left.

    Args:
        state: the task of the run.
        calls: how many tasks the run has called.
        spent: what the run itself has cost, in dollars.
    """
    chain = _recorded(state)
    dollars = None if chain is None else chain.cost
    return Grants(Bounds(), given=(dollars or 0.0) * (1 - 0.5**calls), spent=spent)


def handed_on(state: State, calls: int, spent: float) -> Metadata:
    """Return the chain of a task for a message by which another task does a part of its own work.

    It is the chain as it is, except for the cost: of what the run has left, the other task has half.
    """
    found = [told for told in (state.message.metadata, state.metadata) if told and KEY in told]
    if _recorded(state) is None:
        return {}
    left = grants_after(state, calls, spent).cost_left(state)
    share = {} if left is None else {"cost": max(left, 0.0) / 2}
    return {KEY: {**found[0][KEY], **share}}


def relayed(state: State) -> Metadata:
    """The chain for the message by which a task is done elsewhere: one task more in the line, else as it is.

    Also where the caller named none: what leads back here must come to an end.
    """
    chain = _recorded(state) or Hops()
    more = {"budget": chain.budget, "deadline": chain.deadline, "cost": chain.cost}
    told = {name: value for name, value in more.items() if value is not None}
    return {KEY: {"root": chain.root or state.task_id, "hops": chain.hops + 1, **told}}


def _refused(reason: str, text: str) -> UnsupportedOperation:
    return UnsupportedOperation(text, field=f"message.metadata.{KEY}", reason=reason)


def _recorded(state: State) -> Hops | None:
    return _chain_of(state.message.metadata, state.metadata)


def _chain_of(of_message: Metadata | None, of_request: Metadata | None) -> Hops | None:
    try:
        return _read(of_message, of_request)
    except InvalidParams:
        # Recorded by a version that did not look at it.
        return None


def _read(of_message: Metadata | None, of_request: Metadata | None) -> Hops | None:
    for metadata, place in ((of_message, "message.metadata"), (of_request, "metadata")):
        if metadata and KEY in metadata:
            return _chain(metadata[KEY], f"{place}.{KEY}")
    return None


def _chain(given: object, place: str) -> Hops:
    if not isinstance(given, dict):
        raise InvalidParams(f"{place}: expected object", field=place)
    members = cast("Mapping[str, object]", given)
    root = members.get("root", "")
    if not isinstance(root, str) or len(root) > _LONGEST_ROOT or not root.isprintable():
        raise InvalidParams(
            f"{place}.root: expected at most {_LONGEST_ROOT} printable characters", field=f"{place}.root"
        )
    hops = _number(members, "hops", place)
    budget, deadline = _number(members, "budget", place), _number(members, "deadline", place)
    return Hops(root, hops or 0, budget, deadline, _dollars(members, place))


def _dollars(members: Mapping[str, object], place: str) -> float | None:
    value = members.get("cost")
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= cast("float", value) <= _LARGEST:
        raise InvalidParams(f"{place}.cost: expected a number of dollars, 0 or more", field=f"{place}.cost")
    return float(cast("float", value))


def _number(members: Mapping[str, object], name: str, place: str) -> int | None:
    value = members.get(name)
    if value is None:
        return None
    # Some carry metadata as protobuf does, where every number is a float.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise InvalidParams(f"{place}.{name}: expected a whole number, 0 or more", field=f"{place}.{name}")
    return value
