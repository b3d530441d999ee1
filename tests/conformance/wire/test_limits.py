"""Who asks too often hears exactly that, and when to come again."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.wire.bindings import Binding
from tests.conformance.wire.conftest import Serve


def test_SEC_08_a_rate_limit_is_told_from_every_other_error(
    speak: Callable[..., Binding], serve: Serve
) -> None:
    server = serve("trunkline.demo:agent", "--set", "rate_limit=0.02", "--set", "rate_burst=1")
    spoken = speak(server.base)
    spoken.list()
    answer = spoken.list()
    assert (answer.http, answer.reason) == (429, "RATE_LIMITED")
    assert answer.error.get("code") in (-32012, 429)
    assert answer.error.get("status", "RESOURCE_EXHAUSTED") == "RESOURCE_EXHAUSTED"
    assert 1 <= int(answer.headers["retry-after"]) <= 50
