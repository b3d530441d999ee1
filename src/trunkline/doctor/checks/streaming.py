"""Checks of streams: their frames and their end, and subscribing again while the task runs or after it."""

from __future__ import annotations

from trunkline.clock import new_id
from trunkline.doctor.check import ERROR, INFO, RPC, V03, WARNING, Family, assume, expect, expect_answer
from trunkline.doctor.exchange import (
    AT_REST,
    EVENTS,
    INTERRUPTED,
    TERMINAL,
    at,
    members,
    parsed,
    state_of,
    text,
    texts,
)
from trunkline.doctor.probe import NO_METHOD, NOT_FOUND, UNSUPPORTED, InterfaceProbe, ProbeFrame, method

streaming = Family("streaming", needs="streaming")
subscribing = Family("subscribing", needs="streaming")


@streaming.interface("stream-works", ERROR, "§3.3.4, STR-13, AG-03")
async def works(probe: InterfaceProbe) -> None:
    """Streaming is declared, and a stream comes.

    Means: The card says that the agent streams, and it does not; clients that believe it get nothing.
    Fix: Answer the streaming method with text/event-stream, or set capabilities.streaming to false.
    """
    stream = await probe.fixtures.streamed()
    there = not (stream.is_code(NO_METHOD) and probe.is_rpc)
    assume(there, "the method is not there; see stream-method-found")
    expect_answer(stream.is_stream, stream)
    expect(stream.frames, f"no event came: {stream.exchange.summary()}", stream)


@streaming.interface("stream-method-found", ERROR, "§9.4.2, AG-03", bindings=RPC)
async def method_found(probe: InterfaceProbe) -> None:
    """A declared stream is not refused as an unknown method.

    Means: The method is not there (-32601). Clients that wait for events report a wrong content type instead,
        and the real cause stays hidden.
    Fix: Route the streaming method, or set capabilities.streaming to false in the card.
    """
    stream = await probe.fixtures.streamed()
    seen = f"{method('stream', probe.version)}: {stream.summary()}"
    expect(not stream.is_code(NO_METHOD), seen, stream)


@streaming.interface("stream-undeclared-refused", ERROR, "§3.3.4, STR-11, AG-03", needs="")
async def undeclared(probe: InterfaceProbe) -> None:
    """What is not declared is refused.

    Means: The card says that there are no streams, and there are; or the refusal is not the agreed one.
    Fix: Declare capabilities.streaming, or refuse with UnsupportedOperation (-32004).
    """
    assume(not probe.subject.flag("streaming"), "the card declares streaming")
    stream = await probe.follow("subscribe", {"id": new_id()})
    expect_answer(stream.is_code(UNSUPPORTED) if probe.is_v1 else stream.refused, stream)


@streaming.interface("stream-first-frame", ERROR, "§3.1.2, STR-01, AG-44")
async def first_frame(probe: InterfaceProbe) -> None:
    """The first frame is the task, or the only one a message.

    Means: Clients learn the task's id from the first frame; without it they cannot get back to the task.
    Fix: Begin every stream with the task; a direct message is the only frame of its stream.
    """
    stream = await probe.fixtures.stream()
    kind = stream.frames[0].object.kind or "nothing known"
    good = kind == "task" or (kind == "message" and len(stream.frames) == 1)
    expect(good, f"the first frame is {kind}", stream)


@streaming.interface("stream-envelope", ERROR, "§9.4.2, JRP-01, AG-45")
async def envelope(probe: InterfaceProbe) -> None:
    """Every frame is a whole answer with the request's id and one known thing in it.

    Means: Clients cannot match frames to their request, or cannot read them at all.
    Fix: Make each event one JSON document; over JSON-RPC an answer with the id of the request.
    """
    stream = await probe.fixtures.stream()
    sent = at(parsed(stream.exchange.request.body or b""), "id")
    for index, frame in enumerate(stream.frames, 1):
        expect(members(frame.envelope), f"frame {index} is no JSON object", stream)
        if probe.is_rpc:
            version, back = at(frame.envelope, "jsonrpc"), at(frame.envelope, "id")
            expect(version == "2.0", f"frame {index} has no jsonrpc 2.0", stream)
            expect(back == sent, f"frame {index} has the id {back!r}, not {sent!r}", stream)
        expect(frame.object.kind, f"frame {index} holds no task, message or update", stream)


