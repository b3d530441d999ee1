"""Two tenants of a hub with an agent elsewhere that lies, and a caller of one who guesses at the other's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.harness import NO_TLS, SECRET, V1, params, plain_state, text_of
from tests.hub.remote_agents import COMPLETED, RemoteAgent, RemoteAgents, RemoteWork, call_back, until
from tests.hub.test_hub import HubProcess
from trunkline.mock.serve import BackgroundServer

BOSS = "operators-key-1"
SITE = "/v1/a2a/agents/liar"


class Tenant:
    """A caller of one tenant."""

    def __init__(self, base: str, key: str) -> None:
        self._http = httpx2.Client(base_url=base, timeout=60, verify=NO_TLS, headers={**V1, "X-API-Key": key})

    def ask(self, verb: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._http.request(verb, path, json=body, headers=named)

    def begin(self, text: str, **message: Any) -> dict[str, Any]:
        """The task that a message became, which its agent has not ended."""
        return self.ask("POST", f"{SITE}/message:send", params(text, wait=False, **message)).json()["task"]

    def task(self, task_id: str) -> Any:
        return self.ask("GET", f"{SITE}/tasks/{task_id}").json()

    def close(self) -> None:
        self._http.close()


class Siege:
    """The hub, the agent that both tenants have, and a caller of each."""

    def __init__(self, hub: HubProcess, remote: RemoteAgents, boss: Tenant) -> None:
        self.hub, self.remote, self.liar = hub, remote, remote.agents["liar"]
        made = [boss.ask("POST", "/admin/tenants", {"name": name}).json() for name in ("north", "south")]
        self.north, self.south = [Tenant(hub.base, one["token"]) for one in made]

    def begun(self, tenant: Tenant, text: str) -> tuple[str, RemoteWork]:
        """A task of a tenant and what its agent has of it, with the webhook that the agent was given."""
        task = tenant.begin(text)["id"]
        work = self.liar.find(text)
        until(lambda: "peer.taken" in tenant.ask("GET", f"/api/tasks/{task}/log").text)
        return task, work


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    workspace: Path = tmp_path_factory.mktemp("siege")
    remote = RemoteAgents(RemoteAgent("liar", push=True))
    with BackgroundServer(remote) as url:
        (workspace / "hub.yaml").write_text("settings: {poll_interval: 0.3}")
        (workspace / "agents.yaml").write_text(
            f'agents:\n  - {{name: liar, url: "{url}/liar", tenants: all}}\n'
        )
        with HubProcess(workspace, "--key", BOSS, env=SECRET) as hub:
            boss = Tenant(hub.base, BOSS)
            until(lambda: boss.ask("GET", "/api/agents/liar").json()["state"] == "ready")
            made = Siege(hub, remote, boss)
            yield made
            for one in (boss, made.north, made.south):
                one.close()


def told(work: RemoteWork, text: str, **more: Any) -> dict[str, Any]:
    """What a webhook says of the end of a task."""
    artifacts = [{"artifactId": "a", "parts": [{"text": text}]}]
    return {"task": {**work.task(), "status": {"state": COMPLETED}, "artifacts": artifacts, **more}}


def test_an_agent_of_two_tenants_ends_the_task_of_one_by_no_token_or_id_of_the_other(siege: Siege) -> None:
    ours, mine = siege.begun(siege.north, "of the north")
    theirs, yours = siege.begun(siege.south, "of the south")
    assert mine.push is not None and yours.push is not None
    for restarted in (False, True):
        if restarted:
            siege.hub.kill()
            siege.hub.start()
        stolen, unknown = str(yours.push["token"]), f"{mine.push['url'].rpartition('/')[0]}/{uuid.uuid4()}"
        refused = call_back(mine, told(mine, "by a stolen token"), token=stolen)
        own = mine.push["url"]
        mine.push["url"] = unknown
        assert [refused, call_back(mine, told(mine, "of nobody"))] == [401, 401]
        mine.push["url"] = own
        # By the right token of the one, with the id and the context of the other: it is no word about either.
        foreign = told(yours, "of the other", id=mine.id, contextId=mine.context)
        assert call_back(yours, foreign) < 500
        states = [plain_state(siege.north.task(ours)), plain_state(siege.south.task(theirs))]
        assert states == ["working", "working"]
    assert call_back(mine, told(mine, "done in the north")) == 200
    done = until(lambda: (t := siege.north.task(ours)) and plain_state(t) == "completed" and t)
    assert text_of(done) == "done in the north"
    assert plain_state(siege.south.task(theirs)) == "working"
    # What it said of somebody else's counts for nothing; its own task is looked at as before.
    siege.remote.say(yours, state=COMPLETED, artifacts=told(yours, "done in the south")["task"]["artifacts"])
    done = until(lambda: (t := siege.south.task(theirs)) and plain_state(t) == "completed" and t)
    assert text_of(done) == "done in the south"


def test_an_agent_that_names_a_task_of_the_hub_as_its_own_gives_nobody_that_task(siege: Siege) -> None:
    ours, _ = siege.begun(siege.north, "a secret of the north")
    theirs, work = siege.begun(siege.south, "curious")
    # The ids of the hub's own tasks, as the agent may have heard them, are no ids of its own.
    lie = told(work, "here it is", metadata={"taskId": ours}, history=[])
    assert call_back(work, lie) == 200
    done = until(lambda: (t := siege.south.task(theirs)) and plain_state(t) == "completed" and t)
    assert (done["id"], text_of(done)) == (theirs, "here it is")
    other = str(uuid.uuid4())
    found = [siege.south.ask("GET", f"{SITE}/tasks/{one}") for one in (ours, other)]
    assert [one.status_code for one in found] == [404, 404]
    assert found[0].text.replace(ours, other) == found[1].text
    assert plain_state(siege.north.task(ours)) == "working"


def test_a_caller_finds_nothing_of_another_tenant_by_guessing(siege: Siege) -> None:
    north, south = siege.north, siege.south
    key, message_id = "the same key", str(uuid.uuid4())
    first = params("quick of the north", messageId=message_id, contextId="shared")
    mine = north.ask("POST", f"{SITE}/message:send", first, Idempotency_Key=key).json()["task"]
    for text in ("quick 1", "quick 2"):
        north.ask("POST", f"{SITE}/message:send", params(text))
    # The same key, message id and context are another tenant's own, in the hub and at the agent.
    second = params("quick of the south", messageId=message_id, contextId="shared")
    yours = south.ask("POST", f"{SITE}/message:send", second, Idempotency_Key=key).json()["task"]
    assert yours["id"] != mine["id"] and text_of(yours) == "did quick of the south"
    works = [siege.liar.find(f"quick of the {name}") for name in ("north", "south")]
    assert works[0].context != works[1].context
    shared = south.ask("GET", f"{SITE}/tasks?contextId=shared").json()["tasks"]
    assert [one["id"] for one in shared] == [yours["id"]]
    # Marks of pages of the one show the other nothing but its own.
    page = north.ask("GET", f"{SITE}/tasks?pageSize=1").json()["nextPageToken"]
    after = north.ask("GET", "/api/tasks?limit=1").json()["next"]
    assert page and after
    for path in (f"{SITE}/tasks?pageSize=50&pageToken={page}", f"/api/tasks?after={after}&agent=liar"):
        answer = south.ask("GET", path)
        assert (
            answer.status_code in (200, 400) and mine["id"] not in answer.text and "north" not in answer.text
        )
    # A webhook, a link and a place in a stream that somebody else has are as if there were none.
    guesses = [
        ("POST", "/api/a2a/callback/{}", {"task": {"id": "x"}}, {"X_A2A_Notification_Token": "guessed"}),
        ("GET", "/api/tasks/{}/events", None, {"Last_Event_ID": "1"}),
        ("POST", SITE + "/tasks/{}:subscribe", {}, {"Last_Event_ID": "1"}),
        ("POST", SITE + "/message:send", params("go on", taskId="{}"), {}),
    ]
    for verb, path, body, headers in guesses:
        answers: list[tuple[int, str]] = []
        for task in (mine["id"], str(uuid.uuid4())):
            given = body
            if body is not None and "message" in body:
                given = {**body, "message": {**body["message"], "taskId": task}}
            found = south.ask(verb, path.format(task), given, **headers)
            answers.append((found.status_code, found.text.replace(task, "<task>")))
        assert answers[0] == answers[1] and answers[0][0] in (401, 404), (path, answers)
    garbage = [south.ask("GET", f"/answer/{token}") for token in (mine["id"], "a" * 120)]
    assert {one.status_code for one in garbage} <= {400, 404, 410} and len({one.text for one in garbage}) == 1


@pytest.mark.parametrize("path", ["", "/v1/a2a/agents/echo"])
def test_an_agent_that_leads_back_to_its_hub_comes_to_an_end(tmp_path: Path, path: str) -> None:
    hub = HubProcess(tmp_path)
    (tmp_path / "agents.yaml").write_text(f'agents: [{{name: echo, url: "{hub.base}{path}", skills: [go]}}]')
    with hub:
        caller = Tenant(hub.base, "")
        until(lambda: caller.ask("GET", "/api/agents/echo").json()["state"] == "ready")
        task = caller.ask("POST", "/v1/a2a/agents/echo/message:send", params("go")).json()["task"]
        assert plain_state(task) in ("rejected", "failed")
        assert "hop_limit" in task["status"]["message"]["parts"][0]["text"]
        # Each of them was a task of its own here.
        assert len(caller.ask("GET", "/api/tasks").json()["items"]) == 9
        caller.close()
