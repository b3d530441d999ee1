"""`trunkline flow …` in the folder of a hub, which alone may execute the runs of its store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, trunkline
from tests.flow.surfaces import ASK, TOOL, workflow
from tests.hub.test_hub import HubProcess

__all__ = ["trunkline"]
AGENTS = 'agents:\n  - {name: asker, import: "hub_flow_asker:agent"}\n'
MODULE = """
from trunkline import Agent, Turn

agent = Agent("Asker", on_crash="resume")

@agent.skill
async def ask(turn: Turn) -> dict[str, str]:
    colour = await turn.ask("Which colour?", choices=("red", "blue"))
    return {"colour": colour}
"""
CONSULT = {
    "id": "consult",
    "type": "agent_delegate",
    "config": {"agent_id": "asker", "protocol": "a2a", "input_mapping": {"task": "paint"}},
}


def write_hub(folder: Path) -> None:
    (folder / "hub.yaml").write_text("name: here\n")
    (folder / "agents.yaml").write_text(AGENTS)
    (folder / "hub_flow_asker.py").write_text(MODULE)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("flows")
    write_hub(folder)
    with HubProcess(folder) as process:
        yield process


def written(folder: Path, *nodes: dict[str, Any]) -> str:
    file = folder / f"{'-'.join([node['id'] for node in nodes])}.json"
    file.write_text(json.dumps(workflow(*nodes)))
    return str(file)


@pytest.mark.slow
@pytest.mark.parametrize("in_folder", [True, False])
def test_commands_of_workflows_reach_the_running_hub_of_a_folder(
    hub: HubProcess, trunkline: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_folder: bool
) -> None:
    if in_folder:
        monkeypatch.chdir(hub.directory)
    named = ("--json", *(() if in_folder else ("--store", str(hub.directory))))

    def told(*words: str) -> dict[str, Any]:
        code, out, said = trunkline("flow", *words, *named)
        assert code == 0, (said, hub.text())
        return json.loads(out)

    run = f"asks-{in_folder}"
    started = told("run", written(tmp_path, ASK), "--id", run)
    assert (started["status"], started["node_id"]) == ("interrupted", "ask")
    assert told("resume", run, "--payload", '{"ok": true}')["status"] == "completed"
    run = f"works-{in_folder}"
    mediated = told("run", written(tmp_path, TOOL), "--id", run, "--mode", "host_mediated")
    assert mediated["status"] == "awaiting_activity"
    assert told("submit", run, "work", "--result", '{"n": 1}')["result"] == {"n": 1}
    run = f"ends-{in_folder}"
    told("run", written(tmp_path, ASK), "--id", run)
    assert told("cancel", run)["status"] == "cancelled"


@pytest.mark.parametrize("has_run", [True, False])
def test_a_hub_that_does_not_run_is_to_be_started_first(
    trunkline: Run, tmp_path: Path, has_run: bool
) -> None:
    write_hub(tmp_path)
    if has_run:
        assert trunkline("flow", "run", written(tmp_path, ASK), "--store", "sqlite:///trunkline.db")[0] == 0
    code, _, said = trunkline("flow", "run", written(tmp_path, ASK))
    assert code == 2
    assert "the hub of this folder does not run; start it: trunkline hub ." in said
    assert (tmp_path / "trunkline.db").exists() is has_run
