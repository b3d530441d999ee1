"""What a model is told before it answers: who it is, and what was said before. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from trunkline.fleet.catalogue.model_entry import Brevity, ModelEntry, ModelMemory
from trunkline.gateway.model.files import CallerFiles, FileContent, is_file
from trunkline.wire.types import Message, Role

_BREVITY: dict[Brevity, str] = {
    "lite": "Answer in whole sentences and explain where that helps.",
    "full": "Answer briefly: what was asked for, and nothing else.",
    "ultra": "Answer in as few words as possible.",
}


def instructions(name: str, entry: ModelEntry, more: Iterable[str] = ()) -> str:
    """What the model is told of itself; `more` is of its tools."""
    said = [f"You are {name}{f', {entry.role}' if entry.role else ''}."]
    said += [f"Your goal: {entry.goal}"] if entry.goal else []
    said += [f"Your personality: {entry.personality}"] if entry.personality else []
    said.append(_BREVITY[entry.brevity])
    if entry.rules:
        said.append("\n".join(["Rules:", *[f"- {rule}" for rule in entry.rules]]))
    return "\n".join([*said, *more])


def conversation(
    said: Sequence[Message], memory: ModelMemory, files: CallerFiles, asked: str | list[FileContent]
) -> list[ModelMessage]:
    """A conversation as a model reads it: the newest messages, as many as are remembered, and what is asked.

    Of what an agent said only its text counts, of what a caller said also data, and files as far as they fit.
    """
    found: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(asked)])]
    left = memory.bytes
    for one in reversed(said[-memory.messages :] if memory.messages else []):
        text = text_of(one)
        left -= len(text.encode())
        if left < 0:
            break
        is_agent = one.role is Role.AGENT
        content = (
            text if is_agent else content_of(one, [files.recall(part) for part in one.parts if is_file(part)])
        )
        if not content:
            continue
        found.append(
            ModelResponse(parts=[TextPart(text)])
            if is_agent
            else ModelRequest(parts=[UserPromptPart(content)])
        )
    return found[::-1]


def content_of(message: Message, files: Sequence[FileContent]) -> str | list[FileContent]:
    """What a caller says: a text, and after it the files that came with it."""
    text = text_of(message)
    return [*([text] if text else []), *files] if files else text


def text_of(message: Message) -> str:
    """The text parts of a message as one text, and of data its JSON."""
    is_caller = message.role is not Role.AGENT
    lines = [
        part.text if part.text is not None else msgspec.json.encode(part.data).decode()
        for part in message.parts
        if part.text is not None or (is_caller and part.data is not UNSET)
    ]
    return "\n".join(lines)
