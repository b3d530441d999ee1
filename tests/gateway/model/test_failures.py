"""Codes of failed calls of models."""

from __future__ import annotations

import pytest
from pydantic_ai import exceptions

from trunkline.gateway.model.failures import code_of, reason_of


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "invalid_request"),
        (401, "auth_failed"),
        (403, "auth_failed"),
        (404, "not_found"),
        (413, "request_too_large"),
        (418, "provider_error"),
        (429, "rate_limited"),
        (500, "unavailable"),
        (529, "unavailable"),
    ],
)
def test_a_status_has_a_code(status: int, code: str) -> None:
    assert code_of(exceptions.ModelHTTPError(status, "m", None)) == code
    assert reason_of(code).startswith(f"{code}: ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), "timeout"),
        (exceptions.ContentFilterError("no"), "content_filtered"),
        (exceptions.UnexpectedModelBehavior("no"), "provider_error"),
        (ConnectionResetError(), "provider_error"),
    ],
)
def test_other_failures_have_one_too(error: Exception, code: str) -> None:
    assert code_of(error) == code
