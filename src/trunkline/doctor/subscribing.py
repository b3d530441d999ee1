"""Checks of taking up a stream again: while the task runs, when it has ended, after a break."""

from __future__ import annotations

from trunkline.doctor.binding import NOT_FOUND, UNSUPPORTED, ProbeBinding
from trunkline.doctor.finding import ERROR, INFO, CheckVerdict, failed, judge, of_way, skipped
from trunkline.doctor.fixtures import new_id
from trunkline.doctor.json_access import INTERRUPTED, TERMINAL, state_of


@of_way(
    "stream-survives-drop",
    ERROR,
    "§3.5.2, STR-10, AG-50",
    means="A caller whose connection breaks loses the work.",
    fix="Let the work go on when nobody listens, and keep its result.",
    first=True,
    sends=True,
)
async def survives(way: ProbeBinding) -> CheckVerdict:
    """The task goes on when its listener leaves after the first frame."""
    tape = await way.subject.trials(way).dropped()
    end = await way.subject.trials(way).settled(tape.task_id)
    good = state_of(end) in TERMINAL | INTERRUPTED and state_of(end) != "canceled"
    return judge(good, f"the task is {state_of(end) or 'not to be read'}", tape.exchange)


@of_way(
    "subscribe-unknown-task",
    ERROR,
    "§3.1.6, SUB-04, AG-52",
    means="Clients wait on a stream that never says anything.",
    fix="Answer a subscription to a task that nobody knows with TaskNotFound (-32001).",
)
async def subscribe_unknown(way: ProbeBinding) -> CheckVerdict:
    """A subscription to a task that never was is refused."""
    way.subject.needs("streaming")
    tape = await way.follow("subscribe", {"id": new_id()}, timeout_s=way.subject.line.timeout_s)
    told = tape.answer.told() if tape.answer is not None else tape.exchange.told()
    return judge(tape.answer is not None and tape.answer.is_code(NOT_FOUND), told, tape.exchange)


@of_way(
    "subscribe-ended-task",
    ERROR,
    "§3.1.6, SUB-03, AG-52",
    means="Clients that come back too late wait for ever.",
    fix="Refuse with UnsupportedOperation (-32004) in 1.0; in 0.3 send the end again and close, or refuse.",
    sends=True,
)
async def subscribe_ended(way: ProbeBinding) -> CheckVerdict:
    """A subscription to an ended task is refused, or in 0.3 comes to its end."""
    way.subject.needs("streaming")
    task = await way.subject.trials(way).ended()
    tape = await way.follow("subscribe", {"id": task["id"]}, timeout_s=way.subject.line.timeout_s)
    told = tape.answer.told() if tape.answer is not None else tape.exchange.told()
    if way.version == "1.0":
        return judge(tape.answer is not None and tape.answer.is_code(UNSUPPORTED), told, tape.exchange)
    good = tape.exchange.closed or (tape.answer is not None and tape.answer.refused)
    return judge(good, told, tape.exchange)


@of_way(
    "subscribe-live",
    ERROR,
    "§3.1.6, SUB-01, SUB-02, AG-51",
    means="A caller whose connection broke cannot take up the stream again.",
    fix="Begin a subscription with the task as it stands, go on with what follows, close at the end.",
    first=True,
    sends=True,
)
async def subscribe_live(way: ProbeBinding) -> CheckVerdict:
    """A running task can be followed again: first the task, then the rest, then the end."""
    dropped = await way.subject.trials(way).dropped()
    tape = await way.follow(
        "subscribe",
        {"id": dropped.task_id},
        # A task that waits for its caller may be followed for as long as the caller likes.
        enough=lambda frame: frame.piece is not None and state_of(frame.piece.value) in INTERRUPTED,
    )
    if tape.answer is not None and tape.answer.is_code(UNSUPPORTED):
        return skipped("the task had ended; give --text something that takes a second or two")
    if not tape.is_stream or tape.answer is not None or not tape.frames:
        told = tape.answer.told() if tape.answer is not None else tape.exchange.told()
        return failed(told, tape.exchange)
    if way.version == "1.0" and (tape.frames[0].piece is None or tape.frames[0].piece.kind != "task"):
        return failed("the first frame is not the task", tape.exchange)
    last = tape.frames[-1].piece
    paused = last is not None and state_of(last.value) in INTERRUPTED
    return judge(paused or tape.exchange.closed, tape.exchange.told(), tape.exchange)


@of_way(
    "stream-resume",
    INFO,
    "WHATWG §9.2.4",
    means="Clients that resume by Last-Event-ID get everything again, and may show it twice.",
    fix="Send an id with each event, and on a subscription with Last-Event-ID only what follows it.",
    first=True,
    sends=True,
)
async def resume(way: ProbeBinding) -> CheckVerdict:
    """Last-Event-ID is honoured where frames have ids."""
    tape = await way.subject.trials(way).tape()
    ids = [frame.id for frame in tape.frames if frame.id]
    if len(set(ids)) < 2 or not tape.task_id:
        return skipped("the frames have no ids")
    again = await way.follow(
        "subscribe",
        {"id": tape.task_id},
        timeout_s=way.subject.line.timeout_s,
        after=ids[0],
        enough=lambda frame: bool(frame.id),
    )
    if again.answer is not None:
        return skipped(f"the task has ended: {again.answer.told()}")
    following = next(one for one in ids if one != ids[0])
    back = next((frame.id for frame in again.frames if frame.id), "nothing")
    return judge(back == following, f"after {ids[0]} came {back}, not {following}", again.exchange)
