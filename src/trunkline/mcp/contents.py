"""Outcomes of tools as results of MCP: words, structured content, and files, small ones within. Pure."""

from __future__ import annotations

from typing import Any

from trunkline.bridge.outcome import ToolOutcome, outcome_of, standard_base64
from trunkline.bridge.tool import Tool
from trunkline.client.result import Result
from trunkline.errors import InvalidParams
from trunkline.mcp.handoff import HandOff, file_uri, handed_off
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import TERMINAL, Part

# Of base64. Larger files are named, and read only by who wants them.
EMBEDDED_LIMIT = 64 << 10
Block = dict[str, Any]


def result_of(tool: Tool, result: Result) -> Block:
    """The result of `tools/call` for how a task stands."""
    outcome = outcome_of(tool, result)
    task = HandOff(tool.name, result.task_id)
    if result.task is not None and result.state not in TERMINAL:
        outcome = handed_off(outcome, task)
    return told(outcome, task)


def told(outcome: ToolOutcome, task: HandOff) -> Block:
    """The result of `tools/call` for an outcome; with a task its files can be read, and its id is ours."""
    found = outcome.mcp()
    if not task.task_id:
        return found
    files = [(place, part) for place, part in enumerate(outcome.parts) if part.raw is not None or part.url]
    words, *blocks = found["content"]
    kept = [_file(task, place, part, block) for (place, part), block in zip(files, blocks, strict=True)]
    structured = found.get("structuredContent")
    if structured is not None:
        found = {**found, "structuredContent": {**structured, "task_id": task.id}}
    return {**found, "content": [words, *kept]}


def canceled(task: HandOff, result: Result) -> Block:
    """The result of a tool that has stopped a task, which is no failure."""
    state = plain_state(result.state)
    said = f"The task is {state} now."
    return {
        "content": [{"type": "text", "text": said}],
        "structuredContent": {"response": said, "state": state, "task_id": task.id},
    }


def _file(task: HandOff, place: int, part: Part, block: Block) -> Block:
    if part.raw is None:
        return block
    uri = file_uri(task, place, part)
    if len(part.raw) > EMBEDDED_LIMIT:
        kind = {"mimeType": part.media_type} if part.media_type else {}
        size = len(part.raw) * 3 // 4 - part.raw[-2:].count("=")
        return {"type": "resource_link", "uri": uri, "name": part.filename or "file", "size": size, **kind}
    return {**block, "resource": {**block["resource"], "uri": uri}} if "resource" in block else block


def file_of(tool: Tool, result: Result, place: int, uri: str) -> Block:
    """A file of a task as `resources/read` gives it.

    Raises:
        InvalidParams: there is none at this place.
    """
    parts = outcome_of(tool, result).parts
    part = parts[place] if place < len(parts) else None
    if part is None or part.raw is None:
        raise InvalidParams("the task has no such file", field="uri")
    kind = {"mimeType": part.media_type} if part.media_type else {}
    return {"uri": uri, "blob": standard_base64(part.raw), **kind}
