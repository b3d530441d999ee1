"""A hub as a process, over HTTP: its agents, its own face, its files, and work that outlives its death."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, trunkline
from tests.harness import V1, Agent, ServerProcess
from trunkline.client.client import Client
from trunkline.errors import RouteNotFound
from trunkline.hub.hub import EVERYWHERE
from trunkline.hub.template import write_workspace
from trunkline.mock.app import Mock
from trunkline.mock.script import read_scenarios
from trunkline.mock.serve import BackgroundServer
from trunkline.net.egress import Egress

__all__ = ["trunkline"]

LIMIT_S = 60.0
SLOW = """
agent: {name: Slow, skills: [{id: think, description: Thinks}]}
otherwise: {text: Thought., delay: 2}
"""
ENTRY = """
agents:
  - {name: slow, url: "URL", skills: [think]}
  - {name: here, import: "local_agent:agent"}
  - {name: off, url: "http://127.0.0.1:1", enabled: false, skills: [think]}
"""
LOCAL = """
from trunkline import Agent, Turn

agent = Agent("Local", on_crash="resume")

@agent.skill
async def relay(turn: Turn) -> str:
    answer = await turn.call("slow", turn.text)
    return f"slow said: {answer.text}"
"""


class HubProcess(ServerProcess):
    """`trunkline hub` in a process of its own."""

    def __init__(self, workspace: Path, *flags: str, env: dict[str, str] | None = None) -> None:
        super().__init__(workspace, env=env)
        self._command = [
            sys.executable, "-c", "from trunkline.cli.main import main; main()",
            "hub", str(workspace), "--port", str(self.port), *flags,
        ]  # fmt: skip


def until(reached: Callable[[], Any]) -> Any:
    """What comes of looking again and again, once there is something."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if found := reached():
            return found
        time.sleep(0.05)
    raise TimeoutError


@pytest.fixture(scope="module")
def demo_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """The workspace that `hub init` writes, served."""
    workspace = tmp_path_factory.mktemp("hub") / "demo"
    write_workspace(workspace)
    with HubProcess(workspace) as hub:
        agent = Agent(hub.base)
        yield agent
        agent.close()


def test_hb36_each_agent_has_an_address_and_a_card(demo_hub: Agent) -> None:
    base = f"{demo_hub.base}/v1/a2a/agents/writer"
    cards = [
        demo_hub.http.get(f"{base}{path}").json()
        for path in ("/agent-card.json", "/.well-known/agent-card.json")
    ]
    assert cards[0] == cards[1]
    assert cards[0]["name"] == "writer"
    assert [skill["id"] for skill in cards[0]["skills"]] == ["draft"]
    assert cards[0]["supportedInterfaces"][0]["url"] == f"{base}/a2a"
    writer = Agent(base, path="")
    task = writer.send("hello")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert demo_hub.http.get(f"{base}/v1/tasks/{task['id']}").json()["id"] == task["id"]
    # Of another agent, it is not found; at the hub's own address it is.
    other = Agent(f"{demo_hub.base}/v1/a2a/agents/reviewer", path="")
    assert other.error("GetTask", {"id": task["id"]})["code"] == -32001
    assert demo_hub.result("GetTask", {"id": task["id"]})["id"] == task["id"]
    assert demo_hub.http.post(f"{demo_hub.base}/v1/a2a/agents/nobody", json={}).status_code == 404
    writer.close()
    other.close()


