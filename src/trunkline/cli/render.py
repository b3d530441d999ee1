"""Tasks, messages and events as labelled fields and blocks. No part is left out."""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec import UNSET

from trunkline.cli.console import print_block, print_field
from trunkline.wire.answers import Notice
from trunkline.wire.question import Question, is_question_part, read_question
from trunkline.wire.types import Artifact, ArtifactUpdate, Message, Metadata, Part, StatusUpdate, Task


def show_ids(task_id: str, context_id: str, state: str, skill: str = "") -> None:
    """The three fields that every word about a task has, and the skill where the caller has named it."""
    print_field("Task", task_id)
    print_field("Context", context_id)
    print_field("State", state)
    if skill:
        print_field("Skill", skill)


def show_task(task: Task, *, verbose: bool, history: bool = False, skill: str = "") -> None:
    """A task: its ids and state, what was said with it, and its artifacts; its history where it is wanted."""
    show_ids(task.id, task.context_id, task.status.state.value, skill)
    if task.status.timestamp and verbose:
        print_field("Updated", task.status.timestamp)
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
        for label, value in (("Task", message.task_id), ("Context", message.context_id)):
            if value:
                print_field(label, value)
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
        _show_update(answer, fresh, verbose=verbose)


def _show_update(update: ArtifactUpdate, fresh: str, *, verbose: bool) -> None:
    _show_artifact_head(update.artifact, verbose=verbose)
    if fresh:
        print_block("Text", fresh)
    _show_parts([part for part in update.artifact.parts if part.text is None], "Text", verbose=verbose)


def _show_artifact(artifact: Artifact, *, verbose: bool) -> None:
    _show_artifact_head(artifact, verbose=verbose)
    _show_parts(artifact.parts, "Text", verbose=verbose)


def _show_artifact_head(artifact: Artifact, *, verbose: bool) -> None:
    print_field(
        "Artifact", " ".join([artifact.artifact_id, *([f"({artifact.name})"] if artifact.name else ())])
    )
    if verbose:
        if artifact.description:
            print_field("Description", artifact.description)
        _show_metadata(artifact.metadata)


def _show_parts(parts: tuple[Part, ...] | list[Part], label: str, *, verbose: bool) -> None:
    """Texts that follow each other are one text, unless every part is wanted."""
    run: list[str] = []
    for part in parts:
        if part.text is not None and not verbose:
            run.append(part.text)
            continue
        if run:
            print_block(label, "".join(run))
            run = []
        _show_part(part, label, verbose=verbose)
    if run:
        print_block(label, "".join(run))


def _show_part(part: Part, label: str, *, verbose: bool) -> None:
    if verbose and part.media_type:
        print_field("Type", part.media_type)
    if part.text is not None:
        print_block(label, part.text)
    elif is_question_part(part):
        _show_wanted(read_question(Message("", parts=(part,))))
    elif part.data is not UNSET:
        print_block("Data", msgspec.json.format(msgspec.json.encode(part.data)).decode())
    else:
        print_field("File", describe_file(part))
    if verbose:
        _show_metadata(part.metadata)


def _show_wanted(question: Question) -> None:
    """Which answer a question wants, and until when."""
    if question.choices:
        print_field("Choices", ", ".join(question.choices))
    if question.schema is not None:
        print_block("Schema", msgspec.json.format(msgspec.json.encode(question.schema)).decode())
    if question.deadline:
        print_field("Deadline", question.deadline)


def describe_file(part: Part) -> str:
    """A file's name, media type, and size or address."""
    where = part.url if part.url is not None else f"{len(file_bytes(part))} bytes"
    return f"{part.filename or '(no name)'}, {part.media_type or '(no type)'}, {where}"


def file_bytes(part: Part) -> bytes:
    """The bytes of a file that was sent along; what is no base64 counts as it is."""
    raw = (part.raw or "").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(raw + "=" * (-len(raw) % 4))
    except binascii.Error:
        return raw.encode()


def _show_metadata(metadata: Metadata | None) -> None:
    if metadata:
        print_block("Metadata", msgspec.json.format(msgspec.json.encode(metadata)).decode())
