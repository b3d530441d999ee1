"""The commands of a hub whose store is PostgreSQL: they find the hub of this machine by its workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2

from tests.cli.conftest import Run, trunkline
from tests.harness import SECRET
from tests.hub.test_hub import HubProcess, until
from trunkline.hub.template import write_workspace

__all__ = ["trunkline"]


def test_commands_of_a_workspace_on_postgresql(tmp_path: Path, trunkline: Run, postgres_url: str) -> None:
    workspace = tmp_path / "demo"
    write_workspace(workspace)
    with (workspace / "hub.yaml").open("a") as hub_file:
        hub_file.write(f"  store: {postgres_url}\n")
    of_hub = ("--store", str(workspace), "--json")
    env = {**SECRET, "HOME": str(tmp_path / "home")}
    with HubProcess(workspace, env=env) as hub:

        def asked(*words: str) -> Any:
            code, out, said = trunkline(*words, *of_hub)
            assert code == 0, (said, hub.text())
            return json.loads(out)

        until(lambda: list((tmp_path / "home").rglob("*.admin")))
        done = asked("dispatch", "go", "--skill", "draft")
        assert [one["state"] for one in done["tasks"]] == ["completed"]
        question = asked("dispatch", "go", "--agent", "approver")["tasks"][0]["taskId"]
        assert [one["taskId"] for one in asked("inbox", "list")] == [question]
        assert asked("inbox", "answer", question, "yes")["taskId"] == question
        assert [one["id"] for one in asked("ceremony", "list")] == ["morning"]
        assert "writer" in [one["agent"] for one in asked("fleet")["agents"]]
        agents = f"{hub.base}/api/agents"
        httpx2.post(f"{agents}/reviewer/disable").raise_for_status()
        table = trunkline("fleet", "--store", str(workspace))[1]
        states = {line.split()[0]: line.split()[1] for line in table.splitlines() if len(line.split()) > 4}
        assert (states["agent"], states["writer"], states["reviewer"]) == ("state", "ready", "disabled")
        httpx2.post(f"{agents}/reviewer/enable").raise_for_status()
        assert asked("route", "explain", "--skill", "review")["winner"] == "reviewer"
        hub.kill()
    # One that was killed is not called any more: its port may be a stranger's.
    code, _, said = trunkline("ceremony", "list", "--store", str(workspace))
    assert code != 0 and "no server has this store" in said