@streaming.interface("stream-names-task", ERROR, "§4.2, STR-07")
async def names_task(probe: InterfaceProbe) -> None:
    """Every frame names the same task and context.

    Means: Updates cannot be told apart when several tasks are followed.
    Fix: Put the same taskId and contextId into every frame.
    """
    stream = await probe.fixtures.stream()
    found = {
        (frame.object.task_id, text(frame.object.value.get("contextId")))
        for frame in stream.frames
        if frame.object.kind not in ("", "message")
    }
    expect(len(found) <= 1 and all(all(pair) for pair in found), f"the frames name {sorted(found)}", stream)


@streaming.interface("stream-closes", ERROR, "§3.1.2, STR-03, AG-47")
async def closes(probe: InterfaceProbe) -> None:
    """The stream ends with a state in which the task rests, and is closed.

    Means: Clients wait for more until they give up.
    Fix: Close the stream behind the terminal state, and send that state before closing.
    """
    stream = await probe.fixtures.stream()
    last = next((frame.object.state for frame in reversed(stream.frames) if frame.object.state), "")
    expect(stream.exchange.closed, f"after {last or 'no state'}: {stream.exchange.trouble}", stream)
    good = last in AT_REST or any(frame.object.kind == "message" for frame in stream.frames)
    expect(good, f"it closed in state {last or 'unknown'}", stream)


@streaming.interface("stream-one-end", ERROR, "§3.5.1, STR-14, AG-15")
async def one_end(probe: InterfaceProbe) -> None:
    """No state follows a terminal one.

    Means: Clients stop at the first terminal state and miss the rest, or report two ends.
    Fix: Send nothing behind a terminal state.
    """
    stream = await probe.fixtures.stream()
    states = [frame.object.state for frame in stream.frames]
    early = next((state for state in states[:-1] if state in TERMINAL), "")
    expect(not early, f"{early} is followed by more", stream)


@streaming.interface("stream-final-flag", ERROR, "0.3 §7.2.2, AG-48", bindings=RPC, versions=V03)
async def final_flag(probe: InterfaceProbe) -> None:
    """`final` is true on the last status and nowhere else.

    Means: Clients of 0.3 know the end by `final`; without it they go on waiting.
    Fix: Set final to true on the last status-update of a stream, and on no other.
    """
    stream = await probe.fixtures.stream()
    updates = [frame.object.value for frame in stream.frames if frame.object.kind == "status-update"]
    flags = [update.get("final") for update in updates]
    assume(flags, "there was no status-update")
    expect(flags[-1] is True and not any(flags[:-1]), f"the flags were {flags}", stream)


@streaming.interface("stream-equals-task", ERROR, "§4.2.2, STR-08, AG-46")
async def equals_task(probe: InterfaceProbe) -> None:
    """The frames add up to the artifacts of the task.

    Means: Who follows the stream has another result than who reads the task.
    Fix: Send each chunk once, append:true only for what is new, and keep what was sent.
    """
    stream = await probe.fixtures.stream()
    assume(stream.task_id and stream.exchange.closed, "the stream names no task, or did not end")
    answer = await probe.call("get", {"id": stream.task_id})
    expect(not answer.refused, f"the task of the stream: {answer.summary()}", answer)
    sent, kept = _artifact_texts(stream.frames), texts(answer.task.get("artifacts"))
    expect(sent == kept, f"the stream gave {sent}, the task has {kept}", stream, answer)


def _artifact_texts(frames: tuple[ProbeFrame, ...]) -> dict[str, str]:
    """The text of each artifact, put together from the frames."""
    found: dict[str, str] = {}
    for frame in frames:
        value = frame.object.value
        if frame.object.kind == "task":
            found = texts(value.get("artifacts"))
        elif frame.object.kind == "artifact-update":
            for artifact_id, chunk in texts([value.get("artifact")]).items():
                before = found.get(artifact_id, "") if value.get("append") is True else ""
                found[artifact_id] = before + chunk
    return found


@subscribing.interface("stream-survives-drop", ERROR, "§3.5.2, STR-10, AG-50", first=True)
async def survives(probe: InterfaceProbe) -> None:
    """The task goes on when its listener leaves after the first frame.

    Means: A caller whose connection breaks loses the work.
    Fix: Let the work go on when nobody listens, and keep its result.
    """
    stream = await probe.fixtures.dropped()
    state = state_of(await probe.fixtures.settled(stream.task_id))
    expect(state in AT_REST and state != "canceled", f"the task is {state or 'not to be read'}", stream)


