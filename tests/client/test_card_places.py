"""Where cards are searched for, and which card describes the agent at a URL."""

from __future__ import annotations

import pytest

from trunkline.client.card_places import card_places, describes, listed_names, wrong_card
from trunkline.errors import Unreachable
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import Interface, PeerCard


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h", ["/.well-known/agent-card.json", "/.well-known/agent.json"]),
        ("https://h/", ["/.well-known/agent-card.json", "/.well-known/agent.json"]),
        ("https://h/cards/x.json", ["/cards/x.json"]),
        (
            "https://h/a2a",
            [
                "/.well-known/agent-card.json",
                "/a2a/.well-known/agent-card.json",
                "/a2a/agent-card.json",
                "/.well-known/agent.json",
                "/a2a/.well-known/agent.json",
            ],
        ),
        (
            "https://h/v1/agents/x/",
            [
                "/v1/agents/x/.well-known/agent-card.json",
                "/v1/agents/x/agent-card.json",
                "/v1/agents/.well-known/agent-card.json",
                "/v1/.well-known/agent-card.json",
                "/.well-known/agent-card.json",
                "/v1/agents/x/.well-known/agent.json",
                "/v1/agents/.well-known/agent.json",
                "/.well-known/agent.json",
            ],
        ),
    ],
)
def test_places_are_ordered_by_likelihood(url: str, expected: list[str]) -> None:
    assert list(card_places(url)) == [f"https://h{path}" for path in expected]


def test_malformed_url_is_refused() -> None:
    for url in ("agent.example", "https://[x/", "ftp://agent.example/"):
        with pytest.raises(Unreachable) as error:
            card_places(url)
        assert error.value.reason == "url"


HOST = "https://h"
ROOT = f"{HOST}/.well-known/agent-card.json"


@pytest.mark.parametrize(
    ("url", "place", "interface", "expected"),
    [
        # At or below the path.
        ("/x", "/x/.well-known/agent-card.json", "https://elsewhere/y", True),
        ("/x", "/x/agent-card.json", "https://elsewhere/y", True),
        ("", "/.well-known/agent.json", "https://elsewhere/y", True),
        # An endpoint directly next to the card: agents.yaml with `${QUINN_BASE_URL}/a2a`.
        ("/a2a", "/.well-known/agent-card.json", "", True),
        ("/quinn/A2A/", "/quinn/.well-known/agent.json", "", True),
        ("/quinn/rpc", "/quinn/.well-known/agent-card.json", "", True),
        ("/quinn/jsonrpc", "/quinn/.well-known/agent-card.json", "", True),
        ("/quinn/v1", "/quinn/.well-known/agent-card.json", "", True),
        ("/quinn/a2a", "/.well-known/agent-card.json", "https://h/a2a", False),
        ("/v1/a2a", "/.well-known/agent-card.json", "https://h/", False),
        # An interface with the path of the URL, at whichever host and however it is spelled.
        ("/quinn/a2a", "/.well-known/agent-card.json", "http://quinn:8000/quinn/a2a/", True),
        ("/api/agent", "/.well-known/agent-card.json", "api/agent", True),
        ("/api/agent", "/.well-known/agent-card.json", ".", False),
        ("/api/agent", "/.well-known/agent-card.json", "http://[bad/api/agent", False),
        # Another agent.
        ("/v1/a2a/agents/Buyer", "/.well-known/agent-card.json", "https://h/v1/a2a/agents/buyer", False),
        ("/buyer", "/.well-known/agent-card.json", "https://h/a2a", False),
        ("/x/y", "/x/.well-known/agent-card.json", "https://h/x", False),
    ],
)
def test_only_a_card_of_the_url_describes_its_agent(
    url: str, place: str, interface: str, expected: bool
) -> None:
    card = PeerCard(name="one", interfaces=(Interface(interface),) if interface else ())
    assert describes(card, HOST + place, HOST + url) is expected


def test_error_names_the_closest_agents_of_the_card() -> None:
    skills = (
        Skill("buy", "buy", "", ("routed", "buyer", "buyers-agent")),
        Skill("write", "write", "", ("prose",)),
    )
    card = PeerCard(name="shop\n", skills=skills, interfaces=(Interface("/a2a"),))
    text = str(wrong_card(card, ROOT, f"{HOST}/v1/a2a/agents/Buyer"))
    assert "no agent has the path '/v1/a2a/agents/Buyer'" in text
    assert f"{ROOT} is the card of 'shop\\n', whose interfaces are {HOST}/a2a" in text
    assert "the names closest to 'Buyer' are 'buyer'" in text
    assert "prose" not in text
    assert "correct the path" in text


def test_error_is_bounded_whatever_the_card_says() -> None:
    skills = tuple([Skill("s", "s", "", ("routed", f"{n}" + "x" * 1000)) for n in range(300)])
    interfaces = tuple([Interface(f"https://h/{'y' * 1000}{n}") for n in range(300)])
    card = PeerCard(name="z" * 10_000, skills=skills, interfaces=interfaces)
    assert len(str(wrong_card(card, ROOT, f"{HOST}/{'w' * 5000}", ["v" * 5000] * 300))) <= 1001


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items":[{"id":1}]}', b"\xff", b"<html>"])
def test_a_body_that_is_no_list_of_agents_has_no_names(body: bytes) -> None:
    assert listed_names(body) == []
    assert listed_names(b'{"items":[{"name":"a","kind":"a2a"}],"next":"a"}') == ["a"]
