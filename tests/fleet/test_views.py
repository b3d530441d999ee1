"""Events as rows of the operator's API: every kind is told, and nothing that is somebody else's."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.log.samples import ends, middle, submitted
from trunkline.fleet.views import event_row
from trunkline.log import events as ev
from trunkline.log.fold import NEVER
from trunkline.wire.types import Artifact, Message, Part, Role, TaskState

SECRET = "canary"
TARGET = ev.PushTarget("c1", f"https://a.example/hook?key={SECRET}", "1.0", "Bearer", SECRET)


def row(event: ev.AnyEvent) -> Any:
    return json.loads(msgspec.json.encode(event_row(ev.Recorded(7, 1_800_000_000_123, event))))


@given(submitted | middle | ends)
def test_every_event_has_a_row(event: ev.AnyEvent) -> None:
    told = row(event)
    assert (told["seq"], told["at"]) == (7, "2027-01-15T08:00:00.123Z")
    assert told["kind"] == type(event).__struct_config__.tag


SAID = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (ev.Claimed("n1"), {"node": "n1"}),
        (ev.FollowUp(Message("m", role=Role.USER, parts=(Part(text="hi"),)), "carol"), {"message": SAID, "by": "carol"}),
        (
            ev.Status(TaskState.INPUT_REQUIRED, deadline=1_800_000_000_000),
            {"state": "input-required", "busy": False, "deadline": "2027-01-15T08:00:00.000Z"},
        ),
        (ev.Parked(NEVER, "t2"), {"child": "t2"}),
        (ev.ChildEnded("t2", TaskState.FAILED), {"child": "t2", "state": "failed"}),
        (ev.Stepped(0, "pay", SECRET), {"place": 0, "name": "pay"}),
        (ev.Unread(f'{{"kind":"later","x":"{SECRET}"}}'.encode()), {}),
        (
            ev.PushSet(TARGET, "alice"),
            {"target": {"id": "c1", "url": "https://a.example/hook", "version": "1.0"}, "by": "alice"},
        ),
        (
            ev.Compacted(3, (Artifact("a", parts=(Part(text="x"),)),)),
            {"count": 3, "artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}]},
        ),
    ],
)  # fmt: skip
def test_what_a_row_tells(event: ev.AnyEvent, told: dict[str, Any]) -> None:
    found = row(event)
    assert {name: value for name, value in found.items() if name not in ("seq", "at", "kind")} == told
    assert SECRET not in json.dumps(found)
