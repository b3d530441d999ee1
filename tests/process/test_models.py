"""A model agent whose hub dies with kill -9 in the middle of an answer: nothing that was paid for is paid again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.openai_server import ModelServer, Reply, results
from tests.harness import Agent
from tests.hub.test_hub import HubProcess, until

AGENTS = """
agents:
  - {name: helper, model: "openai:small", capabilities: ["/mem", "/write"]}
"""
CALLS = [
    ("mem", {"action": "add", "text": "the sky is blue"}),
    ("write", {"path": "sky.txt", "text": "blue"}),
]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_killed_hub_goes_on_without_asking_the_model_again(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = ["--store", request.getfixturevalue("postgres_url")] if kind == "postgres" else []
    hold = threading.Event()

    def answer(body: dict[str, Any]) -> Reply:
        said = str(body["messages"][-1]["content"])
        if said == "and then?":
            return Reply(["Nothing."])
        if not results(body):
            return Reply(["I look. "], CALLS)
        # Hangs until the hub is gone, and then says it whole.
        return Reply(["It is", " blue."], hold=None if hold.is_set() else hold)

    (tmp_path / "agents.yaml").write_text(AGENTS)
    with ModelServer(answer) as server:
        env = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-test"}
        with HubProcess(tmp_path, *store, env=env) as hub:
            caller = Agent(hub.base, path="/v1/a2a/agents/helper")
            task = caller.send("what colour is the sky?", wait=False)
            until(lambda: "It is" in str(caller.get(task["id"])))
            hub.kill()
            hold.set()
            hub.start()
            done = caller.until(task["id"], "completed", "failed", limit_s=60)
            (response,) = [one for one in done["artifacts"] if one.get("name") == "response"]
            assert response["parts"][0]["text"] == "I look. \n\nIt is blue.", done
            used = [one["parts"][0]["data"] for one in done["artifacts"] if one.get("name") == "tool_call"]
            assert used == [{"tool": "mem", "ok": True}, {"tool": "write", "ok": True}]
            # The first call was answered before the kill; the second was lost with the hub.
            assert [len(results(body)) for body in server.asked] == [0, 2, 2]
            assert results(server.asked[1]) == results(server.asked[2])
            # The conversation is remembered by a process that never had it.
            after = caller.send("and then?", contextId=task["contextId"])
            assert "Nothing." in str(after)
            asked = [str(one["content"]) for one in server.asked[-1]["messages"]]
            assert asked[-3:] == ["what colour is the sky?", "I look. \n\nIt is blue.", "and then?"]
            caller.close()
