"""A caller's task at a hub outlives the hub and the agent that does it; its stream goes on by its last id."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.harness import V1, Frame, Frames, params, plain_state, text_of
from tests.hub.remote_agents import ASKING, COMPLETED, RemoteAgent, RemoteAgents, RemoteWork, until
from tests.hub.yesterday import Front, fronting
from tests.process.raw import Stream
from trunkline.mock.serve import BackgroundServer


class Durable:
    """The hub, and agents that have neither push nor a list of tasks nor ids on their streams."""

    def __init__(self, front: Front, remote: RemoteAgents) -> None:
        self.front, self.remote = front, remote

    def call(self, agent: str, method: str, body: Any) -> Any:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": body}
        answer = self.front.agent.http.post(self.front.site(agent), json=asked, headers=V1)
        return answer.json()

    def begun(self, agent: str, text: str) -> tuple[str, RemoteWork]:
        """A task that its agent has, and whose hub knows that."""
        task = self.call(agent, "SendMessage", params(text, wait=False))["result"]["task"]
        work = self.remote.agents[agent].find(text)
        log = f"{self.front.hub.base}/api/tasks/{task['id']}/log"
        until(lambda: "peer.taken" in self.front.agent.http.get(log).text)
        return task["id"], work

    def say(self, work: RemoteWork, text: str, **more: Any) -> None:
        """Have an agent add a piece of text."""
        piece = {"artifactId": f"a{len(work.artifacts)}", "parts": [{"text": text}]}
        self.remote.say(work, artifacts=[*work.artifacts, piece], **more)

    def read(self, agent: str, task_id: str, after: int, last: str = "") -> list[Frame]:
        """The events of a task behind one that came before, to one that holds this or to the end."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
        headers = {**V1, "Last-Event-ID": str(after)}
        url, found = self.front.site(agent), list[Frame]()
        with self.front.agent.http.stream("POST", url, json=body, headers=headers) as response:
            for frame in Frames(response):
                assert "error" not in frame.data, frame.data
                found.append(frame)
                if last and last in frame.result:
                    break
        return found

    def ended(self, agent: str, task_id: str) -> Any:
        return until(
            lambda: (
                found
                if (found := self.call(agent, "GetTask", {"id": task_id})["result"])["status"]["state"]
                in (COMPLETED, "TASK_STATE_FAILED", "TASK_STATE_CANCELED")
                else None
            )
        )


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Durable]:
    remote = RemoteAgents(RemoteAgent("poller"), RemoteAgent("streamer", streaming=True))
    with BackgroundServer(remote) as url:
        urls = {name: f"{url}/{name}" for name in remote.agents}
        settings = "poll_interval: 0.3, body_limit: 33554432"
        with fronting(tmp_path_factory.mktemp("durable"), urls, settings=settings) as front:
            yield Durable(front, remote)


