"""The JSON Schema of a definition (Draft 2020-12), put together from the members that its parts share."""

from __future__ import annotations

from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# What a document names as its own schema.
SCHEMA_ID = "https://agent-workflow.dev/schemas/workflow-definition.json"

_TEXT = {"type": "string", "minLength": 1}
_OBJECT = {"type": "object"}


def _closed(required: str = "", **members: Any) -> dict[str, Any]:
    """An object with these members and no others."""
    return {
        "type": "object",
        "properties": members,
        "required": required.split(),
        "additionalProperties": False,
    }


def _count(least: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": item}


def _any_member(*names: str) -> dict[str, Any]:
    return {"anyOf": [{"required": [name]} for name in names]}


def _where(member: str, value: str, then: dict[str, Any]) -> dict[str, Any]:
    """A rule for objects one member of which has this value."""
    return {"if": {"properties": {member: {"const": value}}, "required": [member]}, "then": then}


_DELEGATE = _closed(
    "agent_id protocol input_mapping",
    agent_id=_TEXT,
    protocol=_one_of("a2a", "mcp", "sdk"),
    input_mapping=_OBJECT,
)
_PARALLEL = _closed(
    "join branches",
    join=_one_of("all", "any", "n_of_m"),
    n=_count(1),
    branches=_list_of(_closed("name entry", name=_TEXT, entry=_TEXT)),
    timeout=_TEXT,
)
_WAIT = _closed(
    "kind",
    kind=_one_of("duration", "until", "signal"),
    duration_ms=_count(0),
    duration=_TEXT,
    until=_TEXT,
    signal=_TEXT,
)
_INTERRUPT = _closed(
    "resume_schema",
    resume_schema={"type": "object", "minProperties": 1},
    prompt=_TEXT,
    prompt_ref=_TEXT,
    timeout=_TEXT,
    answered_by=_one_of("others"),
)
_ASSIGNMENT = {"oneOf": [_closed("jq", jq=_TEXT), _closed("literal", literal=True)]}

# The config of each type of node; the first two may do without one.
CONFIGS: dict[str, dict[str, Any]] = {
    "start": _closed(input_schema=_OBJECT),
    "end": _closed(output_schema=_OBJECT, output_mapping=_TEXT),
    "step": {**_OBJECT, **_any_member("handler", "code_ref")},
    "llm_call": _OBJECT,
    "tool_call": _closed("server tool", server=_TEXT, tool=_TEXT, arguments=_OBJECT),
    "switch": _closed(
        "cases", cases=_list_of(_closed("when target", when=_TEXT, target=_TEXT)), default=_TEXT
    ),
    "interrupt": {**_INTERRUPT, **_any_member("prompt", "prompt_ref")},
    "parallel": {**_PARALLEL, "allOf": [_where("join", "n_of_m", {"required": ["n"]})]},
    "wait": {
        **_WAIT,
        "allOf": [
            _where("kind", "duration", _any_member("duration_ms", "duration")),
            _where("kind", "until", {"required": ["until"]}),
            _where("kind", "signal", {"required": ["signal"]}),
        ],
    },
    "set_state": _closed(
        "assignments",
        assignments={"type": "object", "minProperties": 1, "additionalProperties": _ASSIGNMENT},
    ),
    "subworkflow": _closed(
        "workflow_ref input_mapping", workflow_ref=_TEXT, input_mapping=_OBJECT, version_pin=_TEXT
    ),
    "agent_delegate": _DELEGATE,
}
_WITHOUT_CONFIG = ("start", "end")

_RETRY = _closed(
    "max_attempts",
    max_attempts=_count(1),
    initial_interval={"type": "string"},
    backoff_coefficient={"type": "number"},
    max_interval={"type": "string"},
    non_retryable_errors={"type": "array", "items": {"type": "string"}},
)


def _node(kind: str) -> dict[str, Any]:
    return _closed(
        "id type" if kind in _WITHOUT_CONFIG else "id type config",
        id=_TEXT,
        type={"const": kind},
        config=CONFIGS[kind],
        retry={"$ref": "#/$defs/retry"},
        timeout=_TEXT,
        metadata=_OBJECT,
    )


DEFINITION_SCHEMA: dict[str, Any] = {
    "$schema": DIALECT,
    "$id": SCHEMA_ID,
    "title": "A workflow definition",
    **_closed(
        "document state_schema nodes edges",
        document=_closed(
            "schema name version", schema=_TEXT, name=_TEXT, version=_TEXT, description={"type": "string"}
        ),
        state_schema={"type": "object", "minProperties": 1},
        nodes=_list_of({"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in CONFIGS]}),
        edges={"type": "array", "items": _closed("source target", source=_TEXT, target=_TEXT)},
        checkpointing={
            "type": "object",
            "properties": {
                "strategy": {"type": "string"},
                "policy": {"type": "string"},
                "n": _count(1),
                "interval": _count(1),
            },
        },
    ),
    "$defs": {"retry": _RETRY, **{kind: _node(kind) for kind in CONFIGS}},
}
