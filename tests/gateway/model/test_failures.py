"""Codes of failed calls of models."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import exceptions
from pydantic_ai.models import Model
from pydantic_ai.models.function import FunctionModel

from tests.gateway.model.hub import answer, opened, reason, run
from trunkline.gateway.model import providers
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


class ForeignError(Exception):
    """One that neither we nor pydantic-ai know."""


async def _raises(messages: Any, _: Any) -> AsyncGenerator[str]:
    if "please" not in str(messages):
        yield "A word. "
        raise ForeignError("canary-of-a-library-9c1d")
    yield "Here."


def _made(name: str, _: Any) -> Model:
    if name == "broken:x":
        raise ForeignError("the profile is missing")
    return FunctionModel(stream_function=_raises)


def test_whatever_a_library_raises_is_a_code_and_none_of_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "infer_model", _made)
    agents = "agents:\n  - {name: fine, model: 'any:x'}\n  - {name: broken, model: 'broken:x'}\n"

    async def scene() -> None:
        async with opened(tmp_path, agents) as ask:
            # One that cannot even be set up stops nobody.
            found = await ask.ready("broken")
            assert (found["state"], found["reason"]) == ("invalid", "broken:x: the profile is missing")
            await ask.ready("fine")
            failed = await ask.say("fine", "go")
            assert failed["status"]["state"] == "TASK_STATE_FAILED"
            assert reason(failed).startswith("provider_error: ")
            assert "canary" not in str(failed) and answer(failed) == "A word. "
            assert answer(await ask.say("fine", "please")) == "Here."

    run(scene())
