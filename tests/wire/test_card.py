from __future__ import annotations

from tests.wire.samples import members, plain
from trunkline.wire.card import (
    ApiKeyScheme,
    BearerScheme,
    Card,
    Extension,
    Provider,
    Skill,
    card_hybrid,
    card_v1,
)

CARD = Card(
    name="scribe",
    description="Summarises",
    version="1.0.0",
    rpc_url="http://h/a2a",
    rest_url="http://h",
    skills=(Skill("s", "S", "Says", ("text",), examples=("hi",)),),
    push=True,
    extensions=(Extension("urn:x", "An extension.", required=False, params={"a": 1}),),
    provider=Provider("us", "http://us"),
    icon_url="http://h/i.png",
    documentation_url="http://h/docs",
    schemes={"key": ApiKeyScheme("X-API-Key"), "bearer": BearerScheme("JWT", "a token")},
    requirements=(("key",), ("bearer",)),
)
BARE = Card(name="n", description="d", version="1", rpc_url="http://h/a2a", rest_url="http://h", skills=())
LEGACY = {
    "protocolVersion",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "supportsAuthenticatedExtendedCard",
    "security",
}


def test_CARD_02_required_members_even_when_empty() -> None:
    assert set(plain(card_v1(BARE))) == {
        "name",
        "description",
        "version",
        "supportedInterfaces",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
    }


def test_CARD_03_CARD_05_interfaces() -> None:
    interfaces = plain(card_v1(CARD))["supportedInterfaces"]
    assert [(i["url"], i["protocolBinding"], i["protocolVersion"]) for i in interfaces] == [
        ("http://h/a2a", "JSONRPC", "1.0"),
        ("http://h", "HTTP+JSON", "1.0"),
        ("http://h/a2a", "JSONRPC", "0.3"),
        ("http://h", "HTTP+JSON", "0.3"),
    ]


def test_CARD_10_capabilities_provider_and_skills() -> None:
    body = plain(card_v1(CARD))
    assert body["capabilities"] == {
        "streaming": True,
        "pushNotifications": True,
        "extendedAgentCard": False,
        "extensions": [
            {"uri": "urn:x", "description": "An extension.", "required": False, "params": {"a": 1}}
        ],
    }
    assert body["provider"] == {"organization": "us", "url": "http://us"}
    assert body["skills"] == [
        {"id": "s", "name": "S", "description": "Says", "tags": ["text"], "examples": ["hi"]}
    ]
    assert (body["iconUrl"], body["documentationUrl"]) == ("http://h/i.png", "http://h/docs")


def test_CARD_11_each_scheme_is_one_wrapper_in_1_0() -> None:
    body = plain(card_v1(CARD))
    assert body["securitySchemes"] == {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        "bearer": {
            "httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT", "description": "a token"}
        },
    }
    assert body["securityRequirements"] == [
        {"schemes": {"key": {"list": []}}},
        {"schemes": {"bearer": {"list": []}}},
    ]


def test_the_pure_card_has_nothing_of_0_3() -> None:
    assert not set(plain(card_v1(CARD))) & LEGACY


def test_the_hybrid_card_is_the_pure_one_and_more() -> None:
    pure, hybrid = plain(card_v1(CARD)), plain(card_hybrid(CARD))
    assert set(hybrid) - set(pure) == LEGACY
    schemes = hybrid.pop("securitySchemes")
    assert {name: hybrid[name] for name in pure if name != "securitySchemes"} == {
        name: pure[name] for name in pure if name != "securitySchemes"
    }
    for name, scheme in pure["securitySchemes"].items():
        assert scheme.items() <= schemes[name].items()


def test_the_hybrid_card_read_as_0_3() -> None:
    body = plain(card_hybrid(CARD))
    assert body["protocolVersion"] == "0.3.0"
    assert (body["url"], body["preferredTransport"]) == ("http://h/a2a", "JSONRPC")
    assert body["additionalInterfaces"] == [
        {"url": "http://h/a2a", "transport": "JSONRPC"},
        {"url": "http://h", "transport": "HTTP+JSON"},
    ]
    assert body["security"] == [{"key": []}, {"bearer": []}]
    assert body["supportsAuthenticatedExtendedCard"] is False
    key, bearer = body["securitySchemes"]["key"], body["securitySchemes"]["bearer"]
    assert (key["type"], key["in"], key["name"]) == ("apiKey", "header", "X-API-Key")
    assert (bearer["type"], bearer["scheme"], bearer["bearerFormat"]) == ("http", "Bearer", "JWT")
    assert bearer["description"] == "a token"


def test_CARD_09_members_are_camel_case() -> None:
    assert not [name for name in members(plain(card_hybrid(CARD))) if "_" in name]
