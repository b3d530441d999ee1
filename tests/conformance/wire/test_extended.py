"""The extended card on a server with keys: offered on the card, given to who is let in, and to nobody else."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from tests.conformance.wire.bindings import Binding
from tests.conformance.wire.conftest import KEYS, Serve
from tests.harness import V1, ServerProcess

PATH = "/.well-known/agent-card.json"


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "wrong-key-altogether"}], ids=["none", "wrong"])
def test_EXC_03_not_without_good_credentials(
    speak: Callable[..., Binding], keyed: ServerProcess, headers: dict[str, str]
) -> None:
    answer = speak(keyed.base, headers).extended_card()
    assert (answer.http, answer.reason) == (401, "UNAUTHENTICATED")
    assert b"skills" not in answer.body


@pytest.mark.parametrize("name", ["X-API-Key", "Authorization"])
def test_EXC_04_with_good_ones_the_whole_card(
    speak: Callable[..., Binding], serve: Serve, http: httpx2.Client, name: str
) -> None:
    server = serve("agents:clerk", "--key", KEYS[0])
    spoken = speak(server.base, {name: KEYS[0] if name == "X-API-Key" else f"Bearer {KEYS[0]}"})
    public = http.get(server.base + PATH, headers=V1 if spoken.version == "1.0" else {}).json()
    assert public["capabilities"]["extendedAgentCard"] is True
    assert [skill["id"] for skill in public["skills"]] == ["greet"]
    assert [skill["id"] for skill in spoken.extended_card().result["skills"]] == ["greet", "pay"]


def test_EXC_01_a_key_alone_declares_none(
    speak: Callable[..., Binding], keyed: ServerProcess, http: httpx2.Client
) -> None:
    """SDKs fetch a declared one unasked and without credentials, and would not get over the refusal."""
    spoken = speak(keyed.base, {"X-API-Key": KEYS[0]})
    public = http.get(keyed.base + PATH, headers=V1 if spoken.version == "1.0" else {}).json()
    assert public["capabilities"]["extendedAgentCard"] is False
    assert spoken.extended_card().reason == (
        "UNSUPPORTED_OPERATION" if spoken.version == "1.0" else "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    )
