"""Which interface is spoken to: the card's order, the operator's host, versions, and what is asked when it lies."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from tests.client.web import Asked, Page, Web
from trunkline.client.ranking import (
    RankedInterface,
    named,
    no_interface,
    probe,
    probes,
    rank,
)
from trunkline.client.rpc import JsonRpcTransport
from trunkline.client.transport import Call
from trunkline.errors import (
    Forbidden,
    TooManyRequests,
    TrunklineError,
    Unauthenticated,
    Unavailable,
)
from trunkline.wire.peer_card import Interface, PeerCard, read_card

HOME = "https://agent.example/a2a"


def offering(*interfaces: Interface) -> PeerCard:
    return PeerCard(name="a", interfaces=interfaces)


def candidates(card: PeerCard | None, url: str, **options: Any) -> list[RankedInterface]:
    return rank(card, url, **options)[0]


def chosen(card: PeerCard | None, url: str = HOME, **options: Any) -> list[tuple[str, str, str]]:
    found = candidates(card, url, **options)
    return [(one.interface.binding, one.interface.version, one.interface.url) for one in found]


def test_the_first_that_is_spoken_in_the_order_of_the_card() -> None:
    """CLI-02, and what CLI-03 falls back to."""
    card = offering(
        Interface("https://agent.example/grpc", "GRPC", "1.0"),
        Interface("https://agent.example/rest", "HTTP+JSON", "1.0"),
        Interface("https://agent.example/a2a", "JSONRPC", "1.0"),
        Interface("https://agent.example/old", "JSONRPC", "0.3"),
        Interface("https://agent.example/new", "JSONRPC", "2.0"),
    )
    assert chosen(card) == [
        ("HTTP+JSON", "1.0", "https://agent.example/rest"),
        ("JSONRPC", "1.0", "https://agent.example/a2a"),
        ("JSONRPC", "0.3", "https://agent.example/old"),
    ]
    _, notes = rank(card, HOME)
    assert "GRPC is not spoken here" in notes[0]
    assert "version 2.0 is not spoken here" in notes[1]
    assert chosen(card, adapters=["grpc"])[0][0] == "GRPC"


def test_preferred_bindings_come_first() -> None:
    card = offering(
        Interface("https://agent.example/a2a", "JSONRPC", "1.0"),
        Interface("https://agent.example/rest", "HTTP+JSON", "1.0"),
    )
    assert [one[0] for one in chosen(card, bindings=["http+json"])] == ["HTTP+JSON", "JSONRPC"]
    _, notes = rank(card, HOME, bindings=["PIGEON"], adapters=["PIGEON"])
    assert notes == ["PIGEON is preferred, but the card does not offer it"]


def test_the_task_api_is_where_the_operator_says_as_no_card_tells_of_it() -> None:
    card = offering(Interface("https://agent.example/a2a", "JSONRPC", "1.0"))
    first, *_ = candidates(card, "https://agent.example/delegate", bindings=["DELEGATE"])
    assert first.interface == Interface("https://agent.example/delegate", "DELEGATE", tenant=card.name)


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        ("1.0", ["1.0"]),
        ("1", ["1.0"]),
        ("1.0.1", ["1.0"]),
        ("0.3.0", ["0.3"]),
        ("0.2.6", ["0.3"]),
        ("", ["1.0", "0.3"]),
        ("2.0", []),
        ("0.1", []),
    ],
)
def test_versions(said: str, spoken: list[str]) -> None:
    card = offering(Interface(HOME, "JSONRPC", said), Interface(f"{HOME}/rest", "HTTP+JSON", "1.0"))
    assert [version for _, version, url in chosen(card) if url == HOME] == spoken


def test_a_pinned_version_is_the_only_one() -> None:
    """CLI-04."""
    card = offering(Interface(HOME, "JSONRPC", "1.0"), Interface(f"{HOME}/3", "JSONRPC", "0.3"))
    assert {version for _, version, _ in chosen(card, version="0.3")} == {"0.3"}
    assert {version for _, version, _ in chosen(None, version="0.3")} == {"0.3"}
    found = probes(HOME, Interface(HOME, "JSONRPC", "1.0"), version="1.0")
    assert {one.version for one in found} == {"1.0"}
    assert Interface(HOME, "JSONRPC", "1.0") not in found


@pytest.mark.parametrize(
    ("said", "operator", "used", "why"),
    [
        ("http://127.0.0.1:8000/a2a", HOME, "https://agent.example/a2a", "http where https"),
        ("https://127.0.0.1:8000/a2a", HOME, "https://agent.example/a2a", "not public (loopback)"),
        ("https://[::1]/x?y=z", HOME, "https://agent.example/x?y=z", "not public (loopback)"),
        ("https://10.1.2.3/a2a", HOME, "https://agent.example/a2a", "not public (private)"),
        ("http://0.0.0.0:9999/", "http://agent:80/a2a", "http://agent:80/", "not public (unspecified)"),
        ("http://localhost:9999/a2a", "http://10.0.0.5:80", "http://10.0.0.5:80/a2a", "only its own network"),
        ("https://agent.internal/a2a", HOME, "https://agent.example/a2a", "only its own network"),
        ("https://agent/a2a", HOME, "https://agent.example/a2a", "only its own network"),
        ("http://agent.example/a2a", HOME, "https://agent.example/a2a", "http where https"),
        ("https://[/a2a", HOME, "https://agent.example/a2a", "no address"),
        ("https://agent.example:port/a2a", HOME, "https://agent.example/a2a", "no address"),
        ("ftp://agent.example/x", HOME, "https://agent.example/a2a", "no address"),
        ("http://127.0.0.1:1/a2a", "https://agent.example/c.json", "https://agent.example/a2a", "http where"),
    ],
)
def test_the_operators_host_over_one_that_cannot_be_meant(
    said: str, operator: str, used: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        (one,) = candidates(offering(Interface(said, "JSONRPC", "1.0", "tenant")), operator)
    assert one.interface == Interface(used, "JSONRPC", "1.0", "tenant")
    assert one.pinned_from == said
    assert why in one.why
    assert "client.card_url_pinned" in caplog.text


def test_two_names_of_this_machine_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    card = offering(Interface("http://127.0.0.1:8000/a2a", "JSONRPC", "1.0"))
    with caplog.at_level(logging.WARNING):
        assert chosen(card, "http://localhost:8000") == [("JSONRPC", "1.0", "http://localhost:8000/a2a")]
        assert not caplog.records
        chosen(card, "http://localhost:9000")
    assert "client.card_url_pinned" in caplog.text


def test_another_host_that_might_be_meant_is_tried_last(caplog: pytest.LogCaptureFixture) -> None:
    card = offering(
        Interface("https://api.example/a2a", "JSONRPC", "1.0"),
        Interface("https://agent.example:8443/rest", "HTTP+JSON", "1.0"),
    )
    with caplog.at_level(logging.WARNING):
        assert chosen(card) == [
            ("JSONRPC", "1.0", "https://agent.example/a2a"),
            ("HTTP+JSON", "1.0", "https://agent.example/rest"),
            ("JSONRPC", "1.0", "https://api.example/a2a"),
            ("HTTP+JSON", "1.0", "https://agent.example:8443/rest"),
        ]
    assert caplog.text.count("client.card_url_pinned") == 2
    assert [one.pinned_from != "" for one in candidates(card, HOME)] == [True, True, False, False]
    # A card that was given by its own URL may well stand elsewhere than its agent.
    assert chosen(card, "https://cards.example/x.json")[0][2] == "https://api.example/a2a"


@pytest.mark.parametrize("said", ["https://agent.example/a2a", "https://AGENT.example:443/a2a", "/a2a"])
def test_the_same_host_is_left_alone(said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        (one,) = candidates(offering(Interface(said, "JSONRPC", "1.0")), "https://agent.example")
    assert one.pinned_from == ""
    assert one.interface.url.lower().replace(":443", "") == HOME
    assert caplog.text == ""


def test_without_a_card_the_usual_places_are_guessed() -> None:
    assert chosen(None, "https://agent.example") == [
        ("JSONRPC", "1.0", "https://agent.example/a2a"),
        ("JSONRPC", "0.3", "https://agent.example/a2a"),
        ("JSONRPC", "1.0", "https://agent.example/"),
        ("JSONRPC", "0.3", "https://agent.example/"),
    ]
    assert chosen(None, "https://agent.example/rpc/")[0][2] == "https://agent.example/rpc"
    assert chosen(None, "https://h/x/agent-card.json")[0][2] == "https://h/x"
    assert chosen(None, "https://h/.well-known/agent.json")[0][2] == "https://h/a2a"
    assert chosen(None, HOME, bindings=["DELEGATE"])[0] == ("DELEGATE", "", HOME)
    assert "guess" in candidates(None, HOME)[0].why
    assert "names none" in candidates(offering(Interface(HOME, "GRPC", "1.0")), HOME)[0].why


SEEDS: dict[str, tuple[bytes, str, tuple[str, str, str, str]]] = {
    "arbiter": (
        b'{"name":"a","protocolVersion":"1.0","url":"http://localhost:8080/v1/a2a/agents/x",'
        b'"preferredTransport":"JSONRPC"}',
        "https://arbiter.example/v1/a2a/agents/x",
        ("JSONRPC", "1.0", "0.3", "https://arbiter.example/v1/a2a/agents/x"),
    ),
    "promptkit": (
        b'{"name":"a","skills":[],"capabilities":{}}',
        "https://kit.example",
        ("JSONRPC", "1.0", "", "https://kit.example/a2a"),
    ),
    "quinn": (
        b'{"name":"a","url":"http://quinn:8000/a2a","version":"1","protocolVersion":"0.3.0"}',
        "http://127.0.0.1:8000",
        ("JSONRPC", "0.3", "", "http://127.0.0.1:8000/a2a"),
    ),
    "hybrid": (
        b'{"name":"a","supportedInterfaces":[{"url":"https://h.example/a2a","protocolBinding":"JSONRPC",'
        b'"protocolVersion":"1.0"}],"url":"https://h.example/a2a","protocolVersion":"0.3.0"}',
        "https://h.example",
        ("JSONRPC", "1.0", "", "https://h.example/a2a"),
    ),
}


@pytest.mark.parametrize("name", SEEDS)
def test_the_cards_of_the_seeds(name: str) -> None:
    raw, operator, expected = SEEDS[name]
    first = candidates(read_card(raw), operator)[0].interface
    assert (first.binding, first.version, first.words, first.url) == expected


def test_words_and_pins() -> None:
    """An agent that says 1.0 and speaks 0.3 keeps its words when 1.0 is pinned, and has none when 0.3 is."""
    card = offering(Interface(HOME, "JSONRPC", "1.0", "", "0.3"))
    assert candidates(card, HOME, version="1.0")[0].interface == Interface(HOME, "JSONRPC", "1.0", "", "0.3")
    assert candidates(card, HOME, version="0.3")[0].interface == Interface(HOME, "JSONRPC", "0.3")
    assert candidates(card, HOME)[0].interface == Interface(HOME, "JSONRPC", "1.0", "", "0.3")


def test_where_else_to_ask() -> None:
    base = "https://agent.example"
    found = probes(HOME, Interface(HOME, "JSONRPC", "1.0"))
    assert [(one.url, one.version) for one in found] == [
        (HOME, "0.3"),
        (f"{base}/", "1.0"),
        (f"{base}/", "0.3"),
    ]
    found = probes(f"{base}/x/", Interface(f"{base}/rest", "HTTP+JSON", "0.3"))
    assert [(one.url, one.binding, one.version) for one in found] == [
        (f"{base}/rest", "HTTP+JSON", "1.0"),
        (f"{base}/x/a2a", "JSONRPC", "1.0"),
        (f"{base}/x/a2a", "JSONRPC", "0.3"),
        (f"{base}/x/", "JSONRPC", "1.0"),
        (f"{base}/x/", "JSONRPC", "0.3"),
        (f"{base}/x", "JSONRPC", "1.0"),
        (f"{base}/x", "JSONRPC", "0.3"),
    ]
    # Its own words were tried; those of the version that it says were not.
    assert probes(HOME, Interface(HOME, "JSONRPC", "1.0", "", "0.3"))[0] == Interface(HOME, "JSONRPC", "1.0")


def _error(code: int, status: int = 200) -> Any:
    def page(asked: Asked) -> Page:
        question = msgspec.json.decode(asked.body)
        assert question["method"] == "GetTask"
        answer = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": code, "message": "no"}}
        return Page(status, msgspec.json.encode(answer), {"content-type": "application/json"})

    return page


@pytest.mark.parametrize(
    ("page", "understood"),
    [
        (_error(-32001), True),
        (_error(-32602), True),
        (_error(-32603), True),
        (_error(-32004), True),
        (_error(-32099), True),
        (_error(-32601), False),
        (_error(-32600), False),
        (_error(-32700), False),
        (_error(-32009), False),
        (_error(-32005), False),
        (Page(404, b"nothing"), False),
        (Page(405, b"no"), False),
        (Page(415, b"no"), False),
        (Page(200, b"<html>"), False),
    ],
)
def test_a_harmless_question_shows_who_understands(page: Any, understood: bool) -> None:
    async def main() -> TrunklineError | None:
        web = Web({HOME: page})
        got = await probe(JsonRpcTransport(Interface(HOME, "JSONRPC", "1.0"), web), Call())
        assert len(web.asked) == 1
        return got

    assert (asyncio.run(main()) is None) is understood


def test_a_task_of_that_id_counts_as_an_answer() -> None:
    def page(asked: Asked) -> Page:
        said = msgspec.json.decode(asked.body)
        task = {"id": said["params"]["id"], "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
        answer = {"jsonrpc": "2.0", "id": said["id"], "result": task}
        return Page(200, msgspec.json.encode(answer))

    async def main() -> TrunklineError | None:
        return await probe(JsonRpcTransport(Interface(HOME, "JSONRPC", "1.0"), Web({HOME: page})), Call())

    assert asyncio.run(main()) is None


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, Unauthenticated), (403, Forbidden), (429, TooManyRequests), (503, Unavailable)],
)
def test_who_asks_for_credentials_or_time_is_believed(status: int, error: type[Exception]) -> None:
    async def main() -> None:
        web = Web({HOME: Page(status, b"")})
        await probe(JsonRpcTransport(Interface(HOME, "JSONRPC", "1.0"), web), Call())

    with pytest.raises(error):
        asyncio.run(main())


def test_the_last_word_lists_every_attempt() -> None:
    attempts = [
        (Interface(HOME, "JSONRPC", "1.0"), "HTTP 404"),
        (Interface(HOME, "JSONRPC", "1.0", "", "0.3"), "method not found"),
    ]
    text = str(no_interface("https://agent.example", attempts))
    assert text == (
        "no way was found to speak to https://agent.example; tried JSONRPC 1.0 at https://agent.example/a2a: "
        "HTTP 404; JSONRPC 1.0 in the words of 0.3 at https://agent.example/a2a: method not found. "
        "Is it the URL of an A2A agent?"
    )
    assert "; no card: HTTP 404; tried nothing" in str(
        no_interface("https://agent.example", [], ["no card: HTTP 404"])
    )
    assert named(RankedInterface(attempts[0][0], "").interface) == f"JSONRPC 1.0 at {HOME}"
