"""Checks of sends: what comes back, what is refused, what is kept."""

from __future__ import annotations

from trunkline.doctor.binding import NOT_FOUND, UNSUPPORTED, ProbeBinding
from trunkline.doctor.finding import (
    ERROR,
    INFO,
    PASSED,
    WARNING,
    CheckVerdict,
    failed,
    judge,
    of_way,
    skipped,
    unknown,
)
from trunkline.doctor.fixtures import new_id, piece_in, task_in
from trunkline.doctor.json_access import INTERRUPTED, TERMINAL, items, members, state_of, text
from trunkline.wire.extensions import IDEMPOTENT_SEND


@of_way(
    "send-answers",
    ERROR,
    "§3.1.1, SND-01",
    means="The agent cannot be put to work this way.",
    fix="Answer a send with a task or a message. If the work takes longer, give the doctor --timeout.",
    sends=True,
)
async def answers(way: ProbeBinding) -> CheckVerdict:
    """A send gives exactly one task or message."""
    trials = way.subject.trials(way)
    answer = await trials.first()
    found = piece_in(answer)
    if answer.refused or found is None or found.kind not in ("task", "message"):
        return failed(answer.told(), answer.exchange)
    both = "task" in members(answer.result) and "message" in members(answer.result)
    return judge(not both, "the answer has both a task and a message", answer.exchange)


@of_way(
    "send-waits",
    ERROR,
    "§3.2.2, SND-02",
    means="Clients of 1.0 take the answer of a plain send for the result, and get none.",
    fix="Wait for the end of the task, or until its caller is needed, unless returnImmediately is true.",
    versions=("1.0",),
    sends=True,
)
async def waits(way: ProbeBinding) -> CheckVerdict:
    """A plain send answers when the task rests."""
    trials = way.subject.trials(way)
    task, answer = await trials.task(), await trials.first()
    state = state_of(task)
    return judge(state in TERMINAL | INTERRUPTED, f"the answer came in state {state!r}", answer.exchange)


@of_way(
    "send-return-immediately",
    ERROR,
    "§3.2.2, SND-05, AG-04",
    means="A caller that asked for a receipt cannot find its task.",
    fix="Record the task before answering, so that a get finds it at once.",
    first=True,
    sends=True,
)
async def receipt(way: ProbeBinding) -> CheckVerdict:
    """A send that does not wait gives a task that can be read."""
    race = await way.subject.trials(way).race()
    if race.end.refused:
        return failed(f"the task of the receipt: {race.end.told()}", race.sent.exchange, race.end.exchange)
    return PASSED


@of_way(
    "send-unknown-task",
    ERROR,
    "§3.4.2, SND-09, AG-19",
    means="An answer to a task that is gone silently starts other work.",
    fix="Answer a message with a taskId that nobody knows with TaskNotFound (-32001).",
    sends=True,
)
async def unknown_task(way: ProbeBinding) -> CheckVerdict:
    """A message to a task that never was is refused."""
    trials = way.subject.trials(way)
    await trials.sent()
    answer = await trials.send(trials.message(taskId=new_id()))
    return judge(answer.is_code(NOT_FOUND), answer.told(), answer.exchange)


@of_way(
    "send-to-ended-task",
    ERROR,
    "§3.1.1, SND-08, AG-19",
    means="A task that has ended changes after callers have read its result.",
    fix="Refuse messages to ended tasks: UnsupportedOperation (-32004) in 1.0, an error in 0.3.",
    first=True,
    sends=True,
)
async def to_ended(way: ProbeBinding) -> CheckVerdict:
    """A message to an ended task is refused."""
    trials = way.subject.trials(way)
    task = await trials.ended()
    answer = await trials.send(trials.message(taskId=task["id"], contextId=task.get("contextId", "")))
    good = answer.is_code(UNSUPPORTED) if way.version == "1.0" else answer.refused
    return judge(good, answer.told(), answer.exchange)


@of_way(
    "send-context-made",
    ERROR,
    "§3.4.1, SND-12, AG-17",
    means="Callers cannot go on with the conversation, as it has no name.",
    fix="Make a contextId when none is given, and put it into the answer.",
    sends=True,
)
async def context_made(way: ProbeBinding) -> CheckVerdict:
    """A context is made and named."""
    answer = await way.subject.trials(way).sent()
    found = piece_in(answer)
    named = found is not None and text(found.value.get("contextId"))
    return judge(named, "the answer names no contextId", answer.exchange)


