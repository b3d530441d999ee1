"""Checks of sends: what comes back, what is kept, and which messages are refused."""

from __future__ import annotations

from trunkline.clock import new_id
from trunkline.doctor.check import (
    ERROR,
    INFO,
    V1,
    WARNING,
    Family,
    assume,
    expect,
    expect_answer,
    expect_refusal,
)
from trunkline.doctor.exchange import AT_REST, Undecided, at, items, members, state_of, text
from trunkline.doctor.probe import BAD_PARAMS, INVALID, NOT_FOUND, UNSUPPORTED, InterfaceProbe
from trunkline.wire.service_parameters import IDEMPOTENT_SEND

sending = Family("sending")
messages = Family("messages")


@sending.interface("send-answers", ERROR, "§3.1.1, SND-01")
async def answers(probe: InterfaceProbe) -> None:
    """A send gives exactly one task or message.

    Means: The agent cannot be put to work this way.
    Fix: Answer a send with a task or a message. If the work takes longer, give the doctor --timeout.
    """
    answer = await probe.fixtures.first()
    expect_answer(not answer.refused and answer.object.kind in ("task", "message"), answer)
    both = "task" in members(answer.result) and "message" in members(answer.result)
    expect(not both, "the answer has both a task and a message", answer)


@sending.interface("send-waits", ERROR, "§3.2.2, SND-02", versions=V1)
async def waits(probe: InterfaceProbe) -> None:
    """A plain send answers when the task rests.

    Means: Clients of 1.0 take the answer of a plain send for the result, and get none.
    Fix: Wait for the end of the task, or until its caller is needed, unless returnImmediately is true.
    """
    state = state_of(await probe.fixtures.task())
    expect(state in AT_REST, f"the answer came in state {state!r}", await probe.fixtures.first())


@sending.interface("send-return-immediately", ERROR, "§3.2.2, SND-05, AG-04", first=True)
async def receipt(probe: InterfaceProbe) -> None:
    """A send that does not wait gives a task that can be read.

    Means: A caller that asked for a receipt cannot find its task.
    Fix: Record the task before answering, so that a get finds it at once.
    """
    race = await probe.fixtures.race()
    expect(not race.end.refused, f"the task of the receipt: {race.end.summary()}", race.sent, race.end)


@sending.interface("send-unknown-task", ERROR, "§3.4.2, SND-09, AG-19")
async def unknown_task(probe: InterfaceProbe) -> None:
    """A message to a task that never was is refused.

    Means: An answer to a task that is gone silently starts other work.
    Fix: Answer a message with a taskId that nobody knows with TaskNotFound (-32001).
    """
    await probe.fixtures.sent()
    expect_refusal(await probe.fixtures.send({"taskId": new_id()}), NOT_FOUND)


@sending.interface("send-to-ended-task", ERROR, "§3.1.1, SND-08, AG-19", first=True)
async def to_ended(probe: InterfaceProbe) -> None:
    """A message to an ended task is refused.

    Means: A task that has ended changes after callers have read its result.
    Fix: Refuse messages to ended tasks: UnsupportedOperation (-32004) in 1.0, an error in 0.3.
    """
    task = await probe.fixtures.ended()
    answer = await probe.fixtures.send({"taskId": task["id"], "contextId": task.get("contextId", "")})
    expect_answer(answer.is_code(UNSUPPORTED) if probe.is_v1 else answer.refused, answer)


@sending.interface("send-context-made", ERROR, "§3.4.1, SND-12, AG-17")
async def context_made(probe: InterfaceProbe) -> None:
    """A context is made and named.

    Means: Callers cannot go on with the conversation, as it has no name.
    Fix: Make a contextId when none is given, and put it into the answer.
    """
    answer = await probe.fixtures.sent()
    assume(answer.task, "the agent answers with a message, which need not open a conversation")
    expect(text(answer.task.get("contextId")), "the answer names no contextId", answer)


@sending.interface("send-context-kept", ERROR, "§3.4.1, SND-13, AG-16", first=True)
async def context_kept(probe: InterfaceProbe) -> None:
    """The caller's contextId comes back as it was.

    Means: Each message of a conversation starts another one.
    Fix: Keep the contextId of the message as it came, or refuse the request.
    """
    sent, given = (await probe.fixtures.race()).sent, probe.fixtures.context_id
    back = text(sent.task.get("contextId"))
    expect(back == given, f"sent {given!r}, got {back!r}", sent)


@sending.interface("send-message-task-exists", ERROR, "§4.1.4, SND-01", first=True)
async def message_task(probe: InterfaceProbe) -> None:
    """A message that names a task names one that can be read.

    Means: Callers that go on with the task, read it or follow it are told that there is none.
    Fix: Leave taskId out of a message that answers without a task, or record the task.
    """
    answer = await probe.fixtures.sent()
    task_id = answer.object.task_id if answer.object.kind == "message" else ""
    assume(task_id, "the answer is no message that names a task")
    read = await probe.call("get", {"id": task_id})
    expect(not read.refused, f"it names {task_id!r}: {read.summary()}", answer, read)


@sending.interface("send-tasks-distinct", ERROR, "§3.4.2, SND-11", first=True)
async def distinct(probe: InterfaceProbe) -> None:
    """Two sends are two tasks.

    Means: Work of several callers runs into one.
    Fix: Give each new task an id of its own.
    """
    task, sent = await probe.fixtures.task(), (await probe.fixtures.race()).sent
    expect(task["id"] != sent.task.get("id"), f"both are {task['id']!r}", sent)


