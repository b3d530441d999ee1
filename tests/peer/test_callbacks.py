"""Addresses and tokens of webhooks, and what their bodies tell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trunkline.config import Secret, Settings
from trunkline.errors import InvalidParams, ParseError, Unauthenticated
from trunkline.peer.callbacks import REFUSED_MS, TOLD_BYTES, Callbacks, read_callback
from trunkline.peer.remote import Peer
from trunkline.wire.types import TaskState

SETTINGS = Settings(
    store="postgresql://db/x", secret_key=Secret("0123456789abcdef"), public_url="https://hub.example/x/"
)
COMPLETED = TaskState.COMPLETED


def test_every_replica_knows_the_token_of_a_task_and_no_other() -> None:
    config = Callbacks(SETTINGS).config(Peer(url="https://agent.example"), "acme", "a/b")
    assert config is not None
    assert config.url == "https://hub.example/x/api/a2a/callback/a%2Fb"
    other = Callbacks(SETTINGS)
    assert other.tenant("a/b", config.token) == "acme"
    assert "acme" not in config.token
    for task, token in [
        ("b", config.token),
        ("a/b", ""),
        ("a/b", config.token[:-1]),
        ("a/b", "é"),
        ("a/b", "x" * 70),
    ]:
        with pytest.raises(Unauthenticated):
            other.tenant(task, token)


@pytest.mark.parametrize(
    ("public", "own", "peer", "base"),
    [
        ("", "", "http://127.0.0.1:1", None),
        ("", "http://127.0.0.1:9", "http://127.0.0.1:1", "http://127.0.0.1:9"),
        ("", "http://127.0.0.1:9", "http://agent.localhost", "http://127.0.0.1:9"),
        ("", "http://127.0.0.1:9", "https://agent.example", None),
        ("https://hub.example", "http://127.0.0.1:9", "https://agent.example", "https://hub.example"),
        ("https://hub.example", "http://127.0.0.1:9", "http://localhost:1/a2a", "http://127.0.0.1:9"),
    ],
)
def test_an_agent_is_given_an_address_that_it_can_reach(
    public: str, own: str, peer: str, base: str | None
) -> None:
    callbacks = Callbacks(Settings(store="memory:", public_url=public))
    callbacks.own = own
    config = callbacks.config(Peer(url=peer), "acme", "t")
    assert (None if config is None else config.url) == (
        None if base is None else f"{base}/api/a2a/callback/t"
    )


@pytest.mark.parametrize(("public", "base"), [("", None), ("https://hub.example", "https://hub.example")])
def test_an_external_agent_is_given_the_public_address_or_none(public: str, base: str | None) -> None:
    callbacks = Callbacks(Settings(store="memory:", public_url=public))
    callbacks.own = "http://127.0.0.1:9"
    config = callbacks.config(Peer(url="http://127.0.0.1:1", external=True), "acme", "t")
    assert (None if config is None else config.url) == (base and f"{base}/api/a2a/callback/t")


def test_without_a_key_there_are_no_callbacks() -> None:
    callbacks = Callbacks(Settings(store="postgresql://db/x", public_url="https://hub.example"))
    assert callbacks.config(Peer(url="https://agent.example"), "acme", "t") is None
    with pytest.raises(Unauthenticated):
        callbacks.tenant("t", "x" * 60)


def body(told: Any) -> bytes:
    return msgspec.json.encode(told)


def test_a_body_tells_a_state_and_with_an_end_the_task() -> None:
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": "done"}]}
    update = {
        "kind": "status-update",
        "taskId": "r",
        "contextId": "c",
        "status": {"state": "completed"},
        "artifact": artifact,
    }
    told = read_callback(body(update))
    assert told.state is COMPLETED
    assert told.task is not None
    assert (told.task.id, told.task.artifacts[0].parts[0].text) == ("r", "done")
    working = read_callback(
        body({"statusUpdate": {"taskId": "r", "status": {"state": "TASK_STATE_WORKING"}}})
    )
    assert (working.state, working.task) == (TaskState.WORKING, None)
    piece = read_callback(body({"artifactUpdate": {"taskId": "r", "artifact": artifact}}))
    assert (piece.state, piece.task) == (None, None)


def test_of_a_large_task_only_its_end_is_told() -> None:
    text = {"artifactId": "a", "parts": [{"text": "x" * TOLD_BYTES}]}
    told = read_callback(
        body({"task": {"id": "r", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [text]}})
    )
    assert (told.state, told.task) == (COMPLETED, None)


def test_what_is_no_notification_is_refused() -> None:
    with pytest.raises(ParseError):
        read_callback(b"{")
    with pytest.raises(InvalidParams):
        read_callback(b"{}")


def test_an_agent_that_does_not_call_back_is_not_asked_to_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000_000
    monkeypatch.setattr("trunkline.peer.callbacks.monotonic_ms", lambda: now)
    made = Callbacks(SETTINGS)
    one, other = Peer(url="https://one.example"), Peer(url="https://other.example")
    made.note_refusal(one)
    assert made.config(one, "default", "t") is None
    assert made.config(other, "default", "t") is not None
    made.forget_refusal(one)
    assert made.config(one, "default", "t") is not None
    made.note_refusal(one)
    now += REFUSED_MS
    assert made.config(one, "default", "t") is not None
