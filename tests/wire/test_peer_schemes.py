from __future__ import annotations

from typing import Any

import pytest

from trunkline.wire.peer_schemes import PeerScheme, read_security

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
