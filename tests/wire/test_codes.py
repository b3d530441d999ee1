"""Refusals as bodies of REST in both versions and as problem details: one status and one code for each class."""

from __future__ import annotations

import json

import pytest

from tests.wire import samples
from tests.wire.samples import plain
from trunkline import errors
from trunkline.wire.codes import CODES, PROBLEM, rest_error_v03, rest_error_v1, write_problem


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


@pytest.mark.parametrize("kind", CODES)
def test_ERR_04_error_bodies(kind: type[errors.Refused]) -> None:
    code = CODES[kind]
    status, body = rest_error_v1(samples.refused(kind))
    assert status == code.http
    error = plain(body)["error"]
    assert (error["code"], error["status"], error["message"]) == (code.http, code.grpc, "what")
    assert error["details"][0]["reason"] == code.reason
    status, body = rest_error_v03(samples.refused(kind))
    assert status == code.http_03
    assert plain(body) == {
        "code": code.rpc,
        "message": "what",
        "type": code.name_03,
        "data": error["details"],
    }
