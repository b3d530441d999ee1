"""How results and streams are shown, as JSON or as fields, and what is said beside them."""

from __future__ import annotations

import sys

from trunkline.cli.console import (
    clear_progress,
    escape_controls,
    print_field,
    print_json,
    print_notice,
    show_progress,
)
from trunkline.cli.render import show_event, show_ids, show_message, show_task
from trunkline.cli.session import Session
from trunkline.client.assembler import Update
from trunkline.client.result import Result
from trunkline.client.stream import Stream
from trunkline.wire import v1
from trunkline.wire.answers import Notice
from trunkline.wire.types import INTERRUPTED, RESTING, ArtifactUpdate, Message, StatusUpdate, Task, TaskState

REPLY = "<reply>"
JSON_REPLY = "<json>"


def show_result(session: Session, result: Result, *, wrapped: bool, wanted: TaskState | None = None) -> None:
    """Show how it stands.

    `wrapped` is the answer to a send, which says whether it is a task or a message; the end that was `wanted`
    is not warned of.
    """
    clear_progress()
    config = session.config
    if config.as_json:
        print_json(_encode(result, wrapped=wrapped), compact=config.streams)
    elif result.task is not None:
        history = config.count("history") is not None
        show_task(result.task, verbose=config.flag("verbose"), history=history)
        _show_next(session, result)
    elif result.message is not None:
        show_message(result.message, verbose=config.flag("verbose"))
        _show_next(session, result)
    if result.state is not wanted:
        warn(result)


def warn(result: Result) -> None:
    """Say it on standard error where the goal was not reached: the exit code does not."""
    state = result.state
    if result.task is None or state not in RESTING or state is TaskState.COMPLETED:
        return
    said = result.question or result.text if state in INTERRUPTED else _status_text(result.task)
    verb = "waits" if state in INTERRUPTED else "ended"
    print_notice("Warning", f"the task {verb}: {state.value}{': ' if said else ''}{said}")


async def show_stream(session: Session, stream: Stream, *, asked: bool = False, skill: str = "") -> Result:
    """Show every event as it comes, until the task rests; the last one says the ids and the state.

    A subscription goes on through questions: `asked` leaves it at the first. The stream of a send ends by
    itself, and its first event may show the question that is just being answered. No event says the `skill`:
    it is shown beside the state where the caller has named it.
    """
    config = session.config
    last: Notice | None = None
    # On a terminal the pieces of a text flow into one; a pipe gets each as a block of its own.
    flows = sys.stdout.isatty() and not config.flag("verbose")
    open_line = False
    try:
        async with stream:
            async for update in stream:
                known, last = session.task_id, update.notice
                note_task(session, update)
                if session.task_id != known:
                    clear_progress()
                if config.as_json:
                    for frame in frames(last):
                        print_json(frame, compact=True)
                elif flows and _is_text(last):
                    print(escape_controls(update.text), end="", flush=True)
                    open_line = open_line or bool(update.text)
                else:
                    open_line = _close_line(open_line)
                    show_event(last, update.text, verbose=config.flag("verbose"), skill=skill)
                if asked and update.state in INTERRUPTED:
                    break
            result = stream.result if last is not None else await stream.finish()
    finally:
        _close_line(open_line)
    assert result is not None
    _show_end(session, result, last, skill)
    warn(result)
    return result


async def follow(session: Session, stream: Stream, *, asked: bool = False) -> Result:
    """Read a stream to where the task rests; on a terminal, what happens passes by. `asked` is as above."""
    async with stream:
        async for update in stream:
            note_task(session, update)
            show_progress(f"{session.task_id} {update.state.value if update.state else ''} {update.text}")
            if asked and update.state in INTERRUPTED:
                break
        result = stream.result
    if result is None:
        return await stream.finish()
    return result


def frames(notice: Notice) -> list[bytes]:
    """The events of 1.0 that a notice stands for."""
    answer = notice.answer
    if isinstance(answer, Task):
        return [v1.task_frame(v1.task(answer))]
    if isinstance(answer, Message):
        return [v1.message_frame(answer)]
    if isinstance(answer, ArtifactUpdate):
        return [v1.artifact_frame(answer)]
    brought = [ArtifactUpdate(answer.task_id, answer.context_id, each) for each in notice.artifacts]
    return [*map(v1.artifact_frame, brought), v1.status_frame(answer, final=notice.final)]


def note_task(session: Session, update: Update) -> None:
    """Know the task from its first event on."""
    answer = update.notice.answer
    found = answer.id if isinstance(answer, Task) else answer.task_id
    if found and not session.task_id:
        session.task_id = found
        show_progress(f"{found} has begun")


def _close_line(is_open: bool) -> bool:
    """End a line of flowing text before anything else is printed; gives that none is open now."""
    if is_open:
        print(flush=True)
    return False


def _is_text(notice: Notice) -> bool:
    answer = notice.answer
    return isinstance(answer, ArtifactUpdate) and all(part.text is not None for part in answer.artifact.parts)


def _show_end(session: Session, result: Result, last: Notice | None, skill: str) -> None:
    """Print the state of the task at the end, where the last event has not told it."""
    answer = None if last is None else last.answer
    told = isinstance(answer, Message) or (
        isinstance(answer, Task | StatusUpdate) and answer.status.state is result.state
    )
    if session.config.as_json:
        if not told:
            print_json(_encode(result, wrapped=True), compact=True)
        return
    if result.task is not None and not told:
        show_ids(result.task_id, result.context_id, result.state.value, skill)
    _show_next(session, result)


def _encode(result: Result, *, wrapped: bool) -> bytes:
    if result.task is not None:
        task = v1.task(result.task)
        return v1.answer_task(task) if wrapped else task
    assert result.message is not None
    return v1.answer_message(result.message) if wrapped else v1.message(result.message)


def _show_next(session: Session, result: Result) -> None:
    """The command to go on with."""
    if result.state in INTERRUPTED:
        ids = {"context_id": result.context_id, "task_id": result.task_id}
        question = result.question
        reply = f"<{'|'.join(question.choices)}>" if question.choices else REPLY
        command = session.command("send", reply, **ids)
        if question.schema is not None:
            command = session.command("send", **ids, data=JSON_REPLY)
        print_field("Next", command)
    elif result.task is not None and not result.ended:
        print_field("Next", session.command("task get", result.task_id, flags=["--wait"]))
    elif result.context_id:
        print_field("Next", session.command("send", REPLY, context_id=result.context_id))


def _status_text(task: Task) -> str:
    said = task.status.message
    return "".join([part.text or "" for part in said.parts]) if said else ""
