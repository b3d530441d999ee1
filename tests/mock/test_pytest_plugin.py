"""The fixtures, in a pytest run of their own as a user has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mock.inner import run_tests

INNER = '''
import asyncio
import http.client
from urllib.parse import urlsplit

import pytest

from trunkline import Agent
from trunkline.client.client import Client
from trunkline.mock.scenario import Expect, Reply, Rule, Scenario, When

RULES = [Rule(when=When(contains="hello"), reply="Hi there"), Rule(reply=Reply(ask="Which?", then="Thanks"))]
agent = Agent("scribe")


@agent.skill
async def shout(turn):
    """Shout."""
    await turn.write(turn.text.upper())


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_a_mock_without_a_loop(a2a_mock, a2a_client):
    mock = a2a_mock(RULES)
    client = a2a_client(mock)
    assert client.send("hello you").text == "Hi there"
    chat = client.chat()
    assert chat.say("book").question == "Which?"
    assert chat.say("that one").text == "Thanks"
    assert [message.parts[0].text for message in mock.messages] == ["hello you", "book", "that one"]
    assert set(mock.runs.values()) == {1}
    assert mock.hits["rule 1"] == 1


def test_an_answer_that_takes_its_time(a2a_mock):
    """The question is over as soon as it is answered, not only when the reply begins."""
    script = Reply(ask="Which one?", then=Reply(text="This one.", delay=0.4))

    async def main() -> list[str]:
        async with a2a_mock(script).client() as client:
            first, second = await client.send("begin"), await client.send("begin")
            whole = await client.send("red", task_id=first.task_id)
            streamed = await client.stream("red", task_id=second.task_id).finish()
            return [whole.text, streamed.text]

    assert asyncio.run(main()) == ["This one.", "This one."]


def test_a_mock_with_a_loop_of_the_tests_own(a2a_mock):
    async def main():
        async with a2a_mock(Reply(stream=("a", "b"))).client() as client:
            return [update.text async for update in client.stream("x") if update.text]

    assert asyncio.run(main()) == ["a", "b"]


@pytest.mark.anyio
async def test_a_mock_in_an_async_test(a2a_mock):
    async with a2a_mock(RULES).client() as client:
        assert (await client.send("hello")).text == "Hi there"


@pytest.mark.anyio
async def test_an_agent_in_an_async_test(a2a_agent):
    async with a2a_agent(agent).client() as client:
        assert (await client.send("abc")).text == "ABC"


def test_an_agent_without_a_loop(a2a_agent, a2a_client):
    client = a2a_client(a2a_agent(agent))
    assert client.send("abc").text == "ABC"
    assert client.list().total_size == 1
    assert a2a_client(agent).list().total_size == 0


def test_a_file_and_a_text(a2a_mock, a2a_client, tmp_path):
    text = "rules:\\n  - reply: from yaml\\n"
    (tmp_path / "scenario.yaml").write_text(text)
    assert a2a_client(a2a_mock(tmp_path / "scenario.yaml")).send("x").text == "from yaml"
    assert a2a_client(text).send("x").text == "from yaml"


def test_a_real_address_for_other_clients(a2a_mock, a2a_agent):
    for here in (a2a_mock(RULES), a2a_agent(agent)):
        connection = http.client.HTTPConnection(urlsplit(here.listen()).netloc, timeout=60)
        connection.request("GET", "/.well-known/agent-card.json")
        assert connection.getresponse().status == 200
        connection.close()
        assert here.url == here.listen()


def test_what_is_expected_is_verified(a2a_mock):
    a2a_mock(Scenario(expect=(Expect(when=When(contains="never sent")),)))
'''


def test_the_fixtures_work_for_a_user(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(INNER, encoding="utf-8")
    said = run_tests(tmp_path)
    assert "9 passed, 1 error" in said, said
    assert "expected at least 1 of messages with contains 'never sent', and 0 came" in said


def test_the_plugin_loads_next_to_nothing() -> None:
    code = """
import sys
import pytest, trunkline
before = set(sys.modules)
import trunkline.mock.pytest_plugin
print(sorted(name for name in set(sys.modules) - before if not name.startswith("trunkline.mock")))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
