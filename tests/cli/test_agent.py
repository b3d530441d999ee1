"""`trunkline agent …` against a hub process: agents are registered, changed and removed by name."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Run, trunkline
from tests.harness import ServerProcess
from tests.hub.test_hub import HubProcess

__all__ = ["trunkline"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    workspace = tmp_path_factory.mktemp("agents")
    (workspace / "agents.yaml").write_text("agents: [{name: filed, url: 'http://127.0.0.1:1'}]")
    (workspace / "hub.yaml").write_text("name: desk")
    with HubProcess(workspace) as process:
        process.folder = workspace
        yield process


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("remote")) as process:
        yield process


def test_an_agent_on_this_machine_is_added_used_and_removed(
    hub: HubProcess, remote: ServerProcess, trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hub.folder)
    code, out, said = trunkline("agent", "add", "demo", remote.base)
    assert (code, out) == (0, f"demo  ready  peer  api  {remote.base}\n"), said
    assert "echo" in trunkline("agent", "show", "demo")[1]
    code, out, _ = trunkline("dispatch", "echo hello", "--agent", "demo")
    assert code == 0 and "completed" in out
    for command, state in (
        ("drain", "disabled"),
        ("enable", "ready"),
        ("disable", "disabled"),
        ("enable", "ready"),
    ):
        code, out, _ = trunkline("agent", command, "demo", "--json")
        assert (code, json.loads(out)["state"]) == (0, state), command
    assert json.loads(trunkline("agent", "refresh", "demo", "--json")[1])["state"] == "ready"
    names = [line.split()[0] for line in trunkline("agent", "list")[1].splitlines()]
    assert names == ["demo", "filed"]
    code, _, said = trunkline("agent", "add", "demo", remote.base)
    assert code == 2 and "demo" in said
    assert trunkline("agent", "remove", "demo")[:2] == (0, "removed demo\n")
    code, _, said = trunkline("agent", "remove", "demo")
    assert code == 2 and "there is no agent 'demo'" in said


def test_an_agent_of_a_file_is_not_removed(hub: HubProcess, trunkline: Run) -> None:
    code, _, said = trunkline("agent", "remove", "filed", "--store", str(hub.folder))
    assert code == 2 and "filed" in said and "file" in said


def test_a_member_that_does_not_exist_is_named(hub: HubProcess, trunkline: Run) -> None:
    code, _, said = trunkline(
        "agent", "add", "x", "http://127.0.0.1:1", "--set", "concurency=2", "--store", str(hub.folder)
    )
    assert code == 2 and "concurency" in said
