"""Files that nobody named, and agents that nobody trusts: what a stranger's `.env` and a stranger's words can do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted, task
from tests.cli.test_send import fields
from tests.cli.test_session import ready, sent
from trunkline.cli.oauth import KeptToken, TokenFile

Make = Callable[..., Scripted]
SECRET = "s3cret-text"
# Moves the cursor in eight bits, hides text, turns it around.
BAD = "t\x9b2J\x1b[31m\u202e\U000e0041"


def write(path: Path, **lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"A2ACLI_{name}={value}\n" for name, value in lines.items()))
    path.chmod(0o600)


@pytest.mark.parametrize(
    "given", [{"BEARER": SECRET}, {"API_KEY": SECRET}, {"SVC_PARAM": f"authorization:Bearer {SECRET}"}]
)
def test_a_found_file_does_not_send_the_global_credentials_to_its_agent(
    trunkline: Run, scripted: Make, tmp_path: Path, given: dict[str, str]
) -> None:
    peer = ready(scripted)
    write(tmp_path / "home/.config/a2a-cli/.env", **given)
    write(tmp_path / ".env", AGENT_CARD=peer.url)
    code, _, complaint = trunkline("send", "hi")
    assert code == 0 and "is not shown to" in complaint
    assert all(SECRET not in str(headers) for _, _, headers in peer.asked)
    peer.asked.clear()
    # Whoever names the agent means it.
    for words in ((peer.url, "hi"), ("-a", peer.url, "hi")):
        _, _, complaint = trunkline("send", *words)
        assert SECRET in str(sent(peer)) and "is not shown" not in complaint
        peer.asked.clear()
    trunkline("send", "hi", "--config", str(tmp_path / ".env"))
    assert SECRET in str(sent(peer))


def test_a_found_file_sends_its_own_credentials_and_never_an_exported_one(
    trunkline: Run, scripted: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = ready(scripted)
    write(tmp_path / ".env", AGENT_CARD=peer.url, BEARER=SECRET)
    _, _, complaint = trunkline("send", "hi")
    assert sent(peer)["authorization"] == f"Bearer {SECRET}" and complaint == ""
    peer.asked.clear()
    monkeypatch.setenv("A2ACLI_BEARER", "exported")
    _, _, complaint = trunkline("send", "hi")
    # It has brought one of its own, and that is the one it gets.
    assert sent(peer)["authorization"] == f"Bearer {SECRET}"
    assert f"A2ACLI_BEARER of the environment is not shown to {peer.url}" in complaint
    peer.asked.clear()
    # What is typed is meant, be it the credential or the agent.
    trunkline("send", "hi", "--bearer", "typed")
    assert sent(peer)["authorization"] == "Bearer typed"
    peer.asked.clear()
    trunkline("send", "-a", peer.url, "hi")
    assert sent(peer)["authorization"] == "Bearer exported"


@pytest.mark.parametrize(
    "given", [{"BEARER": SECRET}, {"API_KEY": SECRET}, {"SVC_PARAM": f"authorization:Bearer {SECRET}"}]
)
def test_a_found_file_does_not_send_exported_credentials_to_its_agent(
    trunkline: Run, scripted: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    peer = ready(scripted)
    for name, value in given.items():
        monkeypatch.setenv(f"A2ACLI_{name}", value)
    write(tmp_path / ".env", AGENT_CARD=peer.url)
    code, _, complaint = trunkline("send", "hi")
    assert code == 0 and "is not shown to" in complaint and "-a" in complaint
    assert all(SECRET not in str(headers) for _, _, headers in peer.asked)
    peer.asked.clear()
    # The environment names the agent too: then both are from one hand.
    monkeypatch.setenv("A2ACLI_AGENT_CARD", peer.url)
    _, _, complaint = trunkline("send", "hi")
    assert SECRET in str(sent(peer)) and complaint == ""


def test_a_found_file_does_not_use_a_login(trunkline: Run, scripted: Make, tmp_path: Path) -> None:
    peer = ready(scripted)
    trunkline("config", "show")
    TokenFile().keep(peer.url, KeptToken(SECRET, f"{peer.url}/token", "cli", "device"))
    write(tmp_path / ".env", AGENT_CARD=peer.url)
    _, _, complaint = trunkline("send", "hi")
    assert "authorization" not in sent(peer)
    assert f"the login at {peer.url} is not shown to {peer.url}" in complaint
    peer.asked.clear()
    trunkline("send", "-a", peer.url, "hi")
    assert sent(peer)["authorization"] == f"Bearer {SECRET}"


def test_a_found_file_does_not_leave_tls_unchecked_for_credentials_of_others(
    trunkline: Run, scripted: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = ready(scripted)
    write(tmp_path / ".env", INSECURE="true")
    monkeypatch.setenv("A2ACLI_BEARER", SECRET)
    code, _, complaint = trunkline("send", peer.url, "hi")
    assert code == 2 and "say --insecure" in complaint and peer.asked == []
    assert trunkline("send", peer.url, "hi", "--insecure")[0] == 0
    monkeypatch.delenv("A2ACLI_BEARER")
    assert trunkline("send", peer.url, "hi")[0] == 0


@pytest.mark.parametrize("output", ["text", "json"])
def test_no_sign_of_an_agent_reaches_the_terminal(trunkline: Run, scripted: Make, output: str) -> None:
    peer = scripted(name=BAD)
    said = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": BAD}]}
    artifact = {"artifactId": "a", "name": BAD, "parts": [{"text": BAD}, {"data": {BAD: BAD}}]}
    told = task("INPUT_REQUIRED", artifacts=[artifact])
    told["status"]["message"] = said
    peer.methods["SendMessage"] = lambda _: {"task": told}
    shown = [
        trunkline("send", peer.url, "hi", "-o", output, "--async"),
        trunkline("card", "get", peer.url, "-o", output),
    ]
    for _, out, complaint in shown:
        assert (out + complaint).replace("\n", "").isprintable()
    if output == "json":
        # What was spelled out is still the same text.
        assert json.loads(shown[0][1])["task"]["artifacts"][0]["name"] == BAD
        assert json.loads(shown[1][1])["name"] == BAD


@pytest.mark.parametrize("task_id", ["--output=json", "-a", "-x", "--"])
def test_a_next_line_that_is_copied_does_not_turn_an_id_into_an_option(
    trunkline: Run, scripted: Make, task_id: str
) -> None:
    peer = scripted()
    asked: list[str] = []

    def get(params: dict[str, Any]) -> Any:
        asked.append(params["id"])
        return {**task("COMPLETED"), "id": task_id}

    peer.methods["GetTask"] = get
    for state in ("WORKING", "INPUT_REQUIRED", "COMPLETED"):
        told = {**task(state), "id": task_id, "contextId": task_id}
        peer.methods["SendMessage"] = lambda _, told=told: {"task": told}
        _, out, _ = trunkline("send", peer.url, "hi", "--async")
        name, *words = shlex.split(fields(out)["Next"])
        assert name == "trunkline"
        peer.asked.clear()
        code, out, complaint = trunkline(*words)
        assert code in (0, 8) and "Error" not in complaint, complaint
        (said,) = [params for method, params, _ in peer.asked if method in ("SendMessage", "GetTask")][:1]
        assert task_id in (
            said.get("id"),
            said.get("message", {}).get("taskId"),
            said.get("message", {}).get("contextId"),
        )


@pytest.mark.parametrize(
    "line", ["A2ACLI_BEARER=env:WORD_OF_MINE", "A2ACLI_SVC_PARAM=x-word:env:WORD_OF_MINE"]
)
def test_a_file_that_is_found_names_no_variable(
    trunkline: Run, scripted: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    peer = scripted()
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    monkeypatch.setenv("WORD_OF_MINE", "open-sesame")
    (tmp_path / ".env").write_text(f"A2ACLI_AGENT_CARD={peer.url}\n{line}\n")
    trunkline("send", "hi")
    assert "open-sesame" not in repr(peer.asked)
