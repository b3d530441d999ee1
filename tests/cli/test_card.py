"""`trunkline card get`: every way to name an agent, what is shown, what is wrong with a card."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted, task
from tests.cli.test_send import fields
from trunkline.cli.card import card_faults

Make = Callable[..., Scripted]


def test_every_way_to_name_an_agent(trunkline: Run, scripted: Make, tmp_path: Path) -> None:
    peer = scripted()
    (tmp_path / "card.json").write_text(json.dumps(peer.document()))
    host = peer.url.removeprefix("http://")
    whole = f"{peer.url}/.well-known/agent-card.json"
    file = (tmp_path / "card.json").as_uri()
    for told in (host, peer.url, whole, "card.json", "./card.json", file):
        for command in (("card", told), ("card", "get", "-a", told)):
            code, out, _ = trunkline(*command)
            assert (code, fields(out)["Name"]) == (0, "scripted")
            assert fields(out)["Interface"] == f"JSONRPC 1.0 at {peer.url}/a2a"


def test_a_card_in_a_file_is_enough_to_send(trunkline: Run, scripted: Make, tmp_path: Path) -> None:
    peer = scripted()
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    (tmp_path / "card.json").write_text(json.dumps(peer.document()))
    assert trunkline("send", "-a", "card.json", "hi")[0] == 0
    assert [name for name, _, _ in peer.asked] == ["SendMessage"]


def test_the_text_has_all_that_matters(trunkline: Run, demo_url: str) -> None:
    out = trunkline("card", demo_url)[1]
    assert "Streaming: yes" in out and "Push: yes" in out and "Extended card: no" in out
    assert f"Offers: HTTP+JSON 1.0 at {demo_url}" in out
    assert "Skill: add: Add" in out
    assert "Input modes" not in out
    assert "Input modes: text/plain" in trunkline("card", demo_url, "--verbose")[1]


def test_security_is_shown(trunkline: Run, scripted: Make) -> None:
    schemes = {"k": {"apiKeySecurityScheme": {"location": "header", "name": "X-K"}}}
    peer = scripted(securitySchemes=schemes)
    assert "Security: k: API key in header X-K" in trunkline("card", peer.url)[1]


def test_json_is_the_card_as_it_came(trunkline: Run, scripted: Make) -> None:
    peer = scripted(vendorThing={"kept": True})
    _, out, _ = trunkline("card", peer.url, "-o", "json")
    assert json.loads(out) == peer.document()
    assert json.loads(trunkline("card", peer.url, "-o", "json", "--stream")[1].strip()) == peer.document()


def test_validation(trunkline: Run, scripted: Make, demo_url: str) -> None:
    code, out, _ = trunkline("card", demo_url, "--validate")
    assert (code, fields(out)["Valid"]) == (0, "yes")
    peer = scripted(skills=[{"id": "s", "name": "S"}], capabilities={"streaming": "yes"})
    code, out, _ = trunkline("card", peer.url, "--validate", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    assert "skills[0]" in error["message"] and "capabilities.streaming" in error["message"]


def test_the_extended_card_is_asked_for_only_where_the_card_has_one(trunkline: Run, scripted: Make) -> None:
    plain = scripted()
    code, out, _ = trunkline("card", plain.url, "--extended", "-o", "json")
    assert (code, json.loads(out)["error"]["code"]) == (1, "ExtendedAgentCardNotConfiguredError")
    assert not plain.params("GetExtendedAgentCard")
    peer = scripted(capabilities={"extendedAgentCard": True})
    peer.methods["GetExtendedAgentCard"] = lambda _: {**peer.document(), "name": "the whole one"}
    assert json.loads(trunkline("card", peer.url, "--extended", "-o", "json")[1])["name"] == "the whole one"


@pytest.mark.parametrize(
    ("told", "code", "name"),
    [
        ("none.json", 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("file:///no/such/card", 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("bad.json", 1, "A2ACLI_ERR_CARD_INVALID"),
        ("http://127.0.0.1:9", 3, "A2ACLI_ERR_UNREACHABLE"),
        ("no-such-host.invalid", 3, "A2ACLI_ERR_UNREACHABLE"),
        ("two words", 2, "A2ACLI_ERR_USAGE"),
    ],
)
def test_a_card_that_cannot_be_had(trunkline: Run, tmp_path: Path, told: str, code: int, name: str) -> None:
    (tmp_path / "bad.json").write_text('{"no": "card"')
    ended, out, _ = trunkline("card", told, "-o", "json")
    assert (ended, json.loads(out)["error"]["code"]) == (code, name)


def test_no_card_at_an_agent_that_is_there(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
        peer.routes[path] = lambda _headers, _body: (404, {})
    code, out, _ = trunkline("card", peer.url, "-o", "json")
    assert (code, json.loads(out)["error"]["code"]) == (3, "A2ACLI_ERR_CARD_NOT_FOUND")


def test_an_interface_that_nobody_here_speaks_is_said(trunkline: Run, scripted: Make) -> None:
    only = [{"url": "https://example.com", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]
    peer = scripted(supportedInterfaces=only)
    code, out, _ = trunkline("card", peer.url)
    assert code == 0
    assert "Offers: GRPC 1.0" in out


def test_a_card_of_0_3_is_judged_by_0_3() -> None:
    card = {
        "name": "old",
        "description": "of 0.3",
        "url": "https://old.example/a2a",
        "version": "1",
        "protocolVersion": "0.3.0",
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        "provider": None,
    }
    assert card_faults(card) == []
    del card["protocolVersion"]
    assert card_faults(card) == ["protocolVersion is missing"]
    del card["url"]
    assert card_faults(card) == ["supportedInterfaces is missing"]
