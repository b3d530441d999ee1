"""`--debug`: the wire on standard error, and no secret in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted, task
from trunkline.cli.wire_trace import Redaction

Make = Callable[..., Scripted]


def test_the_wire_is_on_standard_error_only(trunkline: Run, demo_url: str) -> None:
    _, out, err = trunkline("send", demo_url, "hello", "--debug", "-o", "json")
    assert list(json.loads(out)) == ["task"]
    assert f"> POST {demo_url}/a2a" in err
    assert "> a2a-version: 1.0" in err
    assert '"method":"SendStreamingMessage"' in err
    assert "< data: " in err and " ms" in err
    assert "chosen" in err
    assert "> POST" not in trunkline("send", demo_url, "hello")[2]


@pytest.mark.parametrize("more", [(), ("--verbose",)])
@pytest.mark.parametrize("place", ["header", "query", "cookie"])
def test_no_credential_is_shown(trunkline: Run, scripted: Make, place: str, more: tuple[str, ...]) -> None:
    scheme = {"apiKeySecurityScheme": {"location": place, "name": "own"}}
    peer = scripted(securitySchemes={"k": scheme}, capabilities={"pushNotifications": True})
    peer.methods["SendMessage"] = lambda params: {"task": task("COMPLETED", metadata={"heard": "se/cr+et=1"})}
    _, _, err = trunkline(
        "send", peer.url, "hi", "--api-key", "se/cr+et=1", "--svc-param", "X-Own:para-meter", "--debug", *more
    )
    assert "se/cr+et=1" not in err and "se%2Fcr%2Bet%3D1" not in err and "para-meter" not in err
    assert "x-own: ***" in err.lower()
    _, _, err = trunkline("send", peer.url, "hi", "--bearer", "tok", "--debug", *more)
    assert "Bearer" not in err
    peer.methods["CreateTaskPushNotificationConfig"] = lambda params: {**params, "id": "p"}
    words = ("--token", "tok-of-hook", "--scheme", "Basic", "--credentials", "cred-of-hook")
    code, _, err = trunkline(
        "push", "create", peer.url, "t1", "--url", "https://example.com", *words, "--debug", *more
    )
    assert code == 0
    assert "tok-of-hook" not in err and "cred-of-hook" not in err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"access_token": "abc", "x": 1}', '{"access_token": "***", "x": 1}'),
        ('{"token":"a\\"b"}', '{"token":"***"}'),
        ("grant_type=x&client_secret=abc&scope=y", "grant_type=x&client_secret=***&scope=y"),
        ("nothing", "nothing"),
        ("my own key here", "my *** key here"),
    ],
)
def test_redaction(text: str, shown: str) -> None:
    assert Redaction(["own"]).text(text) == shown


def test_a_secret_that_is_cut_in_two_is_not_shown(trunkline: Run, scripted: Make) -> None:
    """Chunks of a stream end anywhere; what is shown is whole lines."""
    peer = scripted(capabilities={"streaming": True})
    secret = "0123456789"
    stream: list[Any] = [{"task": task("COMPLETED", metadata={"said": secret})}]
    peer.methods["SendStreamingMessage"] = lambda _: stream
    _, _, err = trunkline("send", peer.url, "hi", "--bearer", secret, "--debug")
    assert "TASK_STATE_COMPLETED" in err and secret not in err


def test_a_connection_that_fails_is_shown(trunkline: Run) -> None:
    code, _, err = trunkline("card", "http://127.0.0.1:9", "--debug")
    assert code == 3
    assert "! Unreachable" in err
