"""Checks of streams: what comes first, what holds them together, how they end."""

from __future__ import annotations

from trunkline.doctor.binding import NO_METHOD, UNSUPPORTED, ProbeBinding, ProbeFrame
from trunkline.doctor.finding import (
    ERROR,
    PASSED,
    RPC,
    CheckVerdict,
    failed,
    judge,
    of_way,
    skipped,
)
from trunkline.doctor.fixtures import new_id, task_in
from trunkline.doctor.json_access import INTERRUPTED, TERMINAL, at, members, parsed, state_of, text, texts
from trunkline.doctor.spelling import method


@of_way(
    "stream-works",
    ERROR,
    "§3.3.4, STR-13, AG-03",
    means="The card says that the agent streams, and it does not; clients that believe it get nothing.",
    fix="Answer the streaming method with text/event-stream, or set capabilities.streaming to false.",
    sends=True,
)
async def works(way: ProbeBinding) -> CheckVerdict:
    """Streaming is declared, and a stream comes."""
    way.subject.needs("streaming")
    tape = await way.subject.trials(way).streamed()
    if tape.answer is not None and tape.answer.is_code(NO_METHOD) and way.is_rpc:
        return skipped("the method is not there; see stream-method-found")
    if not tape.is_stream or tape.answer is not None:
        told = tape.answer.told() if tape.answer is not None else tape.exchange.told()
        return failed(told, tape.exchange)
    return judge(tape.frames, f"no event came: {tape.exchange.told()}", tape.exchange)


@of_way(
    "stream-method-found",
    ERROR,
    "§9.4.2, AG-03",
    means=(
        "The method is not there (-32601). Clients that wait for events report a wrong content type"
        " instead, and the real cause stays hidden."
    ),
    fix="Route the streaming method, or set capabilities.streaming to false in the card.",
    bindings=RPC,
    sends=True,
)
async def method_found(way: ProbeBinding) -> CheckVerdict:
    """A declared stream is not refused as an unknown method."""
    way.subject.needs("streaming")
    tape = await way.subject.trials(way).streamed()
    hidden = tape.answer is not None and tape.answer.is_code(NO_METHOD)
    seen = f"{method('stream', way.version)}: {tape.answer.told() if tape.answer else ''}"
    return judge(not hidden, seen, tape.exchange)


@of_way(
    "stream-undeclared-refused",
    ERROR,
    "§3.3.4, STR-11, AG-03",
    means="The card says that there are no streams, and there are; or the refusal is not the agreed one.",
    fix="Declare capabilities.streaming, or refuse with UnsupportedOperation (-32004).",
)
async def undeclared(way: ProbeBinding) -> CheckVerdict:
    """What is not declared is refused."""
    if way.subject.flag("streaming"):
        return skipped("the card declares streaming")
    tape = await way.follow("subscribe", {"id": new_id()}, timeout_s=way.subject.line.timeout_s)
    if way.version != "1.0":
        return judge(tape.answer is not None and tape.answer.refused, tape.exchange.told(), tape.exchange)
    good = tape.answer is not None and tape.answer.is_code(UNSUPPORTED)
    told = tape.answer.told() if tape.answer is not None else tape.exchange.told()
    return judge(good, told, tape.exchange)


@of_way(
    "stream-first-frame",
    ERROR,
    "§3.1.2, STR-01, AG-44",
    means="Clients learn the task's id from the first frame; without it they cannot get back to the task.",
    fix="Begin every stream with the task; a direct message is the only frame of its stream.",
    sends=True,
)
async def first_frame(way: ProbeBinding) -> CheckVerdict:
    """The first frame is the task, or the only one a message."""
    tape = await way.subject.trials(way).tape()
    kind = tape.frames[0].piece.kind if tape.frames[0].piece else "nothing known"
    good = kind == "task" or (kind == "message" and len(tape.frames) == 1)
    return judge(good, f"the first frame is {kind}", tape.exchange)


@of_way(
    "stream-envelope",
    ERROR,
    "§9.4.2, JRP-01, AG-45",
    means="Clients cannot match frames to their request, or cannot read them at all.",
    fix="Make each event one JSON document; over JSON-RPC an answer with the id of the request.",
    sends=True,
)
async def envelope(way: ProbeBinding) -> CheckVerdict:
    """Every frame is a whole answer with the request's id and one known thing in it."""
    tape = await way.subject.trials(way).tape()
    sent = at(parsed(tape.exchange.request.body or b""), "id")
    for place, frame in enumerate(tape.frames, 1):
        if not members(frame.envelope):
            return failed(f"frame {place} is no JSON object", tape.exchange)
        if way.is_rpc and at(frame.envelope, "jsonrpc") != "2.0":
            return failed(f"frame {place} has no jsonrpc 2.0", tape.exchange)
        if way.is_rpc and at(frame.envelope, "id") != sent:
            return failed(
                f"frame {place} has the id {at(frame.envelope, 'id')!r}, not {sent!r}", tape.exchange
            )
        if frame.piece is None:
            return failed(f"frame {place} holds no task, message or update", tape.exchange)
    return PASSED


