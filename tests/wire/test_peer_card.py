from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import samples
from trunkline.errors import Unreadable
from trunkline.wire.card import Extension, Provider, Skill
from trunkline.wire.peer_card import INTERFACES, Interface, PeerCard, PeerScheme, read_card, read_security

V1 = {
    "name": "Scribe",
    "description": "Writes",
    "version": "2.1.0",
    "supportedInterfaces": [
        {
            "url": "https://a.example/rpc",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
            "tenant": "t",
        },
        {"url": "https://a.example", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": "https://a.example:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": "https://a.example/x", "protocolBinding": "https://x.example/own", "protocolVersion": "1.0"},
    ],
    "provider": {"organization": "Example", "url": "https://example.com"},
    "capabilities": {
        "streaming": True,
        "pushNotifications": True,
        "extendedAgentCard": True,
        "extensions": [
            {"uri": "https://x.example/e", "required": True, "params": {"a": 1}},
            {"required": True},
        ],
    },
    "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}},
    "securityRequirements": [{"schemes": {"key": {"list": []}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain", "application/json"],
    "skills": [
        {
            "id": "s",
            "name": "S",
            "description": "d",
            "tags": ["t"],
            "examples": ["e"],
            "inputModes": ["a/b"],
            "outputModes": ["c/d"],
        }
    ],
}
V03 = {
    "protocolVersion": "0.3.0",
    "name": "Scribe",
    "description": "Writes",
    "version": "1",
    "url": "https://a.example/rpc",
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [
        {"url": "https://a.example/rpc", "transport": "JSONRPC"},
        {"url": "https://a.example/rest", "transport": "HTTP+JSON"},
        {"transport": "GRPC"},
    ],
    "capabilities": {"streaming": True},
    "supportsAuthenticatedExtendedCard": True,
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
}


def read(card: Any) -> PeerCard:
    return read_card(json.dumps(card).encode())


def test_a_card_of_1_0() -> None:
    card = read(V1)
    assert card == PeerCard(
        name="Scribe",
        description="Writes",
        version="2.1.0",
        interfaces=(
            Interface("https://a.example/rpc", "JSONRPC", "1.0", "t"),
            Interface("https://a.example", "HTTP+JSON", "1.0"),
            Interface("https://a.example:443", "GRPC", "1.0"),
            Interface("https://a.example/x", "https://x.example/own", "1.0"),
        ),
        skills=(Skill("s", "S", "d", ("t",), ("e",), ("a/b",), ("c/d",)),),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain", "application/json"),
        streaming=True,
        push=True,
        extended_card=True,
        extensions=(Extension("https://x.example/e", "", True, {"a": 1}),),
        provider=Provider("Example", "https://example.com"),
        schemes={"key": PeerScheme("apiKey", place="header", name="X-Key")},
        requirements=(("key",),),
        oddities=(),
        document=V1,
    )


def test_a_card_of_0_3() -> None:
    card = read(V03)
    assert card.interfaces == (
        Interface("https://a.example/rpc", "JSONRPC", "0.3.0"),
        Interface("https://a.example/rest", "HTTP+JSON", "0.3.0"),
    )
    assert (card.streaming, card.push, card.extended_card) == (True, False, True)
    assert card.oddities == ()


def test_a_card_before_0_3_says_less() -> None:
    old = {
        "name": "Old",
        "url": "https://a.example/",
        "version": "1",
        "capabilities": {},
        "authentication": {"schemes": ["Bearer", "apiKey", "smoke"]},
        "provider": "Example",
        "skills": [{"name": "talk"}, {"tags": ["lost"]}],
    }
    card = read(old)
    assert card.interfaces == (Interface("https://a.example/", "JSONRPC", "0.3"),)
    assert card.provider == Provider("Example", "")
    assert card.schemes == {
        "Bearer": PeerScheme("http", scheme="Bearer"),
        "apiKey": PeerScheme("apiKey", place="header", name="X-API-Key"),
    }
    assert card.requirements == (("Bearer",), ("apiKey",))
    assert card.skills == (Skill("talk", "talk", "", ()),)
    said = "\n".join(card.oddities)
    for what in (
        "description is missing",
        "protocolVersion is missing",
        "'smoke'",
        "'talk' has no id",
        "neither",
    ):
        assert what in said


def test_a_card_of_both_names_each_interface_once() -> None:
    both = {
        **V03,
        "supportedInterfaces": [
            {"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
    }
    assert read(both).interfaces == (
        Interface("https://a.example/rpc", "JSONRPC", "1.0"),
        Interface("https://a.example/rpc", "JSONRPC", "0.3"),
        Interface("https://a.example/rest", "HTTP+JSON", "0.3.0"),
    )
    unsaid = {name: member for name, member in both.items() if name != "protocolVersion"}
    assert read(unsaid).interfaces[2] == Interface("https://a.example/rest", "HTTP+JSON", "0.3")
    # The layout of 1.0 is there: what it says at the top is not taken for a lie.
    assert read({**both, "protocolVersion": "1.0"}).interfaces[2].words == ""


def test_an_agent_that_says_1_0_and_speaks_0_3() -> None:
    card = read({**V03, "protocolVersion": "1.0"})
    assert card.interfaces[0] == Interface("https://a.example/rpc", "JSONRPC", "1.0", "", "0.3")
    assert "laid out as in 0.3" in card.oddities[0]


def test_a_card_without_any_address() -> None:
    card = read({"name": "Kit", "capabilities": {"streaming": "true"}, "skills": []})
    assert (card.interfaces, card.streaming) == ((), True)
    assert "it names no address; that of the card is taken" in card.oddities
    assert "streaming is a text, not true or false" in card.oddities


@pytest.mark.parametrize(("more", "cut"), [(0, False), (1, True)])
def test_so_many_interfaces_are_looked_at(more: int, *, cut: bool) -> None:
    listed = [{"url": f"/{number}", "protocolVersion": "1.0"} for number in range(INTERFACES + more)]
    card = read({"name": "x", "supportedInterfaces": listed})
    assert len(card.interfaces) == INTERFACES
    assert any("interfaces; only the first" in odd for odd in card.oddities) is cut


def test_interfaces_may_leave_things_out() -> None:
    listed = [{"url": "/a2a"}, {"url": "/other"}, {"protocolBinding": "GRPC"}, 7]
    card = read({"name": "x", "supportedInterfaces": listed})
    assert card.interfaces == (Interface("/a2a", "JSONRPC", ""), Interface("/other", "JSONRPC", ""))
    assert card.oddities.count("supportedInterfaces: an entry has no protocolVersion") == 1


@pytest.mark.parametrize(
    ("spelled", "binding"),
    [("jsonrpc", "JSONRPC"), ("JSON-RPC", "JSONRPC"), ("http_json", "HTTP+JSON"), ("REST", "HTTP+JSON"),
     ("grpc", "GRPC"), ("", "JSONRPC"), ("urn:own", "urn:own")],
)  # fmt: skip
def test_bindings_are_known_however_they_are_spelled(spelled: str, binding: str) -> None:
    given_interface = {"url": "https://a.example", "transport": spelled, "protocol_version": 1.0}
    card = read({"name": "x", "supported_interfaces": [given_interface]})
    assert card.interfaces == (Interface("https://a.example", binding, "1.0"),)


def test_names_as_python_spells_them() -> None:
    card = read({
        "name": "x",
        "url": "https://a.example",
        "protocol_version": "v0.3.0",
        "preferred_transport": "HTTP+JSON",
        "default_input_modes": "text/plain",
        "capabilities": {"push_notifications": True},
        "provider": {"name": "Example"},
    })  # fmt: skip
    assert card.interfaces == (Interface("https://a.example", "HTTP+JSON", "0.3.0"),)
    assert (card.push, card.default_input_modes) == (True, ("text/plain",))
    assert card.provider == Provider("Example", "")


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"<html>\x1b</html>", b'{"error":{"code":404}}', b"{}", b'"\xff"', b"[" * 500],
)
def test_what_is_no_card(body: bytes) -> None:
    with pytest.raises(Unreadable) as unreadable:
        read_card(body)
    assert str(unreadable.value).isprintable()


fields = st.sampled_from([*V1, *V03, "authentication", "security"])


@given(st.dictionaries(fields, samples.values | st.sampled_from([V1, V03, [V1], [V03]])))
def test_nothing_in_a_card_breaks_the_reader(odd: dict[str, Any]) -> None:
    assert isinstance(read({**V03, **odd}), PeerCard)
    assert isinstance(read({**V1, **odd}), PeerCard)


FLOWS = {"clientCredentials": {"tokenUrl": "https://i.example/token", "scopes": {"a": "A", "b": "B"}}}


@pytest.mark.parametrize(
    ("given", "scheme"),
    [
        ({"type": "apiKey", "in": "query", "name": "k"}, PeerScheme("apiKey", place="query", name="k")),
        (
            {"apiKeySecurityScheme": {"location": "cookie", "name": "k"}},
            PeerScheme("apiKey", place="cookie", name="k"),
        ),
        ({"api_key_security_scheme": {"name": "k"}}, PeerScheme("apiKey", place="header", name="k")),
        ({"type": "http", "scheme": "bearer"}, PeerScheme("http", scheme="bearer")),
        ({"httpAuthSecurityScheme": {"scheme": "Basic"}}, PeerScheme("http", scheme="Basic")),
        (
            {"type": "oauth2", "flows": FLOWS, "oauth2MetadataUrl": "https://i.example/m"},
            PeerScheme(
                "oauth2",
                token_url="https://i.example/token",
                scopes=("a", "b"),
                discovery_url="https://i.example/m",
            ),
        ),
        (
            {
                "oauth2_security_scheme": {
                    "flows": {"client_credentials": {"token_url": "t", "scopes": ["a"]}}
                }
            },
            PeerScheme("oauth2", token_url="t", scopes=("a",)),
        ),
        ({"oauth2SecurityScheme": {"flows": {"authorizationCode": {"tokenUrl": "t"}}}}, PeerScheme("oauth2")),
        (
            {"type": "openIdConnect", "openIdConnectUrl": "https://i.example"},
            PeerScheme("openIdConnect", discovery_url="https://i.example"),
        ),
        (
            {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://i.example"}},
            PeerScheme("openIdConnect", discovery_url="https://i.example"),
        ),
        ({"mtlsSecurityScheme": {}}, PeerScheme("mutualTLS")),
        ({"type": "mutualTLS"}, PeerScheme("mutualTLS")),
    ],
)
def test_schemes_of_both_layouts(given: dict[str, Any], scheme: PeerScheme) -> None:
    odd: list[str] = []
    assert read_security({"securitySchemes": {"one": given}}, odd.append) == ({"one": scheme}, ())
    assert odd == []


@pytest.mark.parametrize(
    "document",
    [
        {"securityRequirements": [{"schemes": {"a": {"list": []}, "b": {}}}, {"schemes": {"c": {}}}]},
        {"security_requirements": [{"schemes": {"a": {}, "b": {}}}, {"schemes": {"c": {}}}]},
        {"security": [{"a": [], "b": ["scope"]}, {"c": []}]},
    ],
)
def test_requirements_of_both_layouts(document: dict[str, Any]) -> None:
    assert read_security(document, print) == ({}, (("a", "b"), ("c",)))


def test_what_nobody_knows_is_odd() -> None:
    odd: list[str] = []
    document = {"securitySchemes": {"a": {"type": "smoke"}, "b": 7}, "security": [{}, 7]}
    assert read_security(document, odd.append) == ({}, ((),))
    assert len(odd) == 2
