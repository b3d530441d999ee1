"""Which of a task's events its push targets are to be told: every change of state, once each.

Pure. The store writes the rows in the transaction of the events, so that nothing is told that did
not happen and nothing that happened is left untold.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from urllib.parse import urlsplit

from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.wire.types import RESTING, TaskState


def announced(state: State, events: Sequence[ev.AnyEvent]) -> list[tuple[int, ev.PushTarget]]:
    """The seqs to be told and whom, once these events are appended here.

    Whoever comes while the task rests is told at once how it stands: no later event would tell him.
    """
    found: list[tuple[int, ev.PushTarget]] = []
    seq, now, targets = state.seq, state.state, dict(state.push)
    for event in events:
        seq += ev.span(event)
        match event:
            case ev.Status(state=entered):
                if entered is not now and entered is not TaskState.SUBMITTED:
                    found += [(seq, target) for target in targets.values()]
                now = entered
            case ev.Replied():
                found += [(seq, target) for target in targets.values()]
                now = TaskState.COMPLETED
            case ev.Submitted(push=ev.PushTarget() as target):
                targets[target.id] = target
            case ev.PushSet(target=target):
                targets[target.id] = target
                if now in RESTING and not _moves(events):
                    found.append((seq, target))
            case ev.PushDeleted(id=gone):
                targets.pop(gone, None)
            case _:
                pass
    return found


def delivery_id(task_id: str, seq: int, target_id: str) -> str:
    """The id of one delivery: the same whoever makes it, sorted by task and event, fit to be signed.

    Callers choose the ids of their targets: the digest is long enough that no two can be made to collide.
    """
    return f"{task_id}_{seq:06d}_{blake2b(target_id.encode(), digest_size=12).hexdigest()}"


def lane(url: str, tenant: str, principal: str) -> str:
    """What waits together: the host that a url leads to, whatever the port, and whose task it is, as digests.

    Short and plain, whatever tenants and principals are called; two that collide share a queue.
    """
    return f"{host(url)} {_short(tenant)} {_short(principal)}"


def host(url: str) -> str:
    """The host that a target's url leads to: a name to sort by. Empty if there is none.

    Not the port: whoever has one port of a machine has the others too, and is slow at all of them.
    """
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _short(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()


def _moves(events: Sequence[ev.AnyEvent]) -> bool:
    # An answer that brings its target along: the change it makes is what there is to tell.
    return any([isinstance(event, ev.Status) for event in events])
