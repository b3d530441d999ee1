"""Applies the events of push targets to the state of a task. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.log import events as ev

if TYPE_CHECKING:
    from trunkline.log.fold import State


def add_target(state: State, target: ev.PushTarget) -> None:
    """Add a target; one that is replaced keeps its place, because the first one counts."""
    state.push = {**state.push, target.id: target}
    state.push_since = {target.id: state.seq, **state.push_since}


def change_targets(state: State, event: ev.PushSet | ev.PushDeleted) -> None:
    """Apply an event that sets or deletes a target."""
    if isinstance(event, ev.PushSet):
        return add_target(state, event.target)
    state.push = {name: target for name, target in state.push.items() if name != event.id}
    state.push_since = {name: seq for name, seq in state.push_since.items() if name != event.id}
    return None
