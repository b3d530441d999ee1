"""Agents behind a hub that misbehave: each costs its own task, whose end has a stable reason, and tells nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import V1, params
from tests.hub.hostile_agents import CANARY, PLAIN, STREAMING, HostileAgents
from tests.hub.remote_agents import RemoteAgent, RemoteAgents, until
from tests.hub.yesterday import Front, fronting
from trunkline.mock.serve import BackgroundServer

SILENT_S = 6
# Of the caller; whatever of it an agent sees has passed a list that lets it through.
CALLER = {
    "Authorization": "Bearer caller-secret", "Cookie": "a=caller-cookie", "X-Custom": "caller-custom",
    "X-Forwarded-For": "198.51.100.7", "tracestate": "v=caller-state", "baggage": "k=caller-baggage",
    "Idempotency-Key": "caller-key", "A2A-Extensions": "https://caller.example/ext", "Referer": "http://caller.example/",
    "X-Correlation-Id": "caller-correlation", "traceparent": f"00-{'1' * 32}-{'2' * 16}-01", **V1,
}  # fmt: skip
PASSED = {
    "host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "a2a-version",
    "x-correlation-id", "x-parent-id", "traceparent",
}  # fmt: skip
ENDS = {
    "broken-json": "unreadable", "wrong-shape": "unreadable", "html": "unreadable", "deep": "unreadable",
    "not-utf8": "unreadable", "unknown-state": "unreadable", "redirect": "agent-error", "secrets": "agent-error",
    "bomb": "uncertain", "vanishes": "uncertain", "json-as-stream": "uncertain", "ends-at-once": "uncertain",
    "forgets": "forgotten", "no-get-working": "unfollowable", "other-task": "silent",
    "other-answer": "unreadable",
    "twenty-megabytes": "too-large", "drip-stream": "silent", "drip-empty": "silent", "broken-frame": "silent",
}  # fmt: skip
# Those that say much in one event.
BULKY = ("ten-megabytes", "twenty-megabytes")


class Hostile:
    """The hub, the agents, and a task for each, begun together but for the bulky ones."""

    def __init__(self, front: Front, agents: HostileAgents, good: RemoteAgent) -> None:
        self.front, self.agents, self.good = front, agents, good
        self.tasks: dict[str, str] = {}
        for name in BULKY:
            # An event is heard when it is whole: among all the others, on a busy machine, it would come too late.
            self.tasks[name] = self.send(name, wait=False)["id"]
            self.ended(name)
        rest = [name for name in (*STREAMING, *PLAIN) if name not in BULKY]
        self.tasks |= {name: self.send(name, wait=False)["id"] for name in rest}

    def send(self, name: str, *, wait: bool = True, headers: dict[str, str] | None = None) -> Any:
        return self.call(name, "SendMessage", params("quick hello", wait=wait), headers)["task"]

    def call(self, name: str, method: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": body}
        answer = self.front.agent.http.post(self.front.site(name), json=asked, headers=headers or V1)
        assert answer.status_code == 200, answer.text
        self.answered = answer
        return answer.json()["result"]

    def ended(self, name: str) -> Any:
        """The task of an agent, once it has ended."""

        def look() -> Any:
            task = self.call(name, "GetTask", {"id": self.tasks[name]})
            return (
                task
                if task["status"]["state"] not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
                else None
            )

        return until(look)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    good = RemoteAgent("good")
    elsewhere, agents = RemoteAgents(good), HostileAgents()
    with BackgroundServer(elsewhere) as other, BackgroundServer(agents) as url:
        agents.elsewhere = f"{other}/good"
        urls = {**{name: f"{url}/{name}" for name in (*STREAMING, *PLAIN)}, "good": f"{other}/good"}
        settings = f"poll_interval: 0.2, task_max_age: {SILENT_S}s"
        with fronting(tmp_path_factory.mktemp("hostile"), urls, settings=settings) as front:
            yield Hostile(front, agents, good)


def test_others_are_served_while_agents_misbehave(hostile: Hostile) -> None:
    for _ in range(5):
        task = hostile.send("good")
        assert task["artifacts"][0]["parts"][0]["text"] == "did quick hello"
    assert hostile.front.agent.http.get(f"{hostile.front.hub.base}/readyz").status_code == 200


@pytest.mark.parametrize(("name", "reason"), ENDS.items())
def test_misbehaviour_ends_its_task_with_a_stable_reason(hostile: Hostile, name: str, reason: str) -> None:
    status = hostile.ended(name)["status"]
    assert status["state"] == "TASK_STATE_FAILED"
    assert status["message"]["metadata"] == {"trunkline.reason": reason}
    # What went wrong inside is in the log of the operator.
    (part,) = status["message"]["parts"]
    assert "127.0.0.1" not in part["text"] and CANARY not in part["text"] and "jsonrpc" not in part["text"]
    sends = sum([hostile.agents.calls[name, one] for one in ("SendMessage", "SendStreamingMessage")])
    assert sends == 1, "never a second send to an agent that does not deduplicate"


@pytest.mark.parametrize("name", ["endless", "endless-artifacts"])
def test_an_endless_stream_ends_at_the_limit_of_a_task(hostile: Hostile, name: str) -> None:
    task = hostile.ended(name)
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "has reached its limit" in task["status"]["message"]["parts"][0]["text"]


def test_an_answer_that_drips_ends_with_silence(hostile: Hostile) -> None:
    assert "silent for too long" in hostile.ended("drip")["status"]["message"]["parts"][0]["text"]
    assert hostile.agents.calls["drip", "SendMessage"] == 1


def test_a_line_without_end_is_cut_off(hostile: Hostile) -> None:
    assert hostile.ended("endless-line")["status"]["state"] == "TASK_STATE_FAILED"


def test_ten_megabytes_in_one_event_come_through(hostile: Hostile) -> None:
    (artifact,) = hostile.ended("ten-megabytes")["artifacts"]
    assert artifact["parts"] == [{"text": "x" * (10 << 20)}]


def test_what_a_stream_tells_of_another_task_is_left_out(hostile: Hostile) -> None:
    task = hostile.ended("other-frame")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [one["parts"] for one in task["artifacts"]] == [[{"text": "own"}]]


def test_a_redirect_leads_nobody_to_another_origin(hostile: Hostile) -> None:
    hostile.ended("redirect")
    assert "stolen" not in str(hostile.good.calls)


def test_an_agent_that_cannot_tell_of_its_tasks_is_waited_for(hostile: Hostile) -> None:
    task = hostile.ended("no-get")
    assert task["artifacts"][0]["parts"][0]["text"] == "done"
    # It has refused to tell of one: the next is sent as one that is waited for.
    hostile.ended("no-get-working")
    hostile.send("no-get-working")
    assert [one["configuration"]["returnImmediately"] for one in hostile.agents.sent["no-get-working"]] == [
        True,
        False,
    ]


def test_headers_pass_by_a_list_alone(hostile: Hostile) -> None:
    before = len(hostile.agents.headers["headers"])
    task = hostile.send("headers", headers=CALLER)
    seen = [one for one in hostile.agents.headers["headers"][before:] if "content-type" in one]
    assert len(seen) == 1 and seen[0].keys() <= PASSED
    assert seen[0]["traceparent"] == CALLER["traceparent"]
    assert "caller" not in str({**seen[0], "x-correlation-id": ""})
    # And nothing of what the agent sends beside its answer comes back.
    answer = hostile.answered
    assert CANARY not in f"{answer.headers}{answer.text}"
    assert answer.headers.keys() <= {"date", "content-type", "content-length", "connection"}
    assert CANARY not in str(hostile.call("headers", "GetTask", {"id": task["id"]}))


def test_only_the_hub_says_why_it_gave_up(hostile: Hostile) -> None:
    assert hostile.ended("spoofs")["status"]["message"]["metadata"] == {"own": 1}


def test_nothing_broke(hostile: Hostile) -> None:
    for name in hostile.tasks:
        hostile.ended(name)
    assert "Traceback" not in hostile.front.hub.text()
