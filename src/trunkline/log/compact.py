"""Which events may merge once a task has ended: pieces of artifacts and steps.

Seqs stay dense as ranges. Everything that says who did what and when stays as it was; the last
range holds the artifacts whole, so that folding gives the same task and a reader who comes back
in the middle gets them anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from trunkline.log import events as ev
from trunkline.log.fold import fold

_MERGE = (ev.Delta, ev.Chunk, ev.Stepped, ev.Compacted)


class Append(Struct, gc=False):
    """The events of one append; `last` is the seq of the last."""

    last: int
    at: int
    events: list[ev.AnyEvent]


def compact(task_id: str, appends: Sequence[Append]) -> list[Append] | None:
    """The appends of an ended task with their pieces merged; None if there is nothing to gain.

    An append of the result replaces the one with the same `last`; the others are to be dropped.
    """
    state = fold(
        task_id, [one for append in appends for one in ev.placed(append.last, append.at, append.events)]
    )
    if not state.over:
        return None
    kept = _without_runs([Append(append.last, append.at, _merge(append.events)) for append in appends])
    if _count(kept) == _count(appends):
        return None
    _give(kept, state.task().artifacts)
    return kept


def _merge(events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    merged: list[ev.AnyEvent] = []
    for event in events:
        if not isinstance(event, _MERGE):
            merged.append(event)
        elif merged and isinstance(before := merged[-1], ev.Compacted):
            merged[-1] = ev.Compacted(before.count + ev.span(event))
        else:
            merged.append(ev.Compacted(ev.span(event)))
    return merged


def _without_runs(appends: list[Append]) -> list[Append]:
    """Appends of pieces alone that follow each other become one, in the place of the last."""
    kept: list[Append] = []
    for append in appends:
        before = kept[-1] if kept else None
        if before is not None and (first := _alone(before)) and (second := _alone(append)):
            kept[-1] = Append(append.last, append.at, [ev.Compacted(first.count + second.count)])
        else:
            kept.append(append)
    return kept


def _alone(append: Append) -> ev.Compacted | None:
    only = append.events[0]
    return only if len(append.events) == 1 and isinstance(only, ev.Compacted) else None


def _give(appends: list[Append], artifacts: tuple[ev.Artifact, ...]) -> None:
    *_, (events, place, count) = (
        (append.events, place, event.count)
        for append in appends
        for place, event in enumerate(append.events)
        if isinstance(event, ev.Compacted)
    )
    events[place] = ev.Compacted(count, artifacts)


def _count(appends: Sequence[Append]) -> int:
    return sum(len(append.events) for append in appends)
