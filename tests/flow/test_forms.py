from __future__ import annotations

from typing import Any

import pytest

from trunkline.errors import FlowRefused
from trunkline.flow.forms import (
    CancelForm,
    ListForm,
    StartForm,
    SubmitForm,
    check_size,
    read_form,
    read_json,
)


def test_unknown_members_are_ignored() -> None:
    form = read_form({"definition": {}, "input": {"a": 1}, "odd": 1}, StartForm)
    assert (form.input, form.activity_execution_mode) == ({"a": 1}, "in_process")


@pytest.mark.parametrize(
    ("given", "form", "path"),
    [
        ({"input": 7}, StartForm, "input"),
        ({}, StartForm, ""),
        ({"input": {}, "activity_execution_mode": "odd"}, StartForm, "activity_execution_mode"),
        ({"execution_id": "", "node_id": "a", "outcome": {"ok": True}}, SubmitForm, "execution_id"),
        ({"execution_id": "e", "node_id": "a", "outcome": {"ok": 1}}, SubmitForm, "outcome.ok"),
        ({"execution_id": "e", "reason": ""}, CancelForm, "reason"),
        ({"limit": 101}, ListForm, "limit"),
        ({"phase": "odd"}, ListForm, "phase"),
        ([], ListForm, ""),
    ],
)
def test_what_does_not_fit_is_named(given: object, form: type[Any], path: str) -> None:
    with pytest.raises(FlowRefused) as refused:
        read_form(given, form)
    assert refused.value.code == "VALIDATION_ERROR"
    assert refused.value.details["issues"][0]["path"] == path


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000, b'{"a":1}x'])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(FlowRefused):
        read_json(body)


def test_a_body_may_be_empty() -> None:
    assert read_json(b"") == {}


def test_sizes_are_bounded() -> None:
    check_size("input", {"a": "x" * 1000})
    with pytest.raises(FlowRefused, match="input is over 2 MiB"):
        check_size("input", {"a": "x" * (2 << 20)})


def test_what_is_no_json_has_no_size() -> None:
    with pytest.raises(FlowRefused, match="input is no JSON"):
        check_size("input", {"a": "\ud800"})