@pytest.mark.parametrize("agent", ["streamer", "poller"])
def test_a_stream_goes_on_by_its_last_id_over_the_death_of_the_hub(durable: Durable, agent: str) -> None:
    task_id, work = durable.begun(agent, f"long work of {agent}")
    durable.say(work, "one ")
    first = durable.read(agent, task_id, 0, "artifactUpdate")
    durable.front.hub.kill()
    durable.say(work, "two ")
    durable.front.hub.start()
    durable.say(work, "three", state=COMPLETED)
    durable.ended(agent, task_id)
    rest = durable.read(agent, task_id, first[-1].id)
    ids = [one.id for one in (*first, *rest)]
    assert all(left < right for left, right in pairwise(ids)), "an event came twice"
    whole = durable.read(agent, task_id, 0)
    assert [one.id for one in whole] == ids, "an event is missing"
    pieces = [one.result["artifactUpdate"] for one in whole if "artifactUpdate" in one.result]
    assert "".join([one["artifact"]["parts"][0]["text"] for one in pieces]) == "one two three"
    # From any id in between the rest is the same.
    for place in (1, len(ids) // 2, len(ids) - 2):
        assert [one.id for one in durable.read(agent, task_id, ids[place])] == ids[place + 1 :]
    assert durable.remote.agents[agent].executed[work.text] == 1


def test_a_question_and_its_answer_outlive_the_hub(durable: Durable) -> None:
    task_id, work = durable.begun("poller", "asks later")
    durable.remote.say(work, state=ASKING, word="Which one?")
    until(lambda: durable.call("poller", "GetTask", {"id": task_id})["result"]["status"]["state"] == ASKING)
    durable.front.hub.kill()
    durable.front.hub.start()
    answer = params("that one", wait=False)
    answer["message"]["taskId"] = task_id
    durable.call("poller", "SendMessage", answer)
    until(lambda: work.said[-1] == "that one")
    durable.say(work, "done", state=COMPLETED)
    assert text_of(durable.ended("poller", task_id)) == "done"
    assert len(work.said) == 2


def test_a_cancel_reaches_the_agent_after_the_death_of_the_hub(durable: Durable) -> None:
    task_id, work = durable.begun("poller", "to be stopped")
    durable.front.hub.kill()
    durable.front.hub.start()
    stopped = durable.call("poller", "CancelTask", {"id": task_id})["result"]
    assert stopped["status"]["state"] == "TASK_STATE_CANCELED"
    until(lambda: work.state == "TASK_STATE_CANCELED")


def test_an_agent_that_has_forgotten_its_task_over_a_restart_ends_ours(durable: Durable) -> None:
    task_id, work = durable.begun("poller", "to be forgotten")
    durable.front.hub.kill()
    del durable.remote.agents["poller"].work[work.id]
    durable.front.hub.start()
    status = durable.ended("poller", task_id)["status"]
    assert status["message"]["metadata"]["trunkline.reason"] == "forgotten"
    assert durable.remote.agents["poller"].executed["to be forgotten"] == 1


def test_files_are_the_same_byte_for_byte(durable: Durable) -> None:
    content = os.urandom(3 << 20)
    raw = base64.b64encode(content).decode()
    part = {
        "raw": raw,
        "mediaType": "application/octet-stream",
        "filename": "große Datei.bin",
        "metadata": {"k": [1, None]},
    }
    body = params("file", wait=False)
    body["message"]["parts"].append(part)
    task_id = durable.call("streamer", "SendMessage", body)["result"]["task"]["id"]
    work = durable.remote.agents["streamer"].find("file")
    # What it was sent is what it was asked with, and what it gives is what is read.
    assert work.parts[1] == part
    durable.remote.say(
        work, state=COMPLETED, artifacts=[{"artifactId": "f", "name": "copy", "parts": [part]}]
    )
    (artifact,) = durable.ended("streamer", task_id)["artifacts"]
    assert artifact["parts"] == [part]
    got = base64.b64decode(artifact["parts"][0]["raw"])
    assert hashlib.sha256(got).digest() == hashlib.sha256(content).digest()


def test_tasks_are_listed_though_no_agent_can(durable: Durable) -> None:
    made = [durable.call("poller", "SendMessage", params(f"quick {n}"))["result"]["task"] for n in range(3)]
    found = durable.call("poller", "ListTasks", {"pageSize": 2})["result"]
    after = durable.call("poller", "ListTasks", {"pageSize": 2, "pageToken": found["nextPageToken"]})[
        "result"
    ]
    ids = [one["id"] for one in (*found["tasks"], *after["tasks"])]
    assert ids[:3] == [one["id"] for one in reversed(made)]
    assert durable.remote.agents["poller"].calls["ListTasks"] == 0


def test_fifty_at_once_with_one_message_id_are_one_task(durable: Durable) -> None:
    body = params("quick once")
    with ThreadPoolExecutor(50) as callers:
        answers = [*callers.map(lambda _: durable.call("poller", "SendMessage", body), range(50))]
    assert len({one["result"]["task"]["id"] for one in answers}) == 1
    assert durable.remote.agents["poller"].executed["quick once"] == 1


def test_gw_48_a_stop_waits_for_nothing_that_others_do_and_it_goes_on_after_the_next_start(
    durable: Durable,
) -> None:
    began = {name: durable.begun(name, f"over a stop of {name}") for name in ("streamer", "poller")}
    durable.say(began["streamer"][1], "first ")
    cancels = {name: durable.remote.agents[name].calls["CancelTask"] for name in began}
    with ThreadPoolExecutor(1) as waiting:
        waited = waiting.submit(durable.call, "poller", "SendMessage", params("waited for"))
        work = durable.remote.agents["poller"].find("waited for")
        log = f"{durable.front.hub.base}/api/tasks"
        until(
            lambda: (
                len(
                    [
                        one
                        for one in durable.front.agent.http.get(log).json()["items"]
                        if one["state"] == "working"
                    ]
                )
                >= 3
            )
        )
        before = time.monotonic()
        # The limit of the drain is its default, 20 seconds.
        assert durable.front.hub.stop(signal.SIGTERM) == 0
        assert time.monotonic() - before < 8
        task = waited.result()["result"]["task"]
    # Who waited is told how it stands.
    assert plain_state(task) == "working"
    durable.front.hub.start()
    durable.say(work, "done", state=COMPLETED)
    assert text_of(durable.ended("poller", task["id"])) == "done"
    for name, (task_id, one) in began.items():
        durable.say(one, "last", state=COMPLETED)
        found = durable.ended(name, task_id)
        assert (plain_state(found), "last" in str(found["artifacts"])) == ("completed", True)
        agent = durable.remote.agents[name]
        assert agent.executed[f"over a stop of {name}"] == 1 and agent.calls["CancelTask"] == cancels[name]


def test_gp_13_gw_70_a_thousand_idle_streams_and_a_dead_agent_delay_nobody(durable: Durable) -> None:
    """Half of them watch a task of an agent that streams, the others one of an agent that is asked."""
    work = {name: durable.begun(name, f"watched by many at {name}") for name in ("streamer", "poller")}
    # A third one does not answer any more who asks what became of its task.
    durable.remote.agents["poller"].hanging.add("dead")
    dead_id, _ = durable.begun("poller", "dead")
    site = urlsplit(durable.front.site("streamer"))
    assert site.port is not None
    many = [
        Stream(site.port, "SubscribeToTask", {"id": work[name][0]}, path=f"/v1/a2a/agents/{name}")
        for name in work
        for _ in range(500)
    ]

    async def watch() -> float:
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for one in many:
                group.create_task(one.read())
            for one in many:
                await one.first()
            before = time.monotonic()
            sent = await asyncio.to_thread(durable.call, "poller", "SendMessage", params("quick beside"))
            assert plain_state(sent["result"]["task"]) == "completed"
            served_s = time.monotonic() - before
            for _, one in work.values():
                await asyncio.to_thread(durable.say, one, "all", state=COMPLETED)
        return served_s

    served_s = asyncio.run(watch())
    assert {(one.state, one.text, one.clean) for one in many} == {("completed", "all", True)}
    assert served_s < 10, served_s
    durable.remote.agents["poller"].hanging.clear()
    durable.call("poller", "CancelTask", {"id": dead_id})