def test_the_hub_is_an_agent_whose_messages_are_routed(demo_hub: Agent) -> None:
    card = demo_hub.http.get(f"{demo_hub.base}/.well-known/agent-card.json").json()
    assert {skill["id"]: skill["tags"] for skill in card["skills"]} == {
        "draft": ["routed", "writer"],
        "publisher": ["routed", "publisher"],
        "review": ["routed", "reviewer"],
        "approve": ["routed", "approver"],
    }
    routed = demo_hub.send("read this", metadata={"skillHint": "review"})
    assert routed["artifacts"][0]["parts"][0]["text"] == "It reads well."
    aimed = demo_hub.send("go", metadata={"targets": ["approver"]})
    assert aimed["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    helm = demo_hub.send("anything")
    assert "A first version" in helm["artifacts"][0]["parts"][0]["text"]
    posted = demo_hub.http.post(
        f"{demo_hub.base}/api/dispatch", json={"skill": "draft", "message": "go", "wait": 30}
    ).json()["tasks"][0]
    assert (posted["agent"], posted["state"]) == ("writer", "completed")
    (ceremony,) = demo_hub.http.get(f"{demo_hub.base}/api/ceremonies").json()["items"]
    run = demo_hub.http.post(f"{demo_hub.base}/api/ceremonies/{ceremony['id']}/run").json()
    assert (
        until(lambda: demo_hub.http.get(f"{demo_hub.base}/api/tasks/{run['taskId']}").json()["agent"])
        == "writer"
    )
    refused = demo_hub.send("go", metadata={"skillHint": "cook"})
    assert refused["status"]["state"] == "TASK_STATE_REJECTED"
    items = demo_hub.http.get(f"{demo_hub.base}/api/tasks").json()["items"]
    agents = {item["taskId"]: item["agent"] for item in items}
    ids = [one["id"] for one in (routed, aimed, helm, refused)]
    assert [agents[one] for one in ids] == ["reviewer", "approver", "writer", "hub"]


@pytest.mark.parametrize(
    "path",
    ["/v1/a2a/agents/Writer", "/v1/a2a/agents/nonexistent", "/v1/a2a/agents/nonexistent/a2a", "/Writer"],
)
def test_path_without_agent_is_refused_and_no_other_agent_does_the_work(
    demo_hub: Agent, path: str, trunkline: Run
) -> None:
    url = demo_hub.base + path
    before = demo_hub.http.get(f"{demo_hub.base}/api/tasks").json()["items"]
    for command in (["send", url, "hi"], ["task", "list", "-a", url], ["doctor", url]):
        code, out, err = trunkline(*command)
        text = " ".join((out + err).split())
        assert code == 3, text
        assert f"no agent has the path '{path}'" in text
        assert "'writer'" in text

    async def delegate() -> None:
        async with Client(url, bindings=["DELEGATE"]) as client:
            with pytest.raises(RouteNotFound, match="'writer'"):
                await client.send("hi")

    asyncio.run(delegate())
    assert demo_hub.http.get(f"{demo_hub.base}/api/tasks").json()["items"] == before


@pytest.mark.parametrize("path", ["", "/a2a", "/v1/a2a/agents/writer", "/v1/a2a/agents/writer/a2a"])
def test_path_of_an_agent_is_called(demo_hub: Agent, path: str, trunkline: Run) -> None:
    code, out, err = trunkline("send", demo_hub.base + path, "hi")
    assert not code, err
    assert "A first version" in out


@pytest.mark.parametrize("path", ["", "/v1/a2a/agents/writer"])
def test_hb36_the_doctor_finds_nothing_wrong(demo_hub: Agent, path: str, trunkline: Run) -> None:
    code, out, _ = trunkline("doctor", demo_hub.base + path)
    assert not code, out


def test_work_goes_on_after_the_death_of_the_hub_also_if_its_entry_is_gone(tmp_path: Path) -> None:
    workspace = tmp_path / "hub"
    workspace.mkdir()
    (workspace / "local_agent.py").write_text(LOCAL)
    mock = Mock(read_scenarios(SLOW, where="slow")[0])
    with BackgroundServer(mock) as url:
        (workspace / "agents.yaml").write_text(ENTRY.replace("URL", url))
        hub = HubProcess(workspace)
        with hub:
            slow = Agent(f"{hub.base}/v1/a2a/agents/slow", path="")
            here = Agent(f"{hub.base}/v1/a2a/agents/here", path="")
            off = Agent(f"{hub.base}/v1/a2a/agents/off", path="")
            # By its own address too: what an agent does not take is a task that was refused.
            refused = off.post(rpc_of("x"), V1)
            assert "TASK_STATE_REJECTED" in refused.text and "disabled" in refused.text
            direct = slow.send("a", wait=False)["id"]
            through = here.send("b", wait=False)["id"]

            def is_taken(task: str) -> bool:
                return "peer.taken" in slow.http.get(f"{hub.base}/api/tasks/{task}/log").text

            shown = f"{hub.base}/api/tasks/{through}"
            child = until(lambda: slow.http.get(shown).json()["children"])[0]["taskId"]
            until(lambda: is_taken(direct) and is_taken(child))
            hub.kill()
            # The entry goes while nobody runs; what was begun is followed by what the log says.
            (workspace / "agents.yaml").write_text(
                ENTRY.replace("name: slow, ", "name: other, ").replace("URL", url)
            )
            hub.start()

            def ended(task: str) -> Any:
                found = slow.http.get(f"{hub.base}/api/tasks/{task}").json()
                return found if found["state"] in ("completed", "failed") else None

            assert until(lambda: ended(direct))["text"] == "Thought."
            assert until(lambda: ended(through)).get("text") == "slow said: Thought.", hub.text()
            assert slow.post({}).status_code == 404
            for agent in (slow, here, off):
                agent.close()
        assert len(mock.messages) == 2


def rpc_of(text: str) -> dict[str, Any]:
    said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}


