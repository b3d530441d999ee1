"""The seven tools by which MCP clients drive workflows: their names, what they take and what is said then."""

from __future__ import annotations

from typing import Any

_TEXT: dict[str, Any] = {"type": "string"}
_ID: dict[str, Any] = {"type": "string", "minLength": 1}
_OBJECT: dict[str, Any] = {"type": "object"}
_MODE: dict[str, Any] = {
    "type": "string",
    "enum": ["in_process", "host_mediated"],
    "description": "Who does the activities from here on: the engine, or whoever calls this tool.",
}
_DEFINITION: dict[str, Any] = {
    "type": "object",
    "description": "The workflow, the same at every call.",
}
_INPUT: dict[str, Any] = {"type": "object", "description": "The input of the run, the same at every call."}
_SPAN: dict[str, Any] = {
    "type": "object",
    "description": "The branch, exactly as it was given with the activity.",
    "properties": {
        name: _ID for name in ("parallel_node_id", "join_target_id", "branch_name", "branch_entry_node_id")
    },
    "required": ["parallel_node_id", "join_target_id", "branch_name", "branch_entry_node_id"],
}
_ACTIVITY: dict[str, Any] = {
    "type": "string",
    "description": (
        "The activity_id that came with the activity. It is required for a delegation that the run has come "
        "to before."
    ),
}
_OUTCOME: dict[str, Any] = {
    "oneOf": [
        {
            "type": "object",
            "properties": {
                "ok": {"const": True},
                "result": _OBJECT,
                "delegate_correlation_id": _TEXT,
                "external_task_id": _TEXT,
            },
            "required": ["ok"],
        },
        {
            "type": "object",
            "properties": {"ok": {"const": False}, "error": _ID, "code": _TEXT},
            "required": ["ok", "error"],
        },
    ]
}
_PHASES = [
    "running",
    "completed",
    "failed",
    "interrupted",
    "awaiting_activity",
    "awaiting_signal",
    "cancelled",
]


def _takes(required: dict[str, Any], optional: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


_OF_RUN = {"execution_id": _ID, "definition": _DEFINITION}
# By name: what a model is told of it, and the schema of its arguments.
TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "workflow_start": (
        "Start a run of a workflow and get where it rests: completed, failed, interrupted, awaiting an "
        "activity or awaiting a signal.",
        _takes(
            {"definition": _DEFINITION, "input": _INPUT},
            {
                "execution_id": _TEXT,
                "activity_execution_mode": _MODE,
                "allow_existing_execution_id": {"type": "boolean"},
            },
        ),
    ),
    "workflow_status": ("Say where a run stands.", _takes({"execution_id": _ID}, {})),
    "workflow_resume": (
        "Answer the `question` that a run asks, at an interrupt or for an agent that it delegates to. "
        'The payload is an object: {"text": …} answers a question without a schema, {"value": …} one '
        "whose schema allows no object.",
        _takes({**_OF_RUN, "resume_payload": _OBJECT}, {"activity_execution_mode": _MODE}),
    ),
    "workflow_submit_activity": (
        "Hand in the outcome of the activity that a run awaits, done by you.",
        _takes(
            {**_OF_RUN, "input": _INPUT, "node_id": _ID, "outcome": _OUTCOME},
            {"activity_id": _ACTIVITY, "parallel_span": _SPAN, "activity_execution_mode": _MODE},
        ),
    ),
    "workflow_signal": (
        "Send the signal that a run waits for.",
        _takes(
            {**_OF_RUN, "input": _INPUT, "signal_name": _ID},
            {"payload": _OBJECT, "activity_execution_mode": _MODE},
        ),
    ),
    "workflow_cancel": ("Stop a run.", _takes({"execution_id": _ID}, {"reason": _ID})),
    "workflow_list": (
        "List runs, the one that moved last first.",
        _takes(
            {},
            {
                "phase": {"type": "string", "enum": _PHASES},
                "definition_name": _TEXT,
                "updated_after": _TEXT,
                "updated_before": _TEXT,
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "cursor": _TEXT,
            },
        ),
    ),
}


def headline(tool: str, found: dict[str, Any]) -> str:
    """One sentence that says what came of a call."""
    if tool == "workflow_list":
        count = len(found["executions"])
        return f"{count} run{'' if count == 1 else 's'}{', and more' if 'next_cursor' in found else ''}."
    run = f"Run {found['execution_id']}"
    if tool == "workflow_status":
        at = f" at node {found['current_node_id']}" if "current_node_id" in found else ""
        return f"{run} is {found['phase']}{at}."
    match found["status"]:
        case "awaiting_activity":
            return f"{run} awaits the activity of node {found['node_id']}."
        case "awaiting_signal":
            return f"{run} awaits the signal {found['signal_name']!r} at node {found['node_id']}."
        case "interrupted":
            asked = f": {found['question']['text']}" if "question" in found else "."
            return f"{run} is interrupted at node {found['node_id']} and awaits an answer{asked}"
        case status:
            return f"{run} is {status}."
