"""What is written can be read again, by us and by the eye."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from tests.log.samples import ends, logs, middle, opening, said, submitted
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.wire.types import TaskState

KINDS = {kind.__struct_config__.tag: kind for kind in ev.Known.__args__}


@given(submitted | middle | ends)
def test_every_event_survives_its_own_body(event: ev.AnyEvent) -> None:
    body = encoding.encode_one(event)
    assert encoding.decode_one(body) == event
    assert encoding.decode_one(body.decode()) == event
    assert encoding.encode_one(encoding.decode_one(body)) == body


def test_kind_is_the_class_name() -> None:
    assert encoding.encode_one(ev.Claimed("n")) == b'{"kind":"claimed","node":"n"}'
    assert (
        encoding.encode_one(ev.Status(TaskState.WORKING)) == b'{"kind":"status","state":"TASK_STATE_WORKING"}'
    )
    assert sorted(KINDS) == [
        "cancelrequested", "childasked", "childended", "chunk", "claimed", "compacted", "delta",
        "flowrows",
        "notified", "parked",
        "pushdeleted", "pushset",
        "questionclosed", "replied", "routed", "said", "status",
        "stepped", "submitted", "taken", "waitbegun",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"kind":5}', b'{"kind":"claimed"}', b'{"kind":"claimed","node":5}']
)
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        encoding.decode_one(body)


def test_fields_of_a_newer_version_are_no_obstacle() -> None:
    assert encoding.decode_one(b'{"kind":"claimed","node":"n","reason":"new"}') == ev.Claimed("n")


def test_kinds_of_a_newer_version_are_kept_as_they_are() -> None:
    body = b'[{"kind":"claimed","node":"n"},{"kind":"later","x":[1, 2]}]'
    read = encoding.decode(body)
    assert read == [ev.Claimed("n"), ev.Unread(b'{"kind":"later","x":[1, 2]}')]
    assert encoding.encode(read) == body


def test_events_do_not_change() -> None:
    event = ev.FollowUp(said())
    with pytest.raises(AttributeError):
        event.message = said("other")  # type: ignore[misc]


@given(logs)
def test_a_log_as_text_is_the_same_log(log: tuple[ev.AnyEvent, ...]) -> None:
    assert tuple(encoding.decode_one(encoding.encode_one(event)) for event in log) == log


def test_a_range_takes_its_whole_place_in_an_append() -> None:
    events = (opening(), ev.Compacted(3), ev.Unread(b'{"kind":"later"}'), ev.Compacted(1))
    assert [ev.span(event) for event in events] == [1, 3, 1, 1]
    assert ev.spanned(events) == 6
    assert [one.seq for one in encoding.placed(9, 5, events)] == [4, 7, 8, 9]
    assert [one.at for one in encoding.placed(9, 5, events)] == [5] * 4
    assert encoding.placed(9, 5, ()) == []
