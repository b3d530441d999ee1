"""Discovery: the card, its shapes, its cache headers, and that it says nothing but the truth."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest

from tests.conformance.wire.bindings import Proto03, Rest, Rpc, Rpc03
from tests.conformance.wire.conftest import KEYS, Serve
from tests.harness import V1, ServerProcess

PATH = "/.well-known/agent-card.json"
PATHS = (PATH, "/.well-known/agent.json")
REQUIRED = (
    "name", "description", "version", "supportedInterfaces",
    "capabilities", "defaultInputModes", "defaultOutputModes", "skills",
)  # fmt: skip
REQUIRED_03 = (
    "name", "description", "url", "version", "protocolVersion",
    "capabilities", "defaultInputModes", "defaultOutputModes", "skills",
)  # fmt: skip
OPTIONAL = {
    "provider", "iconUrl", "documentationUrl", "securitySchemes", "securityRequirements", "signatures",
}  # fmt: skip


@pytest.fixture
def card(base: str, http: httpx2.Client) -> Any:
    return http.get(base + PATH, headers=V1).json()


@pytest.fixture
def both(base: str, http: httpx2.Client) -> Any:
    """The card without a version: one for readers of both."""
    return http.get(base + PATH).json()


@pytest.mark.parametrize("path", PATHS)
def test_CARD_01_both_well_known_paths_serve_json(base: str, http: httpx2.Client, path: str) -> None:
    response = http.get(base + path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json()["name"] == "Trunkline demo"
    assert response.content == http.get(base + PATH).content


def test_CARD_01_head_has_the_headers_and_no_body(base: str, http: httpx2.Client) -> None:
    whole, head = http.get(base + PATH), http.head(base + PATH)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == whole.headers["etag"]


def test_CARD_02_required_members_are_there(card: Any) -> None:
    assert [name for name in REQUIRED if not card.get(name)] == []


def test_CARD_02_the_1_0_card_has_no_member_of_0_3(card: Any) -> None:
    assert set(card) - set(REQUIRED) - OPTIONAL == set()


def test_CARD_02_the_card_for_both_has_the_members_of_0_3_too(both: Any) -> None:
    assert [name for name in (*REQUIRED, *REQUIRED_03) if not both.get(name)] == []
    assert both["preferredTransport"] == "JSONRPC"
    assert {"url": both["url"], "transport": "JSONRPC"} in both["additionalInterfaces"]
    assert both["supportsAuthenticatedExtendedCard"] is False


def test_CARD_03_every_interface_answers_in_its_binding_and_version(card: Any, http: httpx2.Client) -> None:
    speakers = {
        ("JSONRPC", "1.0"): Rpc,
        ("HTTP+JSON", "1.0"): Rest,
        ("JSONRPC", "0.3"): Rpc03,
        ("HTTP+JSON", "0.3"): Proto03,
    }
    for interface in card["supportedInterfaces"]:
        speaker = speakers[interface["protocolBinding"], interface["protocolVersion"]]
        spoken = speaker(interface["url"].removesuffix("/a2a"), http)
        answer = spoken.send_message(spoken.message("echo from the card"), wait=True)
        assert answer.http == 200, interface
        assert b"echo from the card" in answer.body


def test_CARD_03_the_0_3_interfaces_answer(both: Any, http: httpx2.Client) -> None:
    assert both["url"].endswith("/a2a")
    assert Rpc03(both["url"].removesuffix("/a2a"), http).send("echo main", wait=True)["kind"] == "task"
    (rest,) = [one["url"] for one in both["additionalInterfaces"] if one["transport"] == "HTTP+JSON"]
    assert Proto03(rest, http).send_message(Proto03(rest, http).message("echo rest")).http == 200


def test_CARD_04_every_working_pair_is_listed_1_0_first(card: Any, both: Any) -> None:
    pairs = [(one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]]
    assert pairs == [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")]
    assert card["supportedInterfaces"] == both["supportedInterfaces"]


def test_CARD_05_interface_versions_have_no_patch(card: Any) -> None:
    for interface in card["supportedInterfaces"]:
        assert re.fullmatch(r"\d+\.\d+", interface["protocolVersion"])


def test_CARD_06_cache_control_has_max_age(base: str, http: httpx2.Client) -> None:
    assert re.search(r"max-age=\d+", http.get(base + PATH).headers["cache-control"])


def test_CARD_07_etag_gives_304(base: str, http: httpx2.Client) -> None:
    first = http.get(base + PATH)
    etag = first.headers["etag"]
    assert re.fullmatch(r'"[^"]+"', etag)
    for given in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        again = http.get(base + PATH, headers={"If-None-Match": given})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag), given
    assert http.get(base + PATH, headers={"If-None-Match": '"other"'}).status_code == 200


def test_CARD_07_each_shape_has_its_own_etag(base: str, http: httpx2.Client) -> None:
    plain, pure = http.get(base + PATH), http.get(base + PATH, headers=V1)
    assert plain.headers["etag"] != pure.headers["etag"]
    assert plain.headers["vary"] == pure.headers["vary"] == "A2A-Version, Host"


@pytest.mark.parametrize("headers", [{}, V1], ids=["both", "1.0"])
def test_CARD_09_members_are_camel_case(base: str, http: httpx2.Client, headers: dict[str, str]) -> None:
    text = http.get(base + PATH, headers=headers).text
    assert [name for name in re.findall(r'"(\w+)":', text) if "_" in name or not name[0].islower()] == []


def test_CARD_10_provider_and_skills_are_whole(card: Any) -> None:
    assert card["provider"]["url"] and card["provider"]["organization"]
    for skill in card["skills"]:
        assert all(skill[name] for name in ("id", "name", "description", "tags", "inputModes", "outputModes"))
    modes = {skill["id"]: skill["inputModes"] for skill in card["skills"]}
    assert modes["demo"] == ["text/plain"]
    assert modes["add"] == ["application/json"]


def test_CARD_10_capabilities_say_what_is_on(card: Any, http: httpx2.Client, serve: Serve) -> None:
    said = dict(card["capabilities"])
    spoken = [one["uri"].partition("/a2a/ext/")[2] for one in said.pop("extensions")]
    assert spoken[:5] == [
        "cost-v1", "confidence-v1", "effect-domain-v1", "worldstate-delta-v1", "skill-parameters/v1",
    ]  # fmt: skip
    assert said == {"streaming": True, "pushNotifications": True, "extendedAgentCard": False}
    quiet = http.get(serve("agents:mute").base + PATH, headers=V1).json()
    assert quiet["capabilities"]["streaming"] is False
    silent = serve("trunkline.demo:agent", "--set", "push=false")
    assert http.get(silent.base + PATH, headers=V1).json()["capabilities"]["pushNotifications"] is False


def test_CARD_11_schemes_are_single_wrappers_and_requirements_name_them(
    keyed: ServerProcess, http: httpx2.Client
) -> None:
    card = http.get(keyed.base + PATH, headers=V1).json()
    assert all(len(scheme) == 1 for scheme in card["securitySchemes"].values())
    named = [name for one in card["securityRequirements"] for name in one["schemes"]]
    assert set(named) == set(card["securitySchemes"]) == {"apiKey", "bearer"}
    assert card["securitySchemes"]["apiKey"]["apiKeySecurityScheme"] == {
        "location": "header", "name": "X-API-Key", "description": "A key of this agent.",
    }  # fmt: skip


def test_CARD_11_the_0_3_schemes_are_openapi_objects(keyed: ServerProcess, http: httpx2.Client) -> None:
    card = http.get(keyed.base + PATH).json()
    key, bearer = card["securitySchemes"]["apiKey"], card["securitySchemes"]["bearer"]
    assert (key["type"], key["in"], key["name"]) == ("apiKey", "header", "X-API-Key")
    assert (bearer["type"], bearer["scheme"]) == ("http", "Bearer")
    assert card["security"] == [{"apiKey": []}, {"bearer": []}]


def test_CARD_12_no_key_in_the_card(keyed: ServerProcess, http: httpx2.Client) -> None:
    for headers in ({}, V1, {"X-API-Key": KEYS[0]}):
        text = http.get(keyed.base + PATH, headers=headers).text
        assert not any(key in text for key in KEYS)


def test_CARD_12_a_public_url_leaves_no_private_host(serve: Serve, http: httpx2.Client) -> None:
    server = serve("trunkline.demo:agent", "--public-url", "https://agents.example.com/demo/")
    for headers in ({}, V1):
        text = http.get(server.base + PATH, headers=headers).text
        assert "127.0.0.1" not in text and "localhost" not in text
        urls = {one["url"] for one in json.loads(text)["supportedInterfaces"]}
        assert urls == {"https://agents.example.com/demo/a2a", "https://agents.example.com/demo"}


def test_CARD_12_a_forged_host_is_refused(base: str, http: httpx2.Client) -> None:
    response = http.get(base + PATH, headers={"Host": "evil.example"})
    assert response.status_code == 403
    assert "evil.example" not in response.text


def test_CARD_13_bindings_are_the_standard_ones(card: Any) -> None:
    assert {one["protocolBinding"] for one in card["supportedInterfaces"]} == {"JSONRPC", "HTTP+JSON"}


FORWARDED = {
    "X-Forwarded-Host": "proxy.example.com",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Prefix": "/agents",
}


@pytest.mark.parametrize("trusted", [True, False])
def test_CARD_12_forwarded_headers_count_when_trusted_only(
    serve: Serve, http: httpx2.Client, trusted: bool
) -> None:
    trusting = ("--set", "trust_forwarded=true", "--set", "allowed_hosts=proxy.example.com")
    server = serve("trunkline.demo:agent", *(trusting if trusted else ()))
    card = http.get(server.base + PATH, headers={**V1, **FORWARDED}).json()
    expected = "https://proxy.example.com/agents" if trusted else server.base
    assert card["supportedInterfaces"][1]["url"] == expected