@sending.interface("send-again-once", WARNING, "§3.3.1, SND-20, AG-62", first=True)
async def again(probe: InterfaceProbe) -> None:
    """The same message twice is one task, where the agent says so; elsewhere it is no error.

    Means: A caller that lost an answer and sends again has its work done twice, or is refused.
    Fix: Know a message by its messageId, and answer it again with the task that it made.
    """
    await probe.fixtures.task()
    message = {"messageId": new_id()}
    first, second = [await probe.fixtures.send(message) for _ in range(2)]
    expect(not second.refused, f"the second time: {second.summary()}", first, second)
    same = first.task.get("id") == second.task.get("id")
    assume(IDEMPOTENT_SEND in probe.subject.extensions() or same, "two tasks; the card does not promise one")
    expect(same, "the card promises one task, and there are two", first, second)


@sending.interface("send-result-in-artifacts", INFO, "§3.7, SND-19, AG-12", first=True)
async def in_artifacts(probe: InterfaceProbe) -> None:
    """A completed task has an artifact.

    Means: Clients look for results in artifacts; messages are for talking about them.
    Fix: Put the result of a task into an artifact.
    """
    task = await probe.fixtures.ended()
    assume(state_of(task) == "completed", f"the task ended as {state_of(task)}")
    expect(items(task.get("artifacts")), "the completed task has no artifacts")


@sending.interface("send-failure-explained", WARNING, "AG-25", first=True)
async def explained(probe: InterfaceProbe) -> None:
    """A task that failed says why.

    Means: The caller sees that it failed, and not why.
    Fix: Say the reason in status.message of a failed or rejected task.
    """
    task = await probe.fixtures.ended()
    assume(state_of(task) in ("failed", "rejected"), f"the task ended as {state_of(task)}")
    expect(members(at(task, "status", "message")), "status has no message")


@sending.interface("question-continues-task", ERROR, "§3.4.3, SND-16, AG-18", first=True)
async def question(probe: InterfaceProbe) -> None:
    """An answer to a question continues the same task.

    Means: An answer to the agent's question starts another task, and the one that asked waits for ever.
    Fix: Take a message with the taskId of a task in input-required as its answer.
    """
    task = await probe.fixtures.task()
    asks = state_of(task) == "input-required"
    assume(asks, "the agent asked nothing; give --text something that makes it ask")
    answer = await probe.fixtures.send({"taskId": task["id"]})
    expect_answer(not answer.refused, answer)
    back = answer.task.get("id")
    expect(back == task["id"], f"the answer to {task['id']!r} went to {back!r}", answer)


@sending.interface("send-other-context-refused", ERROR, "§3.4.3, SND-15", first=True)
async def other_context(probe: InterfaceProbe) -> None:
    """A message that names the task with another context is refused.

    Means: Messages of one conversation get into another.
    Fix: Refuse a message whose contextId is not that of its task.
    """
    task = (await probe.fixtures.race()).end.task
    if not task:
        raise Undecided("there is no task to name")
    answer = await probe.fixtures.send({"taskId": task["id"], "contextId": "another-context"})
    expect_answer(answer.refused, answer)


@messages.interface("send-bad-message", ERROR, "§5.7, SND-21")
async def bad_message(probe: InterfaceProbe) -> None:
    """A message without messageId, role or parts is refused.

    Means: Messages that are none start work; nobody learns of the mistake.
    Fix: Refuse a message without messageId, role or parts with invalid params (-32602), naming the member.
    """
    for name in ("messageId", "role", "parts"):
        answer = await probe.fixtures.send_malformed({name: None})
        good = answer.is_code(BAD_PARAMS) or answer.is_code(INVALID)
        expect(good, f"without {name}: {answer.summary()}", answer)


@messages.interface("send-empty-parts", ERROR, "§5.7, SND-21, AG-10", versions=V1, first=True)
async def empty_parts(probe: InterfaceProbe) -> None:
    """A message without any part is refused.

    Means: Empty messages start work.
    Fix: Refuse a message whose parts are empty with invalid params (-32602).
    """
    expect_refusal(await probe.fixtures.send_malformed({"parts": []}), BAD_PARAMS, INVALID)


@messages.interface("send-part-without-content", ERROR, "§4.1.6, SND-22", versions=V1, first=True)
async def part_without_content(probe: InterfaceProbe) -> None:
    """A part that holds nothing is refused.

    Means: A caller's mistake, such as a wrong member name, is taken for an empty text.
    Fix: Refuse a part with none of text, raw, url and data with invalid params (-32602).
    """
    answer = await probe.fixtures.send_malformed({"parts": [{"mediaType": "text/plain"}]})
    expect_refusal(answer, BAD_PARAMS, INVALID)


@messages.interface("unknown-members-ignored", WARNING, "§5.7, SND-24")
async def unknown_members(probe: InterfaceProbe) -> None:
    """A member that nobody knows does not matter.

    Means: Newer clients, which send more, are turned away.
    Fix: Ignore members that are not known.
    """
    expect_refusal(await probe.call("get", {"id": new_id(), "trunklineDoctor": "1"}), NOT_FOUND)
