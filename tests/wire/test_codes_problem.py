"""Refusals as problem details: one status and one code for each class."""

from __future__ import annotations

import json

import pytest

from trunkline import errors
from trunkline.wire.codes import CODES, PROBLEM, write_problem


@pytest.mark.parametrize(
    ("refused", "status", "code"),
    [
        (errors.InvalidParams("no", field="x"), 400, "INVALID_PARAMS"),
        (errors.InvalidParams("no", field="x", conflict="QUESTION_CLOSED"), 409, "QUESTION_CLOSED"),
        (errors.TaskNotCancelable("no"), 409, "TASK_NOT_CANCELABLE"),
        (errors.UnsupportedOperation("no"), 409, "UNSUPPORTED_OPERATION"),
        (errors.RouteNotFound("no"), 404, "ROUTE_NOT_FOUND"),
        (errors.RouteNotFound("no", allow="GET"), 405, "ROUTE_NOT_FOUND"),
        (errors.ContentTypeNotSupported("no", field="Content-Encoding"), 415, "CONTENT_TYPE_NOT_SUPPORTED"),
        (errors.TooManyRequests("no"), 429, "RATE_LIMITED"),
    ],
)
def test_status_and_code(refused: errors.Refused, status: int, code: str) -> None:
    found, body, kind = write_problem(refused)
    said = json.loads(body)
    assert (found, said["status"], said["code"], said["detail"], kind) == (
        status,
        status,
        code,
        "no",
        PROBLEM,
    )
    assert said.get("field", "") == refused.field


def test_every_class_has_a_problem() -> None:
    special = {errors.PeerError: {"code": 1}}
    for kind in CODES:
        status, body, _ = write_problem(kind("no", **special.get(kind, {})))
        assert 400 <= status < 600 and json.loads(body)["title"]