def test_keys_of_the_file_open_the_hub_and_are_read_again(tmp_path: Path) -> None:
    write_workspace(tmp_path / "hub")
    env = {"CI_KEY": "ci-key-of-the-test", "BOSS_KEY": "boss-key-of-the-test"}
    keys = tmp_path / "hub" / "keys.yaml"
    keys.write_text("keys: {ci: {env: CI_KEY, scopes: ['tasks:read']}}")
    with HubProcess(tmp_path / "hub", "--key", "operators-key-1", env=env) as hub:
        one = Agent(hub.base)

        def status(key: str, path: str) -> int:
            return one.http.get(f"{hub.base}{path}", headers={"X-API-Key": key}).status_code

        assert status(env["CI_KEY"], "/api/tasks") == 200
        assert status(env["CI_KEY"], "/api/settings") == 403
        assert status("operators-key-1", "/api/settings") == 200
        assert status(env["BOSS_KEY"], "/api/tasks") == 401
        keys.write_text("keys: {boss: {env: BOSS_KEY, scopes: [admin]}}")
        until(lambda: status(env["BOSS_KEY"], "/api/settings") == 200)
        assert status(env["CI_KEY"], "/api/tasks") == 401
        one.close()


@pytest.mark.parametrize("left", ["", "keys: {}", None], ids=["empty", "without-keys", "removed"])
def test_a_file_of_keys_that_is_emptied_lets_nobody_in(tmp_path: Path, left: str | None) -> None:
    write_workspace(tmp_path / "hub")
    env, keys = {"CI_KEY": "ci-key-of-the-test"}, tmp_path / "hub" / "keys.yaml"
    keys.write_text("keys: {ci: {env: CI_KEY, scopes: [admin]}}")
    with HubProcess(tmp_path / "hub", env=env) as hub:
        one = Agent(hub.base)

        def status(**headers: str) -> int:
            return one.http.get(f"{hub.base}/api/settings", headers=headers).status_code

        ci = {"X-API-Key": env["CI_KEY"]}
        assert (status(**ci), status()) == (200, 401)
        if left is None:
            keys.unlink()
        else:
            keys.write_text(left)
        # The key is known no longer, and nobody is let in without one.
        until(lambda: status(**ci) != 200 or status() != 401)
        assert (status(**ci), status()) == (401, 401)
        one.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "[::1]", "192.168.1.1"])
def test_what_a_file_says_goes_also_to_addresses_that_are_not_public(host: str) -> None:
    asyncio.run(Egress(networks=EVERYWHERE).check(f"http://{host}/hook"))


def test_commands_of_a_workspace(tmp_path: Path, trunkline: Run) -> None:
    workspace = tmp_path / "demo"
    assert trunkline("hub", "init", str(workspace))[0] == 0
    assert trunkline("hub", "check", str(workspace))[:2] == (0, f"{workspace}: nothing is wrong\n")
    (workspace / "hub.yaml").write_text("name: x\nsettings:\n  retentoin: 7d\n")
    (workspace / "keys.yaml").write_text("keys:\n  ci:\n    env: NOT_SET_ANYWHERE\n")
    (workspace / "agents.yaml").write_text("agents:\n  - name: a\n    url: ${NOT_SET_ANYWHERE}\n")
    code, told, _ = trunkline("hub", "check", str(workspace))
    assert code == 2
    assert "hub.yaml" in told and "line 3" in told and "retention" in told
    assert "keys.yaml" in told and "NOT_SET_ANYWHERE" in told
    assert "a: " in told


def test_invalid_entries_are_logged_once_at_the_start(tmp_path: Path) -> None:
    workspace = tmp_path / "hub"
    workspace.mkdir()
    (workspace / "agents.yaml").write_text("agents:\n  - name: far\n    ulr: https://far.example\n")
    with HubProcess(workspace) as hub:
        until(lambda: "catalogue.added agent=far" in hub.text())
        fault = "agents.yaml, line 3: ulr: unknown field; did you mean 'url'?"
        assert hub.text().count(f"WARNING catalogue.entry_refused agent=far error={fault!a}\n") == 1
        assert hub.text().count("entry_refused") == 1


def test_the_current_folder_is_meant_where_none_is_named(tmp_path: Path, trunkline: Run) -> None:
    (tmp_path / "hub.yaml").write_text("name: x\nhelmet: y\n")
    code, _, err = trunkline("hub")
    assert code == 2 and "hub.yaml" in err
