"""Agents elsewhere as a tool of model agents: `/a2a list`, `card` and `call`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import answer, named, opened, reason, run
from tests.gateway.model.openai_server import ModelServer, Reply, results, told
from tests.hub.remote_agents import RemoteAgent, RemoteAgents
from trunkline.mock.serve import BackgroundServer

LINES = (
    "/a2a list",
    "card far",
    "card nobody",
    "call local x",
    "call far quick, do it",
    "call dead x",
    "call far quick, more",
    "shell ls",
)


def agents(base: str) -> str:
    return f"""
agents:
  - {{name: helper, model: "openai:small", capabilities: [/a2a], limits: {{delegations: 1}}}}
  - {{name: local, model: "openai:small"}}
  - {{name: far, url: "{base}/far"}}
  - {{name: dead, url: "http://127.0.0.1:1"}}
"""


def test_a_model_lists_reads_and_calls_agents_elsewhere_and_no_others(tmp_path: Path) -> None:
    far = RemoteAgent("far")

    def lines(body: dict[str, Any]) -> Reply:
        return Reply(["Done."]) if results(body) else Reply(calls=[("a2a", {"line": one}) for one in LINES])

    async def scene(base: str) -> None:
        with ModelServer(lines) as server:
            async with opened(tmp_path, agents(base), OPENAI_BASE_URL=server.url) as ask:
                for name in ("helper", "local"):
                    await ask.ready(name)
                await ask.until("GET /api/agents/far", lambda one: one["state"] == "ready")
                await ask.until("GET /api/agents/dead", lambda one: one["state"] == "unreachable")
                task = await ask.say("helper", "a secret of the caller")
                roster = told(server.asked[0]).partition("Agents elsewhere.")[2].splitlines()
                assert roster[1:] == [
                    "- dead: cannot be reached now",
                    "- far: Does what the test says. (skills: far)",
                ]
                listed, card, unknown, local, called, dead, more, usage = results(server.asked[-1])
                head, count, *rows, end = listed.splitlines()
                assert (head, count, end) == ("[/a2a list]", "2 agents elsewhere", "[END A2A]")
                assert rows[0].startswith("dead: no card now (") and rows[1].startswith("far: Does what")
                assert card.startswith(
                    f"[/a2a card far]\nname: far\nurl: {base}/far\nprotocol: 1.0\nversion: 1\n"
                )
                assert "\nERR: there is no agent 'nobody'; there are dead, far\n[END A2A]" in unknown
                assert called == "[/a2a call far]\ndid quick, do it\n[END A2A]"
                assert dead.startswith("[/a2a call dead]\nERR: dead cannot be reached now")
                assert (
                    local
                    == "[/a2a call local]\nERR: there is no agent 'local'; there are dead, far\n[END A2A]"
                )
                assert "ERR: no more than 1 calls of agents in one task" in more
                assert usage.startswith("[/a2a shell ls]\nERR: usage: /a2a list")
                shown = [one["parts"][0]["data"] for one in named(task, "tool_call")]
                assert [one["tool"] for one in shown][2:6] == ["a2a", "a2a:local", "a2a:far", "a2a:dead"]
                assert [one["ok"] for one in shown] == [True, True, False, False, True, *[False] * 3]
                (reply,) = named(task, "sub_agent_response")
                assert reply["parts"][0]["data"]["content"] == "did quick, do it" and answer(task) == "Done."
        # Only the message has left.
        (work,) = far.work.values()
        assert work.said == ["quick, do it"]

    with BackgroundServer(RemoteAgents(far)) as base:
        run(scene(base))


CHAIN = """
agents:
  - {name: helper, model: "openai:small", capabilities: [/agent]}
  - {name: writer, model: "openai:small", role: poet}
"""
# One call of the model, by the usual price of tokens.
CALL_USD = (100 * 3 + 10 * 15) / 1e6


def test_what_a_chain_may_cost_holds_for_a_model_and_those_that_it_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def both(body: dict[str, Any]) -> Reply:
        if "poet" in told(body).partition("\n")[0]:
            return Reply(["a verse"])
        return Reply(calls=[("agent", {"name": "writer", "message": "more"})])

    async def scene() -> None:
        with ModelServer(both) as server:
            async with opened(tmp_path, CHAIN, OPENAI_BASE_URL=server.url) as ask:
                for name in ("helper", "writer"):
                    await ask.ready(name)
                # Enough for three calls: one of its own, half of the rest for who is asked, and one more.
                chain = {"trunkline.chain": {"cost": 3 * CALL_USD}}
                task = await ask.say("helper", "go", metadata=chain)
                assert reason(task).startswith("budget_spent: "), reason(task)
                assert 3 <= len(server.asked) <= 4
                assert "chain.cost task=" in caplog.text
                # One that is given nothing is not even begun.
                spent = {"trunkline.chain": {"cost": 0}}
                message = {
                    "messageId": "m",
                    "role": "ROLE_USER",
                    "parts": [{"text": "go"}],
                    "metadata": spent,
                }
                _, refused = await ask("POST /v1/a2a/agents/helper/message:send", {"message": message})
                assert refused["task"]["status"]["state"] == "TASK_STATE_REJECTED"
                assert "may cost is spent" in reason(refused["task"])
                _, children = await ask("GET /api/tasks?agent=writer")
                assert [one["state"] for one in children["items"]][-1] == "completed"

    run(scene())
