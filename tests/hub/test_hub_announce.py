"""An agent in a process of its own announces itself to a hub, gets work there, and is gone when it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.harness import Agent, ServerProcess
from tests.hub.test_hub import HubProcess, until

KEY, ANNOUNCING = "an-operator-key-of-the-tests", "an-announcing-key-of-the-tests"
KEYS = "keys: {scribe: {env: ANNOUNCING, scopes: [announce]}}"
CODE = """
from trunkline import Agent

agent = Agent("Scribe")
other = Agent("Other")

@agent.skill
def write(text: str) -> str:
    return f"wrote {text}"

@other.skill
def read(text: str) -> str:
    return f"read {text}"
"""


def test_an_agent_announces_itself_gets_work_and_is_gone_when_it_is(tmp_path: Path) -> None:
    workspace = tmp_path / "hub"
    workspace.mkdir()
    (workspace / "agents.yaml").write_text("agents: []")
    (workspace / "keys.yaml").write_text(KEYS)
    (tmp_path / "scribe.py").write_text(CODE)
    hub = HubProcess(workspace, "--key", KEY, env={"ANNOUNCING": ANNOUNCING})
    # Served before the hub is: it waits for it, and says so.
    flags = ["scribe:other", "--announce", hub.base, "--set", "announce_ttl=2"]
    served = ServerProcess(tmp_path, "scribe:agent", *flags, env={"TRUNKLINE_ANNOUNCE_KEY": ANNOUNCING})
    with served:
        until(lambda: "announce.failed agent=scribe" in served.text())
        with hub:
            asked = Agent(hub.base, headers={"X-API-Key": KEY})

            def listed() -> dict[str, Any]:
                items = asked.http.get(f"{hub.base}/api/agents").json()["items"]
                return {one["name"]: one for one in items if one["state"] == "ready"}

            until(lambda: {"scribe", "other"} <= listed().keys())
            assert {one["owner"] for one in listed().values()} == {"announce"}
            for skill, said in (("write", "wrote it"), ("read", "read it")):
                form = {"skill": skill, "message": "it", "wait": 30}
                (task,) = asked.http.post(f"{hub.base}/api/dispatch", json=form).json()["tasks"]
                assert (task["state"], task["text"]) == ("completed", said)
            served.kill()
            until(lambda: not listed())
            (refused,) = asked.http.post(
                f"{hub.base}/api/dispatch", json={"skill": "write", "message": "it"}
            ).json()["tasks"]
            assert refused["state"] == "rejected"
            served.start()
            until(lambda: "scribe" in listed())
            assert served.stop() == 0
            # Not because its time was over: it has said that it goes.
            assert "announce.withdrawn agent=scribe" in served.text()
            assert "scribe" not in listed()
            asked.close()
    assert ANNOUNCING not in served.text() + hub.text()
