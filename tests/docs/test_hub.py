"""The pages of the hub and the gateway from their first command to their last, as they are printed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run, trunkline
from tests.docs.pages import blocks
from tests.harness import ServerProcess
from tests.hub.test_hub import HubProcess

__all__ = ["trunkline"]
FIRST, THEN, ANNOUNCED, REGISTERED = [block.splitlines() for block in blocks("docs/hub.md", "sh")]
(ALLOWED,) = [block.splitlines() for block in blocks("docs/gateway.md", "bash")]
TENANTS, A2A = [block.splitlines() for block in blocks("docs/gateway.md", "sh")]


def test_the_page(tmp_path: Path, trunkline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    init, serve = [shlex.split(line)[1:] for line in FIRST]
    assert trunkline(*init)[0] == 0
    assert serve == ["hub", "demo"]
    workspace = tmp_path / "demo"
    (tmp_path / "scribe").mkdir()
    with HubProcess(workspace) as hub, ServerProcess(tmp_path / "scribe") as scribe:
        monkeypatch.chdir(workspace)
        registered = [
            trunkline(*shlex.split(line.replace("http://127.0.0.1:8100", scribe.base))[1:])
            for line in REGISTERED
        ]
        said = [trunkline(*shlex.split(line)[1:]) for line in THEN]
        lines = [trunkline(*shlex.split(line)[1:]) for line in A2A]
        acts = [trunkline(*shlex.split(line)[1:]) for line in TENANTS]
        key = json.loads(trunkline("tenant", "create", "Bolt", "--json")[1])["token"]
        allowed = [
            line.replace("acme", "bolt").replace("KEY", key).replace("http://127.0.0.1:8100", scribe.base)
            for line in ALLOWED
        ]
        allowed = [line.replace("http://127.0.0.1:8000", hub.base) for line in allowed]
        served = [trunkline(*shlex.split(line)[1:]) for line in allowed]
    assert [(code, err) for code, _, err in registered] == [(0, "")] * len(registered)
    assert "scribe  ready" in registered[1][1] and registered[-1][1] == "removed scribe\n"
    assert [(code, err) for code, _, err in lines] == [(0, "")] * 3
    assert lines[0][1].startswith("[/a2a list]\n3 agents elsewhere\n")
    assert "A first version of what you asked for." in lines[2][1]
    assert acts[0][2].startswith("Warning: every caller of the hub needs a key from now on")
    assert [(code, err) for code, _, err in [*acts[1:], *served]] == [(0, "")] * (len(acts) + len(served) - 1)
    assert "scribe  ready" in served[1][1] and "hello" in served[2][1]
    assert "tl_" in acts[0][1] and "acme" in acts[1][1] and "tenant.deleted" in acts[-1][1]
    assert [(code, err) for code, _, err in said] == [(0, "")] * len(said)
    drafted, explained, asked, inbox, run, history, fleet = [out for _, out, _ in said]
    assert "State: completed\nAgent: writer\n" in drafted
    assert "Text:\n  A first version of what you asked for.\n" in drafted
    assert explained.startswith("writer does it: ")
    assert "State: input-required\nAgent: approver\n" in asked and "May this go out?" in asked
    assert asked.split()[1] in inbox
    assert run.split()[-1] in history
    assert "approver" in fleet and "writer" in fleet


def test_the_command_that_announces_is_the_one_that_is_tested() -> None:
    """tests/hub/test_hub_announce.py has a process with these flags announce itself to a hub."""
    (line,) = ANNOUNCED
    key, *command = shlex.split(line)
    assert key.startswith("TRUNKLINE_ANNOUNCE_KEY=")
    assert command[:3] == ["trunkline", "serve", "scribe:agent"] and "--announce" in command
