"""What callers of workflows say, as every surface takes it: members in snake_case, unknown ones ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from trunkline.errors import FlowRefused, ParseError
from trunkline.wire.decode import DECODE_ERRORS, check_structure

Mode = Literal["in_process", "host_mediated"]
Phase = Literal[
    "running", "completed", "failed", "interrupted", "awaiting_activity", "awaiting_signal", "cancelled"
]
# The most bytes of a definition, of an input and of a payload, each as JSON; and of a whole body over HTTP.
LIMIT_BYTES = 2 << 20
_Id = Annotated[str, Meta(min_length=1, max_length=512)]
_Name = Annotated[str, Meta(min_length=1, max_length=512)]
_Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Form = TypeVar("Form")


class StartForm(Struct, frozen=True, kw_only=True):
    """A run to be started."""

    definition: dict[str, Any] | None = None
    input: dict[str, Any]
    execution_id: Annotated[str, Meta(max_length=512)] | None = None
    activity_execution_mode: Mode = "in_process"
    allow_existing_execution_id: bool = False


class ActivitySubmission(Struct, frozen=True, kw_only=True):
    """The outcome of an activity that the caller did."""

    ok: bool
    result: Any = None
    error: str = ""
    code: str = ""
    delegate_correlation_id: str = ""
    external_task_id: str = ""


class StatusForm(Struct, frozen=True, kw_only=True):
    """A run that is asked for."""

    execution_id: _Id


class ResumeForm(Struct, frozen=True, kw_only=True):
    """The answer to an interrupt."""

    execution_id: _Id
    definition: dict[str, Any] | None = None
    resume_payload: dict[str, Any]
    activity_execution_mode: Mode = "in_process"


class OutcomeForm(Struct, frozen=True, kw_only=True):
    """How an activity that the host did has ended."""

    ok: bool
    result: Any = None
    error: str = ""
    code: str = ""
    delegate_correlation_id: str = ""
    external_task_id: str = ""


class SpanForm(Struct, frozen=True, kw_only=True):
    """The branch of a parallel node that an activity belongs to."""

    parallel_node_id: str
    join_target_id: str
    branch_name: str
    branch_entry_node_id: str


class SubmitForm(Struct, frozen=True, kw_only=True):
    """The outcome of an activity that a run awaits."""

    execution_id: _Id
    definition: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    node_id: _Name
    activity_id: Annotated[str, Meta(max_length=2048)] | None = None
    outcome: OutcomeForm
    parallel_span: SpanForm | None = None
    activity_execution_mode: Mode = "host_mediated"


class SignalForm(Struct, frozen=True, kw_only=True):
    """A signal that a run awaits."""

    execution_id: _Id
    definition: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    signal_name: _Name
    payload: dict[str, Any] | UnsetType = UNSET
    activity_execution_mode: Mode = "in_process"


class CancelForm(Struct, frozen=True, kw_only=True):
    """A run that is to stop."""

    execution_id: _Id
    reason: _Text | None = None


class ListForm(Struct, frozen=True, kw_only=True):
    """Runs that are asked for, newest first."""

    phase: Phase | None = None
    definition_name: str | None = None
    updated_after: str | None = None
    updated_before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    cursor: str | None = None


def read_form(
    given: object, form: type[Form], code: str = "VALIDATION_ERROR", *, strict: bool = True
) -> Form:
    """The form that a caller's members fill in.

    Raises:
        FlowRefused: a member is missing or does not fit; `details.issues` names it.
    """
    try:
        return msgspec.convert(given, form, strict=strict)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        issue = {"path": field, "message": said}
        raise FlowRefused(code, f"{field}: {said}" if field else said, {"issues": [issue]}) from None


def read_json(body: bytes) -> dict[str, Any]:
    """The object in a body.

    Raises:
        FlowRefused: it is none.
    """
    try:
        check_structure(body)
        found = msgspec.json.decode(body or b"{}")
    except (*DECODE_ERRORS, ParseError):
        raise FlowRefused("VALIDATION_ERROR", "the body is not JSON") from None
    if not isinstance(found, dict):
        raise FlowRefused("VALIDATION_ERROR", "the body is a JSON object")
    return found  # pyright: ignore[reportUnknownVariableType]


def check_size(name: str, value: object) -> int:
    """Let a value pass that is not too large; gives its bytes as JSON.

    Raises:
        FlowRefused: it is.
    """
    try:
        size = len(msgspec.json.encode(value))
    except (ValueError, TypeError, RecursionError) as error:
        raise FlowRefused("VALIDATION_ERROR", f"{name} is no JSON: {error}") from None
    if size > LIMIT_BYTES:
        raise FlowRefused("VALIDATION_ERROR", f"{name} is over {LIMIT_BYTES >> 20} MiB as JSON")
    return size
