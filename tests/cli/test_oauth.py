"""Authorization servers that answer oddly, and cards that declare odd things."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted
from tests.cli.test_login import Authority
from trunkline.cli import oauth
from trunkline.cli.oauth import flows_of
from trunkline.wire.peer_card import PeerCard

Make = Callable[..., Scripted]


@pytest.mark.parametrize(
    ("path", "answer", "code", "says"),
    [
        ("/device", (403, {"error": "unauthorized_client"}), 4, "unauthorized_client"),
        ("/device", (200, {"device_code": "x"}), 1, "user_code"),
        ("/device", (200, b"<html>"), 1, "no JSON"),
        ("/token", (200, {"access_token": 7, "secret": "hush"}), 1, "access_token"),
    ],
)
def test_a_server_that_answers_oddly(
    trunkline: Run, scripted: Make, path: str, answer: tuple[int, Any], code: int, says: str
) -> None:
    peer = scripted()
    other = scripted()
    peer.card["securitySchemes"] = Authority(other).flows("deviceCode")
    other.routes[path] = lambda _headers, _body: answer
    ended, out, _ = trunkline(
        "auth", "login", peer.url, "--client-id", "cli", "-o", "json", "--timeout", "5s"
    )
    assert ended == code
    assert says in json.loads(out)["error"]["message"]
    assert "hush" not in out


def test_who_asks_too_often_asks_less(
    trunkline: Run, scripted: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "_INTERVAL_S", 0.05)
    peer, other = scripted(), scripted()
    authority = Authority(other, waits=0)
    peer.card["securitySchemes"] = authority.flows("deviceCode")
    good, answers = other.routes["/token"], iter([(400, {"error": "slow_down"})])
    other.routes["/token"] = lambda headers, body: next(answers, None) or good(headers, body)
    code, _, _ = trunkline("auth", "login", peer.url, "--client-id", "cli", "--timeout", "5s")
    assert code == 0


@pytest.mark.parametrize(
    "schemes",
    [
        None,
        [],
        {"a": None},
        {"a": {"flows": []}},
        {"a": {"flows": {"deviceCode": {"tokenUrl": "https://x"}}}},
    ],
)
def test_a_card_without_a_whole_flow(schemes: Any) -> None:
    assert flows_of(PeerCard(name="x", document={"securitySchemes": schemes})) == []


def test_a_card_of_the_older_shape() -> None:
    flows = {"clientCredentials": {"tokenUrl": "https://x/token", "scopes": {"a": ""}}}
    (found,) = flows_of(
        PeerCard(name="x", document={"securitySchemes": {"o": {"type": "oauth2", "flows": flows}}})
    )
    assert (found.kind, found.token_url, found.scopes) == ("client", "https://x/token", ("a",))