@of_way(
    "stream-names-task",
    ERROR,
    "§4.2, STR-07",
    means="Updates cannot be told apart when several tasks are followed.",
    fix="Put the same taskId and contextId into every frame.",
    sends=True,
)
async def names_task(way: ProbeBinding) -> CheckVerdict:
    """Every frame names the same task and context."""
    tape = await way.subject.trials(way).tape()
    found: set[tuple[str, str]] = set()
    for frame in tape.frames:
        if frame.piece is not None and frame.piece.kind != "message":
            name = frame.piece.value.get("id" if frame.piece.kind == "task" else "taskId")
            found.add((text(name), text(frame.piece.value.get("contextId"))))
    good = len(found) <= 1 and all(all(pair) for pair in found)
    return judge(good, f"the frames name {sorted(found)}", tape.exchange)


@of_way(
    "stream-closes",
    ERROR,
    "§3.1.2, STR-03, AG-47",
    means="Clients wait for more until they give up.",
    fix="Close the stream behind the terminal state, and send that state before closing.",
    sends=True,
)
async def closes(way: ProbeBinding) -> CheckVerdict:
    """The stream ends with a state in which the task rests, and is closed."""
    tape = await way.subject.trials(way).tape()
    last = [
        state_of(frame.piece.value) for frame in tape.frames if frame.piece and state_of(frame.piece.value)
    ]
    if not tape.exchange.closed:
        return failed(f"after {last[-1] if last else 'no state'}: {tape.exchange.trouble}", tape.exchange)
    is_message = any(frame.piece and frame.piece.kind == "message" for frame in tape.frames)
    good = is_message or (last and last[-1] in TERMINAL | INTERRUPTED)
    return judge(good, f"it closed in state {last[-1] if last else 'unknown'}", tape.exchange)


@of_way(
    "stream-one-end",
    ERROR,
    "§3.5.1, STR-14, AG-15",
    means="Clients stop at the first terminal state and miss the rest, or report two ends.",
    fix="Send nothing behind a terminal state.",
    sends=True,
)
async def one_end(way: ProbeBinding) -> CheckVerdict:
    """No state follows a terminal one."""
    tape = await way.subject.trials(way).tape()
    states = [state_of(frame.piece.value) if frame.piece else "" for frame in tape.frames]
    over = next((place for place, state in enumerate(states) if state in TERMINAL), len(states) - 1)
    return judge(over == len(states) - 1, f"{states[over]} is followed by more", tape.exchange)


@of_way(
    "stream-final-flag",
    ERROR,
    "0.3 §7.2.2, AG-48",
    means="Clients of 0.3 know the end by `final`; without it they go on waiting.",
    fix="Set final to true on the last status-update of a stream, and on no other.",
    versions=("0.3",),
    bindings=RPC,
    sends=True,
)
async def final_flag(way: ProbeBinding) -> CheckVerdict:
    """`final` is true on the last status and nowhere else."""
    tape = await way.subject.trials(way).tape()
    flags = [
        frame.piece.value.get("final")
        for frame in tape.frames
        if frame.piece is not None and frame.piece.kind == "status-update"
    ]
    if not flags:
        return skipped("there was no status-update")
    good = flags[-1] is True and not any(flags[:-1])
    return judge(good, f"the flags were {flags}", tape.exchange)


@of_way(
    "stream-equals-task",
    ERROR,
    "§4.2.2, STR-08, AG-46",
    means="Who follows the stream has another result than who reads the task.",
    fix="Send each chunk once, append:true only for what is new, and keep what was sent.",
    sends=True,
)
async def equals_task(way: ProbeBinding) -> CheckVerdict:
    """The frames add up to the artifacts of the task."""
    tape = await way.subject.trials(way).tape()
    if not tape.task_id or not tape.exchange.closed:
        return skipped("the stream names no task, or did not end")
    answer = await way.call("get", {"id": tape.task_id})
    if answer.refused:
        return failed(f"the task of the stream: {answer.told()}", answer.exchange)
    heard, kept = _added(tape.frames), texts(task_in(answer).get("artifacts"))
    return judge(
        heard == kept, f"the stream gave {heard}, the task has {kept}", tape.exchange, answer.exchange
    )


def _added(frames: tuple[ProbeFrame, ...]) -> dict[str, str]:
    """The text of each artifact, put together from the frames."""
    found: dict[str, str] = {}
    for frame in frames:
        if frame.piece is None:
            continue
        if frame.piece.kind == "task":
            found = texts(frame.piece.value.get("artifacts"))
        elif frame.piece.kind == "artifact-update":
            for name, words in texts([frame.piece.value.get("artifact")]).items():
                more = frame.piece.value.get("append") is True
                found[name] = found.get(name, "") + words if more else words
    return found
