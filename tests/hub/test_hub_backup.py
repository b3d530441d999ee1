"""A hub that is carried to another folder: what it was told by its API is served there as before."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness import SECRET, Agent
from tests.hub.test_hub import HubProcess, until
from trunkline.hub.template import write_workspace

OPERATOR = {"X-API-Key": "operators-key-1"}
CANARY = "canary-of-a-credential"
ECHO = {
    "document": {
        "schema": "https://agent-workflow.dev/schemas/workflow-definition.json",
        "name": "echo",
        "version": "1.0.0",
    },
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "end", "type": "end", "config": {"output_mapping": "{said: .text}"}},
    ],
    "edges": [{"source": "__start__", "target": "start"}, {"source": "start", "target": "end"}],
    "state_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
ENV = {**SECRET, "TRUNKLINE_EGRESS_HOSTS": "127.0.0.1"}


def trunkline(*words: str) -> str:
    command = [sys.executable, "-c", "from trunkline.cli.main import main; main()", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def served(hub: Agent, key: dict[str, str], task: str) -> dict[str, Any]:
    """What the API says of everything that came by it."""

    def asked(path: str) -> Any:
        return hub.http.get(f"{hub.base}/api/{path}", headers=key).json()

    # The mocks of each hub have a port of their own.
    agents = {one["name"]: one["owner"] for one in asked("agents")["items"]}
    until(lambda: asked("agents/reviewer")["state"] == "disabled")
    runs = [(one["runId"], one["taskId"]) for one in asked("ceremonies/nightly/runs")["items"]]
    ceremonies = [(one["id"], one["schedule"]) for one in asked("ceremonies")["items"]]
    done = asked(f"tasks/{task}")
    return {
        "agents": agents,
        "far": asked("agents/far")["url"],
        "runs": runs,
        "ceremonies": ceremonies,
        "task": (done["agent"], done["state"], done["text"]),
    }


def test_a_hub_is_backed_up_and_restored(tmp_path: Path) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "all.jsonl"
    write_workspace(first)
    with HubProcess(first, "--key", OPERATOR["X-API-Key"], env=ENV) as process:
        hub = Agent(process.base, headers=OPERATOR)

        def post(path: str, body: dict[str, Any]) -> Any:
            answer = hub.http.post(f"{hub.base}{path}", json=body)
            assert answer.status_code < 300, answer.text
            return answer.json()

        auth = {"scheme": "bearer", "credentials": CANARY}
        post("/api/agents", {"name": "far", "url": "http://127.0.0.1:1", "auth": auth})
        post("/api/agents/reviewer/disable", {})
        nightly = {"id": "nightly", "name": "Nightly", "schedule": "0 3 * * *", "skill": "draft"}
        post("/api/ceremonies/create", nightly)
        post("/api/ceremonies/nightly/run", {})
        made = post("/admin/keys", {"owner": "ci", "scopes": ["admin"]})
        assert post("/v1/workflows", {"definition": ECHO})["wf_id"] == "echo"
        post("/api/agents", {"name": "walker", "workflow": "echo"})
        task = post("/api/dispatch", {"skill": "draft", "message": "go", "wait": 30})["tasks"][0]["taskId"]
        key = {"X-API-Key": made["token"]}
        acme = {"X-API-Key": post("/admin/tenants", {"name": "Acme"})["token"]}
        shut = {"X-API-Key": post("/admin/tenants", {"name": "Shut"})["token"]}
        hub.http.patch(f"{hub.base}/admin/tenants/shut", json={"disabled": True})
        before = served(hub, key, task)
        # Beside the running hub.
        trunkline("store", "export", str(file), "--store", f"sqlite:///{first / 'trunkline.db'}")
        hub.close()
    assert (before["agents"]["far"], before["far"]) == ("api", "http://127.0.0.1:1")
    assert len(before["runs"]) == 1
    text = file.read_text()
    assert CANARY not in text and made["token"] not in text and OPERATOR["X-API-Key"] not in text
    assert '"sealed"' not in text.partition('"event"')[0]
    second.mkdir()
    for name in ("hub.yaml", "agents.yaml", "mocks.yaml", "keys.yaml"):
        shutil.copy(first / name, second)
    shutil.copytree(first / "ceremonies", second / "ceremonies")
    trunkline("store", "import", str(file), "--store", f"sqlite:///{second / 'trunkline.db'}")
    with HubProcess(second, env=ENV) as process:
        hub = Agent(process.base)
        assert hub.http.get(f"{hub.base}/api/agents").status_code == 401
        assert served(hub, key, task) == before
        # Its credentials are in no export, and it is not called without them.
        far = hub.http.get(f"{hub.base}/api/agents/far", headers=key).json()
        assert (far["state"], far["reason"].partition(":")[0]) == ("invalid", "auth.credentials")
        body = {"url": "http://127.0.0.1:1", "auth": {"scheme": "bearer", "credentials": CANARY}}
        again = hub.http.put(f"{hub.base}/api/agents/far", json=body, headers=key).json()
        assert again["state"] == "discovering", again
        # What was registered is walked.
        order = {"agent": "walker", "message": "go", "wait": 30}
        walked = hub.http.post(f"{hub.base}/api/dispatch", json=order, headers=key).json()["tasks"][0]
        assert walked["state"] == "completed", walked
        tasks = [hub.http.get(f"{hub.base}/api/tasks", headers=one).status_code for one in (acme, shut)]
        assert tasks == [200, 401]
        hub.close()