@of_way(
    "send-context-kept",
    ERROR,
    "§3.4.1, SND-13, AG-16",
    means="Each message of a conversation starts another one.",
    fix="Keep the contextId of the message as it came, or refuse the request.",
    first=True,
    sends=True,
)
async def context_kept(way: ProbeBinding) -> CheckVerdict:
    """The caller's contextId comes back as it was."""
    trials = way.subject.trials(way)
    race = await trials.race()
    back = text(task_in(race.sent).get("contextId"))
    return judge(back == trials.context_id, f"sent {trials.context_id!r}, got {back!r}", race.sent.exchange)


@of_way(
    "send-tasks-distinct",
    ERROR,
    "§3.4.2, SND-11",
    means="Work of several callers runs into one.",
    fix="Give each new task an id of its own.",
    first=True,
    sends=True,
)
async def distinct(way: ProbeBinding) -> CheckVerdict:
    """Two sends are two tasks."""
    trials = way.subject.trials(way)
    one, other = await trials.task(), task_in((await trials.race()).sent)
    same = one.get("id") == other.get("id")
    return judge(not same, f"both are {one.get('id')!r}", (await trials.race()).sent.exchange)


@of_way(
    "send-again-once",
    WARNING,
    "§3.3.1, SND-20, AG-62",
    means="A caller that lost an answer and sends again has its work done twice, or is refused.",
    fix="Know a message by its messageId, and answer it again with the task that it made.",
    first=True,
    sends=True,
)
async def again(way: ProbeBinding) -> CheckVerdict:
    """The same message twice is one task, where the agent says so; elsewhere it is no error."""
    trials = way.subject.trials(way)
    await trials.task()
    message = trials.message()
    first, second = await trials.send(message), await trials.send(message)
    if second.refused:
        return failed(f"the second time: {second.told()}", first.exchange, second.exchange)
    same = task_in(first).get("id") == task_in(second).get("id")
    if IDEMPOTENT_SEND not in way.subject.extensions() and not same:
        return skipped("two tasks; the card does not promise one")
    return judge(same, "the card promises one task, and there are two", first.exchange, second.exchange)


@of_way(
    "send-result-in-artifacts",
    INFO,
    "§3.7, SND-19, AG-12",
    means="Clients look for results in artifacts; messages are for talking about them.",
    fix="Put the result of a task into an artifact.",
    first=True,
    sends=True,
)
async def in_artifacts(way: ProbeBinding) -> CheckVerdict:
    """A completed task has an artifact."""
    task = await way.subject.trials(way).ended()
    if state_of(task) != "completed":
        return skipped(f"the task ended as {state_of(task)}")
    return judge(items(task.get("artifacts")), "the completed task has no artifacts")


@of_way(
    "send-failure-explained",
    WARNING,
    "AG-25",
    means="The caller sees that it failed, and not why.",
    fix="Say the reason in status.message of a failed or rejected task.",
    first=True,
    sends=True,
)
async def explained(way: ProbeBinding) -> CheckVerdict:
    """A task that failed says why."""
    task = await way.subject.trials(way).ended()
    if state_of(task) not in ("failed", "rejected"):
        return skipped(f"the task ended as {state_of(task)}")
    return judge(members(members(task.get("status")).get("message")), "status has no message")


@of_way(
    "question-continues-task",
    ERROR,
    "§3.4.3, SND-16, AG-18",
    means="An answer to the agent's question starts another task, and the one that asked waits for ever.",
    fix="Take a message with the taskId of a task in input-required as its answer.",
    first=True,
    sends=True,
)
async def question(way: ProbeBinding) -> CheckVerdict:
    """An answer to a question continues the same task."""
    trials = way.subject.trials(way)
    task = await trials.task()
    if state_of(task) != "input-required":
        return skipped("the agent asked nothing; give --text something that makes it ask")
    answer = await trials.send(trials.message(taskId=task["id"]))
    if answer.refused:
        return failed(answer.told(), answer.exchange)
    back = task_in(answer).get("id")
    return judge(back == task["id"], f"the answer to {task['id']!r} went to {back!r}", answer.exchange)


@of_way(
    "send-other-context-refused",
    ERROR,
    "§3.4.3, SND-15",
    means="Messages of one conversation get into another.",
    fix="Refuse a message whose contextId is not that of its task.",
    first=True,
    sends=True,
)
async def other_context(way: ProbeBinding) -> CheckVerdict:
    """A message that names the task with another context is refused."""
    trials = way.subject.trials(way)
    race = await trials.race()
    task = task_in(race.end)
    if not task:
        return unknown("there is no task to name")
    answer = await trials.send(trials.message(taskId=task["id"], contextId="another-context"))
    return judge(answer.refused, answer.told(), answer.exchange)
