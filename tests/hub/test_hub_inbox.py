"""The questions of a hub's agents: who is told of them, how they are answered, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.fleet.notify.desk import Desk, desk
from tests.harness import NO_TLS, Agent
from tests.hub.test_hub import HubProcess, until
from trunkline.mock.app import Mock
from trunkline.mock.script import read_scenarios
from trunkline.mock.serve import BackgroundServer
from trunkline.net import webhook_signature

__all__ = ["desk"]
ASKER = """
agent: {name: Asker, skills: [{id: approve, description: Asks}]}
otherwise: {ask: "Really?", then: Approved.}
"""
AGENTS = """
agents:
  - {name: asker, url: "ASKER", skills: [approve]}
"""
HUB = """
notify:
  - {name: office, webhook: "http://DESK/office?canary"}
  - {name: mail, apprise_env: MAIL, about: [questions], link: true}
  - {name: boss, webhook_env: BOSS, after: 1h}
"""
KEY = "an-operator-key-of-the-tests"


@pytest.fixture
def asker() -> Iterator[str]:
    with BackgroundServer(Mock(read_scenarios(ASKER, where="asker")[0])) as url:
        yield url


class Asked:
    """The API of a hub."""

    def __init__(self, base: str) -> None:
        self._agent = Agent(base, headers={"X-API-Key": KEY})
        self.base = base

    def post(self, path: str, **body: Any) -> tuple[int, Any]:
        got = self._agent.http.post(f"{self.base}/api/{path}", json=body)
        return got.status_code, got.json()

    def get(self, path: str) -> Any:
        return self._agent.http.get(f"{self.base}/{path}").json()

    def close(self) -> None:
        self._agent.close()


def test_hb17_people_are_told_once_of_a_question_also_if_the_hub_is_killed(
    tmp_path: Path, asker: str, desk: Desk
) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS.replace("ASKER", asker))
    (tmp_path / "hub.yaml").write_text(HUB.replace("DESK", desk.place))
    env = {"MAIL": f"json://user:canary@{desk.place}/mail", "BOSS": f"http://{desk.place}/boss"}
    hub = HubProcess(tmp_path, "--key", KEY, env=env)
    with hub:
        asked = Asked(hub.base)
        _, said = asked.post("dispatch", message="go", agent="asker", wait=30)
        (task,) = said["tasks"]
        assert (task["state"], task["text"]) == ("input-required", "Really?")
        until(lambda: len(desk.heard) == 2)
        keys = webhook_signature.jwks_keys(asked.get(".well-known/jwks.json"))
        (signed,) = [one for one in desk.heard if one[0] == "/office?canary"]
        webhook_signature.verify(signed[1], signed[2], keys, int(signed[1]["webhook-timestamp"]))
        (mail,) = [one for one in desk.bodies() if "message" in one]
        assert mail["title"] == "asker asks: Really?"
        asked.close()
        hub.kill()
        hub.start()
        asked = Asked(hub.base)
        # A second question is told; the first, which stands open still, is not told again.
        _, said = asked.post("dispatch", message="go again", agent="asker", wait=30)
        second = said["tasks"][0]["taskId"]
        until(lambda: len(desk.heard) >= 4)
        told = [one["taskId"] for one in desk.bodies() if "taskId" in one]
        assert told == [task["taskId"], second]
        # The link of the mail that came before the hub was killed still answers, and only by a POST.
        (link,) = [line for line in mail["message"].split() if line.startswith("http")]
        with httpx2.Client(verify=NO_TLS) as browser:
            assert "Really?" in browser.get(link).text
            sent = browser.post(
                link, data={"decision": "respond", "text": "yes"}, headers={"Origin": hub.base}
            )
            assert (sent.status_code, "Thank you" in sent.text) == (200, True)
            assert browser.post(link, data={"decision": "respond", "text": "no"}).status_code == 409
        until(lambda: asked.get(f"api/tasks/{task['taskId']}")["state"] == "completed")
        (closed,) = asked.get("api/inbox?state=closed")["items"]
        assert (closed["answeredBy"], closed["outcome"]) == ("mail", "answered")
        asked.close()
    assert "canary" not in hub.text()


WRITER = "agent: {name: Writer, skills: [{id: draft, description: Writes}]}\notherwise: PASSED"
KEYS = "keys: {writer: {env: WRITER_KEY}, other: {env: OTHER_KEY}}"
FLEET = """
agents:
  - {name: writer, url: "WRITER", skills: [draft]}
  - {name: asker, url: "ASKER", skills: [approve]}
  - {name: strict, url: "ASKER", skills: [approve], reviewer: operator}
"""


def test_hb17_the_agent_that_asked_for_the_work_answers_first_unless_people_are_to(
    tmp_path: Path, asker: str, desk: Desk
) -> None:
    caller = Mock(read_scenarios(WRITER, where="writer")[0])
    with BackgroundServer(caller) as writer:
        (tmp_path / "agents.yaml").write_text(FLEET.replace("WRITER", writer).replace("ASKER", asker))
        (tmp_path / "hub.yaml").write_text(f'notify: [{{name: office, webhook: "http://{desk.place}/"}}]')
        (tmp_path / "keys.yaml").write_text(KEYS)
        keys = {
            "WRITER_KEY": "a-key-of-the-writer-of-the-tests",
            "OTHER_KEY": "a-key-of-the-other-of-the-tests",
        }
        with HubProcess(tmp_path, "--key", KEY, env=keys) as hub:
            asked = Asked(hub.base)

            def dispatched(by: str, agent: str) -> str:
                form = {"message": "go", "agent": agent, "wait": 30}
                with httpx2.Client(verify=NO_TLS, headers={"X-API-Key": keys[by]}, timeout=60) as client:
                    (task,) = client.post(f"{hub.base}/api/dispatch", json=form).json()["tasks"]
                assert task["state"] == "input-required"
                return task["taskId"]

            first = dispatched("WRITER_KEY", "asker")
            until(lambda: asked.get(f"api/tasks/{first}")["state"] == "completed")
            (closed,) = asked.get("api/inbox?state=closed")["items"]
            assert (closed["taskId"], closed["answeredBy"]) == (first, "writer")
            (heard,) = caller.messages
            assert "Really?" in str(heard)
            # Nobody was told of it. Of what only people answer they are told, and of what no agent asked for.
            told = {dispatched("WRITER_KEY", "strict"), dispatched("OTHER_KEY", "asker")}
            until(lambda: len(desk.heard) == 2)
            assert {one["taskId"] for one in desk.bodies()} == told
            assert len(caller.messages) == 1
            asked.close()
