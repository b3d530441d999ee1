"""Rows of the acceptance list over HTTP alone: a hub as a process, agents that do what a test says."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.harness import NO_TLS
from tests.hub.remote_agents import ASKING, COMPLETED, WORKING, RemoteAgent, RemoteAgents, call_back, until
from tests.hub.test_hub import HubProcess
from tests.hub.test_hub_following import Following
from tests.peer.test_remote_run_notices import SHAPES
from trunkline.mock.serve import BackgroundServer

OLD_CARD = "/.well-known/agent.json"
FAILED = "TASK_STATE_FAILED"
CANARY = "canary-of-an-agents-key"
POLL_S, AGE_S = 0.3, 6.0
# Entries beside those that have only a name and a url.
LOCAL = """
from trunkline import Agent, Turn

agent = Agent("Desk")

@agent.skill
async def relay(turn: Turn) -> str:
    return (await turn.call("old", "quick", skill=turn.text)).text
"""
MORE = {
    "turner": "skills: [always]",
    "keyed": "apiKeyEnv: THE_KEY, headers: {x-more: further}",
    "bearer": "auth: {scheme: bearer, credentialsEnv: THE_KEY}",
    "bare": "apiKeyEnv: NOT_SET",
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Following]:
    workspace: Path = tmp_path_factory.mktemp("acceptance")
    names = ("old", "quiet", "forgetful", "good", "bad", "likely", "unlikely", *MORE)
    remote = RemoteAgents(*map(RemoteAgent, names), RemoteAgent("pusher", push=True))
    remote.agents["old"].card_path = OLD_CARD
    for name in ("likely", "unlikely"):
        remote.agents[name].skills.append("shared")
    with BackgroundServer(remote) as url:
        (workspace / "hub.yaml").write_text(
            f"settings: {{poll_interval: {POLL_S}, task_max_age: {AGE_S}, wait_limit: 60}}"
        )
        lines = [f'  - {{name: {one}, url: "{url}/{one}", {MORE.get(one, "")}}}' for one in remote.agents]
        lines.append(f'  - {{name: nowhere, url: "{url}/${{NOT_SET}}/x"}}')
        lines.append('  - {name: desk, import: "desk_agent:agent"}')
        (workspace / "desk_agent.py").write_text(LOCAL)
        (workspace / "agents.yaml").write_text("agents:\n" + "\n".join(lines))
        with HubProcess(workspace, env={"THE_KEY": CANARY}) as hub:
            made = Following(hub, remote)
            until(lambda: {one["state"] for one in items(made, "agents")} == {"ready", "invalid"})
            yield made
            made.agent.close()


def get(fleet: Following, path: str) -> Any:
    return fleet.agent.http.get(f"{fleet.hub.base}/api/{path}").json()


def items(fleet: Following, path: str) -> list[Any]:
    return get(fleet, path)["items"]


def order(fleet: Following, **said: Any) -> Any:
    body = {"message": "quick", "wait": 60, **said}
    return fleet.agent.http.post(f"{fleet.hub.base}/api/dispatch", json=body).json()["tasks"][0]


def test_hb01_an_agent_with_the_old_card_alone_is_found_and_given_work(fleet: Following) -> None:
    assert [(one["id"], one["source"]) for one in get(fleet, "agents/old")["skills"]] == [("old", "card")]
    done = order(fleet, skill="old")
    assert (done["agent"], done["state"], done["text"]) == ("old", "completed", "did quick")


def test_hb02_and_hb03_skills_and_the_transport_follow_the_card(fleet: Following) -> None:
    turner = fleet["turner"]

    def refresh() -> None:
        fleet.agent.http.post(f"{fleet.hub.base}/api/agents/turner/refresh").raise_for_status()

    assert order(fleet, skill="turner")["state"] == "completed"
    assert (turner.calls["SendMessage"], turner.calls["SendStreamingMessage"]) == (1, 0)
    turner.skills, turner.streaming = ["fresh"], True
    refresh()
    assert order(fleet, skill="fresh")["agent"] == order(fleet, skill="always")["agent"] == "turner"
    assert order(fleet, skill="turner")["state"] == "rejected"
    assert (turner.calls["SendMessage"], turner.calls["SendStreamingMessage"]) == (1, 2)
    turner.streaming = False
    refresh()
    assert order(fleet, skill="fresh")["state"] == "completed"
    assert (turner.calls["SendMessage"], turner.calls["SendStreamingMessage"]) == (2, 2)


def test_hb04_and_hb05_agents_are_shown_their_credentials_or_not_called(fleet: Following) -> None:
    listed = {one["name"]: one for one in items(fleet, "agents")}
    for name in ("nowhere", "bare"):
        assert (listed[name]["state"], "NOT_SET" in listed[name]["reason"]) == ("invalid", True)
        refused = order(fleet, agent=name)
        assert (refused["agent"], refused["state"]) == ("hub", "rejected")
    assert not fleet["bare"].headers
    assert order(fleet, skill="keyed")["state"] == order(fleet, skill="bearer")["state"] == "completed"
    # The card too.
    assert len(fleet["keyed"].headers) >= 2
    assert {(one["x-api-key"], one["x-more"]) for one in fleet["keyed"].headers} == {(CANARY, "further")}
    assert {one["authorization"] for one in fleet["bearer"].headers} == {f"Bearer {CANARY}"}


def test_a_skill_calls_no_agent_elsewhere_for_a_skill_that_this_has_not(fleet: Following) -> None:
    assert order(fleet, agent="desk", message="old")["text"] == "did quick"
    taken = fleet["old"].executed.total()
    refused = order(fleet, agent="desk", message="odl")
    assert (refused["state"], refused["error"]) == ("failed", "old is not called: it has no skill 'odl'")
    assert fleet["old"].executed.total() == taken
    # Nothing was begun for it either.
    assert get(fleet, f"tasks/{refused['taskId']}")["children"] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_hb10_every_shape_of_a_webhook_ends_the_task_with_its_text_and_cost(
    fleet: Following, shape: str
) -> None:
    task_id, work = fleet.begun("pusher", f"push {shape}")
    # Whoever looks is told nothing of the end.
    work.shown = WORKING
    body = (
        json.dumps(SHAPES[shape])
        .replace('"t1"', json.dumps(work.id))
        .replace('"c1"', json.dumps(work.context))
    )
    assert call_back(work, json.loads(body)) == 200
    ended = fleet.until(task_id, "completed")
    assert (ended["text"], ended["costUsd"]) == ("done", 0.25)
    # The state in an answer may be newer than its events.
    seq = fleet.task(task_id)["events"][-1]["seq"]
    assert call_back(work, json.loads(body)) == 200
    assert fleet.task(task_id)["events"][-1]["seq"] == seq


def test_hb13_a_forgotten_task_fails_at_the_third_look(fleet: Following) -> None:
    agent = fleet["forgetful"]
    task_id, work = fleet.begun("forgetful", "forget me")
    before = agent.calls["GetTask"]
    del agent.work[work.id]
    assert "no longer knows its task" in fleet.until(task_id, "failed")["error"]
    # One look may have been on its way.
    assert 3 <= agent.calls["GetTask"] - before <= 4
    assert agent.executed["forget me"] == 1


def test_hb16_silence_for_too_long_ends_the_task_there_too(fleet: Following) -> None:
    task_id, work = fleet.begun("quiet", "say nothing")
    assert fleet.until(task_id, "failed")["error"]
    until(lambda: work.state == "TASK_STATE_CANCELED")
    assert fleet["quiet"].calls["CancelTask"] == 1


def test_hb17_a_question_by_any_way_is_asked_once_answered_there_or_ends_the_task(tmp_path: Path) -> None:
    remote = RemoteAgents(RemoteAgent("poller"), RemoteAgent("pusher", push=True))
    with BackgroundServer(remote) as url:
        (tmp_path / "hub.yaml").write_text(f"settings: {{poll_interval: {POLL_S}, inbox_ttl: 8}}")
        lines = [f'  - {{name: {one}, url: "{url}/{one}"}}' for one in remote.agents]
        (tmp_path / "agents.yaml").write_text("agents:\n" + "\n".join(lines))
        with HubProcess(tmp_path) as hub:
            fleet = Following(hub, remote)
            until(lambda: {one["state"] for one in items(fleet, "agents")} == {"ready"})
            left = fleet.dispatch("poller", "at once, and wait")["taskId"]
            first = fleet.dispatch("poller", "at once")["taskId"]
            later, late = fleet.begun("poller", "later")
            fleet.remote.say(late, state=ASKING, word="Which?")
            pushed, told = fleet.begun("pusher", "pushed")
            fleet.remote.say(told, state=ASKING, word="Which?")
            body = {"statusUpdate": {"taskId": told.id, "contextId": told.context, "status": told.status}}
            assert [call_back(told, body) for _ in range(2)] == [200, 200]
            for task_id, work in ((first, fleet["poller"].find("at once")), (later, late), (pushed, told)):
                fleet.until(task_id, "input-required")
                assert [one["taskId"] for one in items(fleet, "inbox")].count(task_id) == 1
                answer = {"decision": "respond", "text": f"to {task_id}"}
                fleet.agent.http.post(f"{hub.base}/api/inbox/{task_id}", json=answer).raise_for_status()
                until(lambda work=work, task_id=task_id: work.said[1:] == [f"to {task_id}"])
                fleet.remote.say(
                    work, state=COMPLETED, artifacts=[{"artifactId": "a", "parts": [{"text": "x"}]}]
                )
                events = fleet.until(task_id, "completed")["events"]
                states = [one["state"] for one in events if one["kind"] == "status"]
                assert states.count("input-required") == 1
            unanswered = fleet.until(left, "failed")
            assert unanswered["error"]
            closed = {one["taskId"]: one["outcome"] for one in items(fleet, "inbox?state=closed")}
            assert closed == {left: "expired", **dict.fromkeys((first, later, pushed), "answered")}
            until(lambda: fleet["poller"].find("at once, and wait").state == "TASK_STATE_CANCELED")
            fleet.agent.close()


def _ends(fleet: Following, agent: str, count: Counter[str], skill: str = "") -> None:
    """Have an agent end tasks in each of these ways, with what each costs."""
    for state, times in count.items():
        for number in range(times):
            text = f"{state} {number}"
            task_id = order(fleet, agent=agent, skill=skill or agent, message=text, wait=0)["taskId"]
            work = fleet[agent].find(text)
            until(lambda task_id=task_id: fleet.is_taken(task_id))
            if state == "canceled":
                fleet.agent.http.post(f"{fleet.hub.base}/api/tasks/{task_id}/cancel").raise_for_status()
            else:
                cost = {"https://proto-labs.ai/a2a/ext/cost-v1": {"costUsd": 0.5}}
                artifacts = [{"artifactId": "a", "parts": [{"text": "x"}], "metadata": cost}]
                end = COMPLETED if state == "completed" else FAILED
                fleet.remote.say(work, state=end, artifacts=artifacts)
            fleet.until(task_id, state)


def _calculated(fleet: Following, agent: str) -> dict[str, Any]:
    """The health of an agent, from what the logs of its tasks say."""
    tasks = [get(fleet, f"tasks/{one['taskId']}") for one in items(fleet, f"tasks?agent={agent}&limit=200")]
    states = Counter([one["state"] for one in tasks])
    spans = sorted([_ms(one["events"][-1]["at"]) - _ms(one["events"][0]["at"]) for one in tasks])
    cost = sum([one.get("costUsd", 0) for one in tasks])
    total, good = len(tasks), states["completed"]
    return {
        "totalOutcomes": total, "successRate": good / total, "totalCostUsd": cost,
        "costPerSuccessfulOutcome": cost / good if good else 0,
        "failureRate1h": states["failed"] / total,
        "p50LatencyMs": spans[min(total // 2, total - 1)],
        "p95LatencyMs": spans[min(int(total * 0.95), total - 1)],
        "classes": {one: states[one] for one in ("completed", "failed", "canceled", "rejected", "input-required")},
    }  # fmt: skip


def _ms(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def _health(fleet: Following, agent: str, names: Any) -> dict[str, Any]:
    (found,) = get(fleet, f"fleet/health?agent={agent}")["agents"]
    return {name: found[name] for name in names}


def test_hb22_and_hb23_health_is_what_the_logs_say_also_after_a_restart(fleet: Following) -> None:
    _ends(fleet, "good", Counter(completed=4, failed=1, canceled=2))
    _ends(fleet, "bad", Counter(failed=2))
    asks = fleet.dispatch("good", "asks")["taskId"]
    fleet.remote.say(fleet["good"].find("asks"), state=ASKING, word="Which?")
    fleet.until(asks, "input-required")
    assert _health(fleet, "good", ["classes", "totalOutcomes"]) == {
        "classes": {"completed": 4, "failed": 1, "canceled": 2, "rejected": 0, "input-required": 1},
        "totalOutcomes": 7,
    }
    fleet.agent.http.post(f"{fleet.hub.base}/api/tasks/{asks}/cancel").raise_for_status()
    wanted = {name: _calculated(fleet, name) for name in ("good", "bad")}
    wanted["good"]["classes"]["input-required"] = 1
    found = {name: _health(fleet, name, wanted[name]) for name in wanted}
    assert found == wanted
    assert {"agent": "bad", "skill": "bad"} in get(fleet, "fleet/health")["orphanedSkills"]
    fleet.hub.kill()
    fleet.hub.start()
    assert {name: _health(fleet, name, wanted[name]) for name in wanted} == found


def test_hb08_and_hb31_draws_follow_the_weights_and_scores_the_track(fleet: Following) -> None:
    _ends(fleet, "likely", Counter(completed=5), "shared")
    _ends(fleet, "unlikely", Counter(completed=2, failed=4), "shared")
    health = {name: _health(fleet, name, _calculated(fleet, name)) for name in ("likely", "unlikely")}
    shown = get(fleet, "route?skill=shared")["candidates"]
    for one in shown:
        track = health[one["agent"]]
        slow = min(track["p50LatencyMs"] / 60_000, 2)
        assert one["score"] == pytest.approx(2 * track["successRate"] - 0.3 * slow, abs=1e-5)
    assert [one["agent"] for one in shown] == ["likely", "unlikely"]
    weights = {
        name: one["successRate"] / (1 + one["costPerSuccessfulOutcome"]) for name, one in health.items()
    }

    def draws(number: int) -> Counter[str]:
        with httpx2.Client(verify=NO_TLS, timeout=60) as client:
            url = f"{fleet.hub.base}/api/route?skill=shared"
            return Counter([client.get(url).json()["winner"] for _ in range(number)])

    with ThreadPoolExecutor(4) as threads:
        won = sum(threads.map(draws, [2500] * 4), Counter[str]())
    share = weights["likely"] / sum(weights.values())
    assert won.total() == 10_000
    assert abs(won["likely"] / 10_000 - share) < 0.03


def _subscribed(fleet: Following, pattern: str, heard: list[str], ready: threading.Event, last: str) -> None:
    with (
        httpx2.Client(verify=NO_TLS, timeout=60) as client,
        client.stream("GET", f"{fleet.hub.base}/api/bus/subscribe", params={"topic": pattern}) as answer,
    ):
        for line in answer.iter_lines():
            # The first line says where it begins.
            ready.set()
            if line.startswith("data: {"):
                heard.append(json.loads(line[6:])["topic"])
                if not last or heard[-1].startswith(last):
                    return


def test_hb32_patterns_choose_topics_and_who_leaves_costs_nobody_a_frame(fleet: Following) -> None:
    end = "autonomous.outcome.old"
    # One that leaves at its first frame, and others until the end of the work.
    patterns = {"#": end, "autonomous.#": end, "autonomous.*.old.old": end, "*.outcome.#": end}
    heard: dict[str, list[str]] = {"agent.#": [], **{pattern: [] for pattern in patterns}}
    threads: list[threading.Thread] = []
    for pattern, found in heard.items():
        ready = threading.Event()
        said = (fleet, pattern, found, ready, patterns.get(pattern, ""))
        threads.append(threading.Thread(target=_subscribed, args=said))
        threads[-1].start()
        assert ready.wait(60)
    task = order(fleet, skill="old")["taskId"]
    for thread in threads:
        thread.join(60)
    scoped = [f"agent.skill.{name}.{task}" for name in ("progress", "response")]
    everything = ["agent.skill.request", *scoped, f"{end}.old"]
    assert heard == {
        "agent.#": everything[:1],
        "#": everything,
        **{pattern: everything[3:] for pattern in ("autonomous.#", "autonomous.*.old.old", "*.outcome.#")},
    }
    refused = fleet.agent.http.get(f"{fleet.hub.base}/api/bus/subscribe?topic=a.%23.b")
    assert (refused.status_code, refused.json()["field"]) == (400, "topic")
