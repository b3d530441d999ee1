"""Values that several wire tests need: ready ones, and hypothesis strategies for any of them."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from hypothesis import strategies as st

from trunkline.errors import PeerError, Refused
from trunkline.wire import types as t

# No surrogates: they cannot be in JSON text that is UTF-8.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.text("abcXYZ019-_.~ é", min_size=1, max_size=12)
numbers = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
metadata = st.none() | objects
# Names that no dialect has; `extra` itself is one of them.
extras = st.none() | st.dictionaries(
    st.sampled_from(["extra", "x-vendor", "tckUnknownField", "Ünknown"]), values, min_size=1, max_size=3
)
base64s = st.binary(max_size=12).map(lambda raw: base64.b64encode(raw).decode())


@st.composite
def parts(draw: st.DrawFn) -> t.Part:
    content = draw(
        st.one_of(
            texts.map(lambda text: {"text": text}),
            base64s.map(lambda raw: {"raw": raw}),
            texts.map(lambda url: {"url": url}),
            values.map(lambda data: {"data": data}),
        )
    )
    return t.Part(
        **content,
        filename=draw(texts),
        media_type=draw(texts),
        metadata=draw(metadata),
        extra=draw(extras),
    )


@st.composite
def messages(draw: st.DrawFn) -> t.Message:
    return t.Message(
        message_id=draw(ids),
        context_id=draw(ids | st.just("")),
        task_id=draw(ids | st.just("")),
        role=t.Role.USER,
        parts=tuple(draw(st.lists(parts(), min_size=1, max_size=3))),
        metadata=draw(metadata),
        extensions=tuple(draw(st.lists(texts, max_size=2))),
        reference_task_ids=tuple(draw(st.lists(texts, max_size=2))),
        extra=draw(extras),
    )


@st.composite
def artifacts(draw: st.DrawFn) -> t.Artifact:
    return t.Artifact(
        artifact_id=draw(ids),
        name=draw(texts),
        parts=tuple(draw(st.lists(parts(), min_size=1, max_size=2))),
        metadata=draw(metadata),
    )


statuses = st.builds(
    t.TaskStatus, st.sampled_from(t.TaskState), st.none() | messages(), st.just("2026-01-31T12:00:00.000Z")
)


@st.composite
def tasks(draw: st.DrawFn) -> t.Task:
    return t.Task(
        id=draw(ids),
        context_id=draw(ids),
        status=draw(statuses),
        artifacts=tuple(draw(st.lists(artifacts(), max_size=2))),
        history=tuple(draw(st.lists(messages(), max_size=2))),
        metadata=draw(metadata),
    )


HELLO = t.Message("m1", "c1", "t1", t.Role.USER, (t.Part(text="hello"),))
ANSWER = t.Artifact("a1", name="answer", parts=(t.Part(text="done"),))
DONE = t.TaskStatus(t.TaskState.COMPLETED, timestamp="2026-01-31T12:00:00.000Z")
TASK = t.Task("t1", "c1", DONE, (ANSWER,), (HELLO,))
ODD = t.Message(
    "m2",
    role=t.Role.AGENT,
    parts=(t.Part(text="x", extra={"p": 1}),),
    extra={"extra": 2, "messageId": "forged"},
)
ODD_TASK = t.Task(
    "t2",
    "c2",
    t.TaskStatus(t.TaskState.CANCELED, ODD),
    (t.Artifact("a2", parts=(t.Part(data=[1], extra={"q": 3}),)),),
    (ODD,),
)


def plain(body: bytes) -> Any:
    """The JSON in a body."""
    return msgspec.json.decode(body)


def sent(message: bytes) -> bytes:
    """Params of a send around a message."""
    return b'{"message":%b}' % message


def members(value: Any) -> set[str]:
    """Names of all members outside free-form ones and outside unknown ones."""
    found: set[str] = set()
    if isinstance(value, list):
        return found.union(*[members(item) for item in value])
    if isinstance(value, dict):
        for name, member in value.items():
            found.add(name)
            if name not in {"metadata", "data", "extra", "x-vendor", "tckUnknownField", "Ünknown"}:
                found |= members(member)
    return found


def refused(kind: type[Refused], message: str = "what") -> Refused:
    """A refusal of any class."""
    return PeerError(message, code=-32099) if kind is PeerError else kind(message)
