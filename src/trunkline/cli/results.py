"""How results and streams are shown, as JSON or as labelled fields and blocks, and what is said beside them.

No part is left out.
"""

from __future__ import annotations

import base64
import binascii
import sys
from itertools import groupby

from msgspec import UNSET
from msgspec.structs import replace

from trunkline.cli.console import (
    clear_progress,
    escape_controls,
    print_block,
    print_data,
    print_field,
    print_given,
    print_json,
    print_notice,
    show_progress,
)
from trunkline.cli.next_command import JSON_REPLY, REPLY, print_next
from trunkline.cli.session import Session
from trunkline.client.assembler import Update
from trunkline.client.result import Result, text_of
from trunkline.client.stream import Stream
from trunkline.wire import v1
from trunkline.wire.answers import Notice
from trunkline.wire.question import Question, is_question_part, read_question
from trunkline.wire.types import (
    INTERRUPTED,
    RESTING,
    Artifact,
    ArtifactUpdate,
    Message,
    Metadata,
    Part,
    StatusUpdate,
    Task,
    TaskState,
)


def show_ids(task_id: str, context_id: str, state: str, skill: str = "") -> None:
    """The three fields that every word about a task has, and the skill where the caller has named it."""
    print_field("Task", task_id)
    print_field("Context", context_id)
    print_field("State", state)
    print_given(Skill=skill)


def show_task(task: Task, *, verbose: bool, history: bool = False, skill: str = "") -> None:
    """A task: its ids and state, what was said with it, and its artifacts; its history where it is wanted."""
    show_ids(task.id, task.context_id, task.status.state.value, skill)
    if verbose:
        print_given(Updated=task.status.timestamp)
    if task.status.message is not None:
        _show_parts(task.status.message.parts, "Status", verbose=verbose)
    for artifact in task.artifacts:
        _show_artifact(artifact, verbose=verbose)
    for message in task.history if history or verbose else ():
        show_message(message, verbose=verbose, ids=False)
    if verbose:
        _show_metadata(task.metadata)


def show_message(message: Message, *, verbose: bool, ids: bool = True) -> None:
    """A message; with `ids` those of its task and context, where it names them."""
    if ids:
        print_given(Task=message.task_id, Context=message.context_id)
    print_field("Message", message.message_id)
    if message.role is not None:
        print_field("Role", message.role.value)
    _show_parts(message.parts, "Text", verbose=verbose)
    if verbose:
        _show_metadata(message.metadata)


def show_sent(message_id: str, parts: list[Part]) -> None:
    """Print a message that was sent, part by part."""
    print_field("Sent", message_id)
    _show_parts(parts, "Text", verbose=True)


def show_event(notice: Notice, fresh: str, *, verbose: bool, skill: str = "") -> None:
    """One event of a stream; `fresh` is what it adds to the text, and no event says the `skill`."""
    answer = notice.answer
    if isinstance(answer, Task):
        show_task(answer, verbose=verbose, skill=skill)
    elif isinstance(answer, Message):
        show_message(answer, verbose=verbose)
    elif isinstance(answer, StatusUpdate):
        for artifact in notice.artifacts:
            _show_artifact(artifact, verbose=verbose)
        show_ids(answer.task_id, answer.context_id, answer.status.state.value, skill)
        if answer.status.message is not None:
            _show_parts(answer.status.message.parts, "Status", verbose=verbose)
    else:
        others = [part for part in answer.artifact.parts if part.text is None]
        texts = [Part(text=fresh)] if fresh else []
        _show_artifact(replace(answer.artifact, parts=(*texts, *others)), verbose=verbose)


def _show_artifact(artifact: Artifact, *, verbose: bool) -> None:
    print_field("Artifact", f"{artifact.artifact_id} {f'({artifact.name})' if artifact.name else ''}")
    if verbose:
        print_given(Description=artifact.description)
        _show_metadata(artifact.metadata)
    _show_parts(artifact.parts, "Text", verbose=verbose)


def _show_parts(parts: tuple[Part, ...] | list[Part], label: str, *, verbose: bool) -> None:
    """Texts that follow each other are one text, unless every part is wanted."""
    for joined, run in groupby(parts, lambda part: part.text is not None and not verbose):
        if joined:
            print_block(label, "".join([part.text or "" for part in run]))
        else:
            for part in run:
                _show_part(part, label, verbose=verbose)


def _show_part(part: Part, label: str, *, verbose: bool) -> None:
    if verbose and part.media_type:
        print_field("Type", part.media_type)
    if part.text is not None:
        print_block(label, part.text)
    elif is_question_part(part):
        _show_wanted(read_question(Message("", parts=(part,))))
    elif part.data is not UNSET:
        print_data("Data", part.data)
    else:
        # Its name, its media type, and its size or address.
        where = part.url if part.url is not None else f"{len(file_bytes(part))} bytes"
        print_field("File", f"{part.filename or '(no name)'}, {part.media_type or '(no type)'}, {where}")
    if verbose:
        _show_metadata(part.metadata)


def _show_wanted(question: Question) -> None:
    """Which answer a question wants, and until when."""
    print_given(Choices=", ".join(question.choices))
    if question.schema is not None:
        print_data("Schema", question.schema)
    print_given(Deadline=question.deadline)


def file_bytes(part: Part) -> bytes:
    """The bytes of a file that was sent along; what is no base64 counts as it is."""
    raw = (part.raw or "").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(raw + "=" * (-len(raw) % 4))
    except binascii.Error:
        return raw.encode()


def _show_metadata(metadata: Metadata | None) -> None:
    if metadata:
        print_data("Metadata", metadata)


def show_result(session: Session, result: Result, *, wrapped: bool, wanted: TaskState | None = None) -> None:
    """Show how it stands.

    `wrapped` is the answer to a send, which says whether it is a task or a message; the end that was `wanted`
    is not warned of.
    """
    clear_progress()
    config = session.config
    if config.as_json:
        print_json(encode_result(result, wrapped=wrapped), compact=config.flag("stream"))
    else:
        if result.task is not None:
            history = config.count("history") is not None
            show_task(result.task, verbose=config.flag("verbose"), history=history)
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
    said = result.question or result.text if state in INTERRUPTED else text_of(result.task.status.message)
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
    return result or await stream.finish()


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
            print_json(encode_result(result, wrapped=True), compact=True)
        return
    if result.task is not None and not told:
        show_ids(result.task_id, result.context_id, result.state.value, skill)
    _show_next(session, result)


def encode_result(result: Result, *, wrapped: bool) -> bytes:
    """A result as 1.0 has it; `wrapped` as the answer to a send, which names its kind."""
    if result.task is not None:
        task = v1.task(result.task)
        return v1.task_frame(task) if wrapped else task
    assert result.message is not None
    return v1.message_frame(result.message) if wrapped else v1.message(result.message)


def _show_next(session: Session, result: Result) -> None:
    """The command to go on with."""
    if result.state in INTERRUPTED:
        ids = {"context_id": result.context_id, "task_id": result.task_id}
        question = result.question
        reply = f"<{'|'.join(question.choices)}>" if question.choices else REPLY
        command = session.command("send", reply, **ids)
        if question.schema is not None:
            command = session.command("send", **ids, data=JSON_REPLY)
        print_next(command)
    elif result.task is not None and not result.ended:
        print_next(session.wait_command(result.task_id))
    elif result.context_id:
        print_next(session.command("send", REPLY, context_id=result.context_id))
