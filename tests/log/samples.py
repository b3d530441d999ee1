"""Strategies for events and logs that a task could really have."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from trunkline.log import events as ev
from trunkline.wire.types import Artifact, Message, Part, Role, TaskState

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
ids = st.sampled_from(["a", "b", "answer"])
metadata = st.none() | st.dictionaries(texts, st.integers() | texts | st.none(), max_size=2)
parts = st.one_of(
    st.builds(Part, text=texts),
    st.builds(Part, text=texts, media_type=st.just("text/markdown"), metadata=metadata),
    st.builds(Part, raw=st.just("aGk="), filename=texts),
    st.builds(Part, data=st.none() | st.booleans() | st.lists(st.integers(), max_size=2)),
)
messages = st.builds(
    Message,
    message_id=texts,
    role=st.sampled_from(Role),
    parts=st.lists(parts, max_size=2).map(tuple),
    metadata=metadata,
)
artifacts = st.builds(
    Artifact,
    artifact_id=ids,
    name=texts,
    description=texts,
    parts=st.lists(parts, max_size=2).map(tuple),
    metadata=metadata,
    extensions=st.lists(texts, max_size=2).map(tuple),
)
submitted = st.builds(
    ev.Submitted,
    message=messages,
    context_id=st.just("c"),
    principal=st.just("o"),
    agent=st.sampled_from(["", "scribe"]),
    parent=st.sampled_from(["", "p"]),
    node=st.just("n1"),
    skill=texts,
    output_modes=st.lists(texts, max_size=2).map(tuple),
    metadata=metadata,
)
OPEN = [TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED]
ENDS = [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED]
middle = st.one_of(
    st.builds(ev.Claimed, node=st.sampled_from(["n1", "n2"])),
    st.builds(ev.FollowUp, message=messages, by=st.sampled_from(["", "approver"])),
    st.builds(
        ev.Status,
        state=st.sampled_from(OPEN),
        message=st.none() | messages,
        metadata=metadata,
        deadline=st.sampled_from([0, 7_000]),
    ),
    st.builds(ev.Delta, artifact_id=ids, text=texts, append=st.booleans(), last=st.booleans()),
    st.builds(ev.Chunk, artifact=artifacts, append=st.booleans(), last=st.booleans(), closes=st.booleans()),
    st.builds(ev.CancelRequested, by=texts),
    st.builds(
        ev.Stepped, place=st.integers(0, 9), name=texts, result=st.none() | st.lists(texts, max_size=2)
    ),
    st.builds(
        ev.Routed,
        reason=texts,
        winner=texts,
        refusal=texts,
        candidates=st.lists(st.builds(ev.Candidate, agent=texts, score=st.just(0.5)), max_size=2).map(tuple),
    ),
    st.builds(ev.AnswerRead, place=st.integers(0, 3)),
    st.builds(ev.QuestionClosed, place=st.integers(0, 3), withdrawn=st.booleans()),
    st.builds(ev.Parked, wake_at=st.sampled_from([0, 5_000]), child=st.sampled_from(["", "k"])),
    st.builds(ev.WaitBegun, until=st.sampled_from([0, 5_000])),
    st.builds(
        ev.FlowRows,
        rows=st.lists(st.builds(ev.FlowRow, name=texts, payload=st.just({"nodeId": "a"})), max_size=2).map(
            tuple
        ),
    ),
    st.builds(ev.ChildAsked, child=st.sampled_from(["k", "l"]), question=st.sampled_from(["q1", "q2"])),
    st.builds(ev.Notified, state=st.none() | st.sampled_from(ENDS), task=st.none()),
    st.builds(ev.ChildEnded, child=st.sampled_from(["k", "l"]), state=st.sampled_from(ENDS)),
    st.just(ev.Unread(b'{"kind":"later","x":[1, 2]}')),
)
ends = st.one_of(
    st.builds(ev.Status, state=st.sampled_from(ENDS), message=st.none() | messages),
    st.builds(ev.Replied, message=messages),
)
bodies = st.tuples(submitted, st.lists(middle, max_size=12), st.lists(ends, max_size=1))
logs = bodies.map(lambda three: (three[0], *three[1], *three[2]))


def recorded(events: Sequence[ev.AnyEvent], after: int = 0) -> list[ev.Recorded]:
    """The events at their places, a millisecond apart."""
    return [ev.Recorded(seq, 1_000 + seq, event) for seq, event in enumerate(events, after + 1)]


def said(text: str = "hi", **more: str) -> Message:
    """A user's message."""
    return Message(message_id="m", role=Role.USER, parts=(Part(text=text),), **more)


def opening(node: str = "n1") -> ev.Submitted:
    """The first event of a task."""
    return ev.Submitted(said(), context_id="c", principal="o", node=node)