@subscribing.interface("subscribe-unknown-task", ERROR, "§3.1.6, SUB-04, AG-52")
async def subscribe_unknown(probe: InterfaceProbe) -> None:
    """A subscription to a task that never was is refused.

    Means: Clients wait on a stream that never says anything.
    Fix: Answer a subscription to a task that nobody knows with TaskNotFound (-32001).
    """
    stream = await probe.fixtures.followed_unknown()
    expect_answer(stream.refused, stream)


@subscribing.interface("subscribe-ended-task", ERROR, "§3.1.6, SUB-03, AG-52")
async def subscribe_ended(probe: InterfaceProbe) -> None:
    """A subscription to an ended task is refused, or in 0.3 comes to its end.

    Means: Clients that come back too late wait for ever.
    Fix: Refuse with UnsupportedOperation (-32004) in 1.0; in 0.3 send the end again and close, or refuse.
    """
    stream = await probe.fixtures.followed_ended()
    expect_answer(stream.refused or (stream.exchange.closed and not probe.is_v1), stream)


@subscribing.interface("subscribe-refusal-codes", WARNING, "§3.1.6, SUB-03, SUB-04, AG-52")
async def refusal_codes(probe: InterfaceProbe) -> None:
    """Refused subscriptions have the agreed codes.

    Means: Clients cannot tell a task that is gone, or has ended, from a broken agent.
    Fix: Use TaskNotFound (-32001) for an unknown task, in 1.0 UnsupportedOperation (-32004) for an ended one.
    """
    stream = await probe.fixtures.followed_unknown()
    if stream.refused:
        expect(stream.is_code(NOT_FOUND), f"a task that never was: {stream.summary()}", stream)
    if probe.is_v1 and (stream := await probe.fixtures.followed_ended()).refused:
        expect(stream.is_code(UNSUPPORTED), f"a task that has ended: {stream.summary()}", stream)


@subscribing.interface("subscribe-live", ERROR, "§3.1.6, SUB-01, SUB-02, AG-51", first=True)
async def subscribe_live(probe: InterfaceProbe) -> None:
    """A running task can be followed again: first the task, then the rest, then the end.

    Means: A caller whose connection broke cannot take up the stream again.
    Fix: Begin a subscription with the task as it stands, go on with what follows, close at the end.
    """
    stream = await probe.fixtures.followed()
    expect_answer(stream.is_stream and stream.frames, stream)
    if probe.is_v1:
        expect(stream.frames[0].object.kind == "task", "the first frame is not the task", stream)
    paused = stream.frames[-1].object.state in INTERRUPTED
    expect_answer(paused or stream.exchange.closed, stream)


@subscribing.interface("subscribe-changes-nothing", ERROR, "§3.1.6, SUB-02", first=True)
async def changes_nothing(probe: InterfaceProbe) -> None:
    """A task that was followed again has each piece of its artifacts once.

    Means: The stored result holds what came after the subscription twice; whoever reads the task gets that.
    Fix: Let one reader of a task's events write to the store, however many follow the task.
    """
    stream = await probe.fixtures.followed()
    assume(stream.frames, "nothing came; see subscribe-live")
    answer = await probe.call("get", {"id": (await probe.fixtures.dropped()).task_id})
    kept = texts(answer.task.get("artifacts"))
    for artifact_id, sent in _artifact_texts(stream.frames).items():
        stored = kept.get(artifact_id, "")
        # A subscription that does not begin with the task begins in the middle.
        same = stored == sent or (stream.frames[0].object.kind != "task" and stored.endswith(sent))
        expect(same, f"the subscription gave {sent!r}, the task has {stored!r}", stream, answer)


@subscribing.interface("stream-resume", INFO, "WHATWG §9.2.4", first=True)
async def resume(probe: InterfaceProbe) -> None:
    """Last-Event-ID is honoured where frames have ids.

    Means: Clients that resume by Last-Event-ID get everything again, and may show it twice.
    Fix: Send an id with each event, and on a subscription with Last-Event-ID only what follows it.
    """
    stream = await probe.fixtures.stream()
    ids = [frame.id for frame in stream.frames if frame.id]
    assume(len(set(ids)) >= 2 and stream.task_id, "the frames have no ids")
    last = (("Last-Event-ID", ids[0]),)
    again = await probe.follow(
        "subscribe", {"id": stream.task_id}, headers=last, enough=lambda frame: bool(frame.id)
    )
    streams = again.exchange.media_type == EVENTS and not again.refused
    assume(streams, f"the task has ended: {again.summary()}")
    following = next(one for one in ids if one != ids[0])
    back = next((frame.id for frame in again.frames if frame.id), "nothing")
    expect(back == following, f"after {ids[0]} came {back}, not {following}", again)
