"""The topics of events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.fleet.health.given import COST_URI, NOW, submitted
from trunkline.fleet.topics.names import NAMED, NamedTask, TextPiece, named_task, pieces_of, topics_of
from trunkline.log import events as ev
from trunkline.wire.reports import UNTOLD
from trunkline.wire.types import Artifact, Message, Part, TaskState

SECRET = "hush-hush"
BASE = COST_URI.removesuffix("cost-v1")
TARGET = ev.PushTarget("p", f"https://x/{SECRET}", "1.0", "Bearer", SECRET)
OUTCOME = "autonomous.outcome.desk.work"


def said(text: str, **members: Any) -> Message:
    return Message("m-2", parts=(Part(text=text),), **members)


def task(**members: Any) -> NamedTask:
    known: dict[str, Any] = {
        "agent": "desk",
        "skill": "work",
        "context_id": "ctx",
        "correlation_id": "c-1",
        **members,
    }
    return NamedTask("t-1", **known)


def told(event: ev.AnyEvent, answer: str = "", **members: Any) -> list[tuple[str, dict[str, Any]]]:
    return [*topics_of(task(**members), NOW + 1500, event, answer)]


CEREMONY = {"trigger": "ceremony:stand.up"}
WORKING, ASKS = TaskState.WORKING, TaskState.INPUT_REQUIRED
TABLE: list[tuple[ev.AnyEvent, dict[str, Any], list[str]]] = [
    (submitted(), {}, ["agent.skill.request"]),
    (submitted(), CEREMONY, ["agent.skill.request", "ceremony.stand%2Eup.execute"]),
    (ev.Routed("nobody has it", refusal="no_skill"), {}, ["dispatch.dropped.no_skill"]),
    (ev.Routed("it has it", winner="desk"), {}, []),
    (ev.Status(WORKING), {}, []),
    (ev.Status(WORKING, said("half")), {}, ["agent.skill.progress.c-1"]),
    (ev.Status(ASKS, said("Which?")), {}, ["hitl.request.c-1"]),
    (ev.FollowUp(said("red")), {"asks": ASKS}, ["hitl.response.c-1"]),
    (ev.FollowUp(said("and more")), {}, []),
    (ev.QuestionClosed(0), {}, ["hitl.expired.c-1"]),
    (ev.QuestionClosed(0, withdrawn=True), {}, []),
    (ev.Status(TaskState.FAILED, said("broke")), {}, ["agent.skill.response.c-1", OUTCOME]),
    (ev.Replied(said("hi")), {}, ["agent.skill.response.c-1", OUTCOME]),
    (
        ev.Status(TaskState.COMPLETED),
        CEREMONY,
        ["agent.skill.response.c-1", OUTCOME, "ceremony.stand%2Eup.completed"],
    ),
    (
        ev.Status(TaskState.CANCELED),
        {"skill": "", "agent": "a.b*#"},
        ["agent.skill.response.c-1", "autonomous.outcome.a%2Eb%2A%23.-"],
    ),
    (ev.Claimed("n1"), {}, []),
    (ev.Delta("a", "text"), {}, []),
    (ev.Stepped(0, "step", SECRET), {}, []),
    (ev.PushSet(TARGET, "ann"), {}, []),
    (ev.CancelRequested("ann"), {}, []),
]


@pytest.mark.parametrize(("event", "members", "names"), TABLE)
def test_an_event_has_these_topics(event: ev.AnyEvent, members: dict[str, Any], names: list[str]) -> None:
    found = told(event, **members)
    assert [name for name, _ in found] == names
    # A reader looks a task up for these kinds alone.
    assert isinstance(event, NAMED) or not (found or pieces_of(event))
    for _, payload in found:
        assert payload["taskId"] == "t-1"


def test_reports_are_told_wherever_they_stand() -> None:
    body = {
        "cost-v1": {"costUsd": 0.25, "usage": {"input_tokens": 3, "output_tokens": 4}, "secret": SECRET},
        "confidence-v1": {"confidence": 0.5, "explanation": "guessed", "secret": SECRET},
        "worldstate-delta-v1": {
            "deltas": [
                {"domain": "board", "path": "open", "op": "inc", "value": 1, "secret": SECRET},
                {"domain": "board", "path": "rows", "op": "push", "value": {"long": "x" * 900}},
                "no row",
            ]
            + [{"op": "set"}] * 100
        },
    }
    metadata = {BASE + name: value for name, value in body.items()}
    artifact = Artifact("a", parts=(Part(text=SECRET),), metadata=metadata)
    found = told(ev.Chunk(artifact))
    assert [name for name, _ in found] == [
        "autonomous.cost.desk.work", "autonomous.confidence.desk.work", "world.state.delta",
    ]  # fmt: skip
    cost, sure, deltas = [payload for _, payload in found]
    assert (cost["costUsd"], cost["inputTokens"], cost["outputTokens"]) == (0.25, 3, 4)
    assert (sure["confidence"], sure["textPreview"]) == (0.5, "guessed")
    assert deltas["deltas"][0] == {"domain": "board", "path": "open", "op": "inc", "value": 1}
    assert len(deltas["deltas"][1]["value"]) == 500
    assert len(deltas["deltas"]) < 30
    assert SECRET not in msgspec.json.encode(found).decode()
    assert told(ev.Compacted(3, (artifact,))) == found
    ended = told(ev.Status(TaskState.COMPLETED, said("", metadata=metadata)))
    assert ended[:3] == found and len(ended) == 5


def test_deltas_are_read_from_the_media_type_of_the_field() -> None:
    rows = {"deltas": [{"domain": "board", "path": "open", "op": "inc", "value": -1}]}
    kind = {"mimeType": "application/vnd.protolabs.worldstate-delta+json"}
    ((name, payload),) = told(ev.Chunk(Artifact("a", parts=(Part(data=rows, metadata=kind),))))
    assert (name, payload["deltas"]) == ("world.state.delta", rows["deltas"])


@pytest.mark.parametrize(
    ("event", "pieces"),
    [
        (ev.Delta("a", "some text"), [TextPiece("a", "some text", True)]),
        (
            ev.Chunk(Artifact("a", parts=(Part(text="one "), Part(text="two")))),
            [TextPiece("a", "one two", False)],
        ),
        (ev.Chunk(Artifact("a", parts=(Part(data={"x": 1}),))), []),
        (
            ev.Compacted(9, (Artifact("a", parts=(Part(text="x"),)), Artifact("b"))),
            [TextPiece("a", "x", False)],
        ),
        (ev.Status(WORKING, said("half")), []),
        (ev.Stepped(0, "step", SECRET), []),
    ],
)
def test_pieces_are_the_text_of_artifacts(event: ev.AnyEvent, pieces: list[TextPiece]) -> None:
    assert pieces_of(event) == pieces


def test_an_outcome_has_its_actor_duration_usage_and_text() -> None:
    spent = {"usage": {"input_tokens": 3, "output_tokens": 4, "secret": SECRET}}
    known = task(began=NOW, trigger="ceremony:x")
    # A report that the caller did not request is in the log as a step.
    for event in (ev.Stepped(0, UNTOLD, {COST_URI: spent}), ev.Status(TaskState.COMPLETED)):
        found = dict(topics_of(known, NOW + 1500, event, "the answer"))
    assert found[OUTCOME] == {
        "taskId": "t-1", "agent": "desk", "skill": "work", "state": "completed", "success": True,
        "systemActor": "desk", "trigger": "ceremony:x", "durationMs": 1500,
        "usage": {"input_tokens": 3, "output_tokens": 4}, "textPreview": "the answer",
    }  # fmt: skip
    assert "usage" not in dict(told(ev.Status(TaskState.FAILED)))[OUTCOME]


def test_what_is_said_to_a_login_is_not_told() -> None:
    ((_, payload),) = told(ev.FollowUp(said(SECRET), "bob"), asks=TaskState.AUTH_REQUIRED)
    assert payload == {"taskId": "t-1", "agent": "desk", "skill": "work", "answeredBy": "bob"}


def test_HB_34_nothing_but_named_members_is_told() -> None:
    message = said("x" * 900, metadata={"token": SECRET}, extra={"token": SECRET})
    first = ev.Submitted(
        message,
        "ctx",
        "ann",
        "n1",
        metadata={"authorization": SECRET, "trunkline.dispatch": {"correlationId": "c.9", "token": SECRET}},
        push=TARGET,
        trace=SECRET,
    )
    known = named_task("t-1", NOW, first, "desk")
    assert (known.agent, known.correlation_id) == ("desk", "c.9")
    events = [
        first,
        ev.Routed("r" * 900, refusal="cooldown", candidates=(ev.Candidate("a", parts={"token": SECRET}),)),
        ev.Status(ASKS, message, {"token": SECRET}, deadline=NOW),
        ev.FollowUp(message, "bob"),
        ev.Status(WORKING, message, {"token": SECRET}),
        ev.Replied(message),
    ]
    found = [one for event in events for one in topics_of(known, NOW, event)]
    assert [name for name, _ in found] == [
        "agent.skill.request",
        "dispatch.dropped.cooldown",
        "hitl.request.c%2E9",
        "hitl.response.c%2E9",
        "agent.skill.progress.c%2E9",
        "agent.skill.response.c%2E9",
        "autonomous.outcome.desk.-",
    ]
    assert SECRET not in msgspec.json.encode(found).decode()
    assert all([len(payload.get("textPreview", "")) <= 500 for _, payload in found])
    assert {name for _, payload in found for name in payload} == {
        "taskId", "agent", "skill", "contextId", "textPreview", "reason", "targets", "state", "question",
        "deadline", "answeredBy", "success", "systemActor", "durationMs",
    }  # fmt: skip


def test_the_end_shows_what_the_task_gave() -> None:
    (_, response), (_, outcome) = told(ev.Status(TaskState.COMPLETED), "the answer")
    assert (response["textPreview"], response["state"], response["success"]) == (
        "the answer",
        "completed",
        True,
    )
    assert outcome["textPreview"] == "the answer"
    # As everywhere, the reply of a completed task is the text of its artifacts if it has any.
    (_, response), (_, outcome) = told(ev.Status(TaskState.COMPLETED, said("done")), "the answer")
    assert (response["textPreview"], outcome["textPreview"]) == ("the answer", "the answer")
    (_, response), _ = told(ev.Status(TaskState.COMPLETED, said("done")))
    assert response["textPreview"] == "done"
    (_, failed), _ = told(ev.Status(TaskState.FAILED, said("it broke")), "half of it")
    assert (failed["textPreview"], failed["success"]) == ("it broke", False)
