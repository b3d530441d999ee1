"""Which events may merge once a task has ended: pieces of artifacts and steps.

Seqs stay dense as ranges. Everything that says who did what and when stays as it was. What was
merged before a change of state holds the artifacts as they were then: folding gives the same task,
also as it stood at each change (a webhook may tell of that days later), and a reader who comes back
in the middle gets them anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.wire.reports import SPENT, UNTOLD
from trunkline.wire.types import TaskState

_MERGE = (ev.Delta, ev.Chunk, ev.Stepped, ev.Compacted)


class Append(Struct, gc=False):
    """The events of one append; `last` is the seq of the last."""

    last: int
    at: int
    events: list[ev.AnyEvent]


class _Segment:
    """The pieces between two changes of state: where they are, how large, and which artifacts they made."""

    __slots__ = ("artifacts", "places", "size")

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []
        self.size = 0
        self.artifacts: set[str] = set()

    def add(self, place: tuple[int, int], event: ev.AnyEvent) -> None:
        self.places.append(place)
        self.size += len(encoding.encode_one(event))
        match event:
            case ev.Delta(artifact_id=name):
                self.artifacts.add(name)
            case ev.Chunk(artifact=artifact):
                self.artifacts.add(artifact.artifact_id)
            case ev.Compacted(artifacts=artifacts):
                self.artifacts.update(artifact.artifact_id for artifact in artifacts)
            case _:
                pass


def compact(task_id: str, appends: Sequence[Append]) -> list[Append] | None:
    """The appends of an ended task with their pieces merged; None if there is nothing to gain.

    An append of the result replaces the one with the same `last`; the others are to be dropped.
    """
    drafts = [Append(append.last, append.at, list(append.events)) for append in appends]
    state, segment = State(task_id), _Segment()
    for number, append in enumerate(appends):
        for place, recorded in enumerate(encoding.placed(append.last, append.at, append.events)):
            event = recorded.event
            # Steps beside the first message stay: they are the end of the opening. So do reports.
            stays = isinstance(event, ev.Stepped) and (
                event.name in (UNTOLD, SPENT) or state.state is TaskState.SUBMITTED
            )
            if isinstance(event, _MERGE) and not stays:
                segment.add((number, place), event)
            elif _is_told(event, state.state):
                _shrink(drafts, segment, state)
                segment = _Segment()
            state.apply(recorded)
    if not state.over:
        return None
    _shrink(drafts, segment, state)
    kept = _without_runs([Append(append.last, append.at, _merge(append.events)) for append in drafts])
    # Ranges that something keeps from merging may take more than the few small pieces they stand for.
    gains = _count(kept) < _count(appends) and _size(kept) <= _size(appends)
    return kept if gains else None


def _is_told(event: ev.AnyEvent, entered: TaskState) -> bool:
    """Whether a webhook may tell how the task stood at this event, see `log.notifications`."""
    if isinstance(event, ev.Status):
        return event.state is not entered
    return isinstance(event, ev.Replied | ev.PushSet)


def _shrink(drafts: list[Append], segment: _Segment, state: State) -> None:
    """Put ranges in the place of pieces, the artifacts as they stand into the last of them.

    Pieces that are smaller than that stay: an artifact that grows over many changes would be kept whole at
    each of them.
    """
    if not segment.places:
        return
    *others, (number, place) = segment.places
    last = state.artifacts.compacted(ev.span(drafts[number].events[place]), segment.artifacts)
    if last.artifacts and len(encoding.encode_one(last)) > segment.size:
        return
    for each, where in others:
        drafts[each].events[where] = ev.Compacted(ev.span(drafts[each].events[where]))
    drafts[number].events[place] = last


def _merge(events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    merged: list[ev.AnyEvent] = []
    for event in events:
        before = merged[-1] if merged else None
        if isinstance(event, ev.Compacted) and isinstance(before, ev.Compacted) and not before.artifacts:
            merged[-1] = _joined(before, event)
        else:
            merged.append(event)
    return merged


def _without_runs(appends: list[Append]) -> list[Append]:
    """Appends of pieces alone that follow each other become one, in the place of the last."""
    kept: list[Append] = []
    for append in appends:
        before = kept[-1] if kept else None
        first, second = None if before is None else _alone(before), _alone(append)
        if first is not None and second is not None and not first.artifacts:
            kept[-1] = Append(append.last, append.at, [_joined(first, second)])
        else:
            kept.append(append)
    return kept


def _joined(first: ev.Compacted, second: ev.Compacted) -> ev.Compacted:
    """One range for two of a segment that follow each other: the second has all that there is to hold."""
    return ev.Compacted(first.count + second.count, second.artifacts, second.open)


def _alone(append: Append) -> ev.Compacted | None:
    only = append.events[0]
    return only if len(append.events) == 1 and isinstance(only, ev.Compacted) else None


def _count(appends: Sequence[Append]) -> int:
    return sum(len(append.events) for append in appends)


def _size(appends: Sequence[Append]) -> int:
    return sum([len(encoding.encode_one(event)) + 1 for append in appends for event in append.events])
