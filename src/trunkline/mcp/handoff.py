"""Tasks that a client of MCP holds by an id: the id itself, the tools that take it, and the files of a task.

Everything is in the id, so that it is good after either side was started anew: the tool by which the task was
begun, which says whose it is, and the agent's own id of the task. Pure.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace

from trunkline.bridge.outcome import ToolOutcome
from trunkline.bridge.schema import Schema
from trunkline.errors import InvalidParams
from trunkline.wire.types import Part

STATUS, ANSWER, CANCEL = "task_status", "task_answer", "task_cancel"
FILE_TEMPLATE = "trunkline://task/{tool}/{task}/{place}/{name}"
_FILES = "trunkline://task/"
_ID_LIMIT = 1024
_WAIT_LIMIT_S = 300


class HandOff(Struct, frozen=True):
    """A task that goes on while nobody waits for it."""

    tool: str
    task_id: str

    @property
    def id(self) -> str:
        """The id that a client keeps of a hand-over."""
        return f"{self.tool}:{self.task_id}"


def read_hand_off(given: object, field: str = "task_id") -> HandOff:
    """The task that an id names.

    Raises:
        InvalidParams: it names none.
    """
    tool, colon, task_id = given.partition(":") if isinstance(given, str) else ("", "", "")
    if not (tool and colon and task_id) or len(tool) + len(task_id) > _ID_LIMIT:
        raise InvalidParams(
            f"{field} is the id that a tool of this server gave with its task, like a2a__agent__skill:0198",
            field=field,
        )
    return HandOff(tool, task_id)


def file_uri(task: HandOff, place: int, part: Part) -> str:
    """The address at which a file of a task can be read."""
    name = quote(part.filename, safe="") or "file"
    return f"{_FILES}{task.tool}/{quote(task.task_id, safe='')}/{place}/{name}"


def read_file_uri(uri: str) -> tuple[HandOff, int]:
    """The task and the place of the file that an address names.

    Raises:
        InvalidParams: it names none.
    """
    pieces = uri.removeprefix(_FILES).split("/")
    if not uri.startswith(_FILES) or len(pieces) != 4 or not pieces[2].isascii() or not pieces[2].isdigit():
        raise InvalidParams(
            "there is no such resource; files of tasks are those that results name", field="uri"
        )
    tool, task_id, place, _ = pieces
    return HandOff(tool, unquote(task_id)), int(place[:9])


def handed_off(outcome: ToolOutcome, task: HandOff) -> ToolOutcome:
    """The outcome of a task that goes on, with what a model can do about it."""
    if outcome.question:
        advice = (
            f'The agent waits for an answer: call {ANSWER} with task_id="{task.id}" and the answer; '
            "ask the user if you do not know it."
        )
    else:
        advice = (
            f"The agent has not finished, and goes on by itself. Ask for its result later: call {STATUS} "
            f'with task_id="{task.id}"; {CANCEL} stops it.'
        )
    return replace(outcome, advice=advice)


def tools_of_tasks() -> list[dict[str, Any]]:
    """The tools that take the id of a task, as `tools/list` gives them."""
    task_id = {"type": "string", "description": "The id that came with the task."}
    wait = {
        "type": "number",
        "minimum": 0,
        "maximum": _WAIT_LIMIT_S,
        "description": "How many seconds to wait for its end; without it the task is told as it stands.",
    }
    answer = {"description": "The answer: text, or an object where the question names a schema."}
    return [
        _tool(
            STATUS,
            "Status of a task",
            "Tell where a task stands that another tool has handed over, and its result once it has one.",
            {"task_id": task_id, "wait": wait},
            ["task_id"],
            {"readOnlyHint": True},
        ),
        _tool(
            ANSWER,
            "Answer to a task",
            "Answer the question for which a task waits, and wait for what it does next.",
            {"task_id": task_id, "answer": answer},
            ["task_id", "answer"],
            {"openWorldHint": True},
        ),
        _tool(
            CANCEL,
            "End of a task",
            "Stop a task that another tool has handed over.",
            {"task_id": task_id},
            ["task_id"],
            {"destructiveHint": True, "idempotentHint": True},
        ),
    ]


def _tool(
    name: str,
    title: str,
    description: str,
    properties: Schema,
    required: list[str],
    *hints: dict[str, bool],
) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    told = {"name": name, "title": title, "description": description, "inputSchema": schema}
    return {**told, "annotations": dict(hints[0]) if hints else {}}


def read_wait(given: object) -> float:
    """For how many seconds a status is waited for.

    Raises:
        InvalidParams: it is no such number.
    """
    if given is None:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _WAIT_LIMIT_S:
        raise InvalidParams(f"wait is a number of seconds from 0 to {_WAIT_LIMIT_S}", field="wait")
    return float(given)
