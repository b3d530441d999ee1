"""`trunkline doctor` as a user calls it, over real HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from tests.cli.conftest import Run
from tests.cli.peers import served
from tests.harness import ServerProcess, free_port
from trunkline.demo.agent import agent as demo


def test_our_own_demo_agent_is_healthy(trunkline: Run, tmp_path: Path) -> None:
    """Served with defaults, in a process of its own: nothing is found."""
    with ServerProcess(tmp_path) as server:
        code, out, _ = trunkline("doctor", server.base, "--json", "--junit", "doctor.xml")
    found = json.loads(out)
    assert [one for one in found["findings"] if one["outcome"] in ("failed", "unknown")] == []
    assert (code, found["summary"]["exitCode"]) == (0, 0)
    assert ElementTree.parse(tmp_path / "doctor.xml").getroot().tag == "testsuites"


def test_findings_are_told_and_counted(trunkline: Run, demo_url: str) -> None:
    code, out, _ = trunkline("doctor", demo_url, "--only", "sending", "--text", "fail", "--no-send")
    assert code == 0
    assert "made no tasks" in out
    code, out, _ = trunkline("doctor", demo_url, "--only", "card", "--skip", "card-modes")
    assert (code, "0 failed" in out) == (0, True)


def test_nobody_there(trunkline: Run) -> None:
    port = free_port()
    code, out, said = trunkline("doctor", f"http://127.0.0.1:{port}")
    assert code == 3
    assert "no card at" in out
    assert said == f"Hint: trunkline serve MODULE:AGENT --port {port}\n"


def test_wrong_path_names_the_command_that_shows_the_card(trunkline: Run, demo_url: str) -> None:
    code, _, said = trunkline("doctor", f"{demo_url}/nowhere")
    assert (code, said) == (3, f"Hint: trunkline card get -a {demo_url}\n")


def test_missing_credentials_name_the_option_for_them(trunkline: Run) -> None:
    with served(demo.asgi(store="memory:", dev=True, log_level="error", keys=["planted-key"])) as url:
        code, _, said = trunkline("doctor", url, "--no-send")
    assert (code, said) == (4, f"Hint: trunkline doctor {url} --key env:NAME\n")


def test_mistakes_of_the_caller(trunkline: Run, monkeypatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    for words, complaint in (
        ([], "no agent is named"),
        (["agent.example"], "is not the URL"),
        (["http://127.0.0.1:1", "--only", "pusch"], "no check or family"),
        (["http://127.0.0.1:1", "--header", "nonsense"], "Name: value"),
        (["http://127.0.0.1:1", "--key", "env:NO_SUCH_KEY"], "NO_SUCH_KEY"),
        (["http://127.0.0.1:1", "--timeout", "0"], "above 0"),
    ):
        code, _, err = trunkline("doctor", *words)
        assert code == 2
        assert complaint in err


def test_the_checks_are_listed(trunkline: Run) -> None:
    code, out, _ = trunkline("doctor", "--list", "--only", "canceling")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "cancel-unknown-task",
        "cancel-ended-task",
        "cancel-race",
    ]
