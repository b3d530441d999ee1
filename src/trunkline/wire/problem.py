"""A refusal as problem details (RFC 9457), for whoever speaks plain HTTP and no A2A. Pure."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from msgspec import Struct

from trunkline.errors import Refused, RouteNotFound, TaskNotCancelable, UnsupportedOperation
from trunkline.wire.codes import code_of

PROBLEM = b"application/problem+json"


class Problem(Struct, frozen=True, omit_defaults=True):
    """What is wrong with a request; `code` is the word that programs compare, `field` the member at fault."""

    status: int
    title: str
    detail: str
    code: str
    field: str = ""


def problem_of(refused: Refused) -> Problem:
    """The problem details of a refusal; one that the state of a task causes is a conflict."""
    code = code_of(refused)
    conflict = refused.details.get("conflict", "")
    if conflict or isinstance(refused, TaskNotCancelable | UnsupportedOperation):
        status = HTTPStatus.CONFLICT
    elif isinstance(refused, RouteNotFound) and refused.allow:
        status = HTTPStatus.METHOD_NOT_ALLOWED
    else:
        status = HTTPStatus(415 if refused.field == "Content-Encoding" else code.http)
    return Problem(status.value, status.phrase, refused.message, conflict or code.reason, refused.field)


def write_problem(refused: Refused) -> tuple[int, bytes, bytes]:
    """Status, body and media type of a refusal."""
    problem = problem_of(refused)
    return problem.status, msgspec.json.encode(problem), PROBLEM
