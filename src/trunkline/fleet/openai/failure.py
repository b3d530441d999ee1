"""Errors as bodies of the OpenAI API. Pure."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, UnsetType

from trunkline.errors import Refused
from trunkline.fleet.openai.completion import AnswerMetadata, ending_text, metadata_of
from trunkline.fleet.routing.dispatcher import HUB
from trunkline.http.exchange import JSON
from trunkline.log.fold import State
from trunkline.wire.codes import problem_of
from trunkline.wire.types import TaskState

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ErrorDetail(Struct, frozen=True):
    """What is wrong; `code` is the word that programs compare, `param` the member at fault."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(Struct, frozen=True):
    """An error body, with the task where there is one."""

    error: ErrorDetail
    metadata: AnswerMetadata | UnsetType = UNSET


def failure(status: int, message: str, code: str, param: str = "", task: State | None = None) -> ErrorBody:
    """The error body that goes with a status."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    about = UNSET if task is None else metadata_of(task)
    return ErrorBody(ErrorDetail(message, kind, param or None, code), about)


def write_failure(refused: Refused) -> tuple[int, bytes, bytes]:
    """Status, body and media type of a refusal."""
    problem = problem_of(refused)
    made = failure(problem.status, problem.detail, problem.code.lower(), problem.field)
    return problem.status, msgspec.json.encode(made), JSON


def failure_of(state: State) -> tuple[int, ErrorBody] | None:
    """How a task has failed, with a fitting status; None if it answers or asks."""
    match state.state:
        case TaskState.FAILED:
            status, code = 502, "task_failed"
        case TaskState.CANCELED:
            status, code = 409, "task_canceled"
        case TaskState.REJECTED:
            # By the hub where nobody takes it now; else by the agent, for what it is.
            status, code = (503 if state.agent == HUB else 422), "task_rejected"
        case _ if not state.resting:
            status, code = 504, "task_pending"
            message = f"the task is still at work; /api/a2a/task/{state.task_id} tells of its end"
            return status, failure(status, message, code, task=state)
        case _:
            return None
    message = ending_text(state) or f"the task is {code.removeprefix('task_')}"
    return status, failure(status, message, code, task=state)
