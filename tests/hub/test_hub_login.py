"""An agent elsewhere that wants a login: it stands in the inbox, people are told, and any way out closes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fleet.notify.desk import Desk, desk
from tests.hub.remote_agents import COMPLETED, RemoteAgent, RemoteAgents, RemoteWork, until
from tests.hub.test_hub import HubProcess
from tests.hub.test_hub_inbox import KEY, Asked
from trunkline.mock.serve import BackgroundServer

__all__ = ["desk"]
AUTH = "TASK_STATE_AUTH_REQUIRED"
WORDS = "Log in at https://login.example"
HUB = """
settings: {poll_interval: 0.2, inbox_ttl: TTL}
notify: [{name: office, webhook: "http://DESK/"}]
"""


class Bank:
    """A hub, and an agent elsewhere that wants a login where the test says so."""

    def __init__(self, hub: HubProcess, remote: RemoteAgents) -> None:
        self.remote, self.asked = remote, Asked(hub.base)

    def wants_login(self, text: str) -> tuple[str, RemoteWork]:
        """A task that wants a login, and the work elsewhere."""
        _, said = self.asked.post("dispatch", message=text, agent="bank")
        task_id = said["tasks"][0]["taskId"]
        work = self.remote.agents["bank"].find(text)
        self.remote.say(work, state=AUTH, word=WORDS)
        return task_id, work

    def items(self, state: str = "open") -> list[Any]:
        return self.asked.get(f"api/inbox?state={state}")["items"]

    def closed(self, task_id: str) -> Any:
        return until(lambda: next((one for one in self.items("closed") if one["taskId"] == task_id), None))

    def reach(self, task_id: str, state: str) -> None:
        until(lambda: self.asked.get(f"api/tasks/{task_id}")["state"] == state)


@contextmanager
def banking(workspace: Path, desk: Desk, ttl: str) -> Iterator[Bank]:
    remote = RemoteAgents(RemoteAgent("bank"))
    with BackgroundServer(remote) as url:
        (workspace / "agents.yaml").write_text(f'agents: [{{name: bank, url: "{url}/bank"}}]')
        (workspace / "hub.yaml").write_text(HUB.replace("TTL", ttl).replace("DESK", desk.place))
        with HubProcess(workspace, "--key", KEY) as hub:
            bank = Bank(hub, remote)
            try:
                yield bank
            finally:
                bank.asked.close()


def test_a_login_is_asked_of_people_and_answered_rejected_or_done_elsewhere(
    tmp_path: Path, desk: Desk
) -> None:
    with banking(tmp_path, desk, "30m") as bank:
        (told, answered), (refused, declined), (alone, elsewhere) = [
            bank.wants_login(text) for text in ("answered", "declined", "elsewhere")
        ]
        for item in until(lambda: found if len(found := bank.items()) == 3 else None):
            assert (item["state"], item["text"], item["agent"]) == ("auth-required", WORDS, "bank")
            assert item["deadline"] > item["askedAt"]
        until(lambda: len(desk.heard) == 3)
        assert {(one["taskId"], one["state"]) for one in desk.bodies()} == {
            (task, "auth-required") for task in (told, refused, alone)
        }
        assert desk.bodies()[0]["content"].startswith(f"bank wants a login: {WORDS}")
        status, said = bank.asked.post(f"inbox/{told}", decision="respond", text="I have logged in")
        assert (status, said["question"]) == (200, bank.closed(told)["question"])
        until(lambda: answered.said[-1] == "I have logged in")
        bank.remote.say(answered, state=COMPLETED)
        assert bank.asked.post(f"inbox/{refused}", decision="reject", text="no account")[0] == 200
        until(lambda: declined.answered)
        assert declined.answered[0][0]["data"] == {"rejected": True, "text": "no account"}
        bank.remote.say(declined, state="TASK_STATE_FAILED", word="Then not.")
        # Nobody says anything here: it is seen that somebody has logged in there.
        bank.remote.say(elsewhere, state=COMPLETED, word="")
        bank.reach(told, "completed")
        bank.reach(refused, "failed")
        bank.reach(alone, "completed")
        outcomes = {
            task: (one["outcome"], one["state"], bool(one.get("answeredBy")))
            for task in (told, refused, alone)
            if (one := bank.closed(task))
        }
        assert outcomes == {
            told: ("answered", "auth-required", True),
            refused: ("rejected", "auth-required", True),
            alone: ("withdrawn", "auth-required", False),
        }
        assert bank.items() == []
        status, said = bank.asked.post(f"inbox/{alone}", decision="respond", text="late")
        assert (status, said["code"]) == (409, "QUESTION_CLOSED")


def test_a_login_that_nobody_sees_to_expires_and_is_shown_so(tmp_path: Path, desk: Desk) -> None:
    with banking(tmp_path, desk, "1s") as bank:
        task, work = bank.wants_login("forgotten")
        bank.reach(task, "failed")
        closed = bank.closed(task)
        assert (closed["outcome"], closed["state"]) == ("expired", "auth-required")
        until(lambda: work.state == "TASK_STATE_CANCELED")
