"""A real agent is recorded through the proxy, and the recording gives the same results without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.mock.talk import replying
from trunkline.client.client import Client
from trunkline.client.result import Result
from trunkline.demo.agent import agent as demo
from trunkline.errors import Misuse, Refused
from trunkline.mock import faults as f
from trunkline.mock.app import Mock
from trunkline.mock.quirks import Quirks
from trunkline.mock.recorder import Recorder
from trunkline.mock.scenario import (
    Failure,
    Persona,
    Reply,
    Rule,
    Scenario,
    ScriptedArtifact,
    ScriptedAuth,
    ScriptedPart,
    When,
)
from trunkline.mock.script import read_scenarios, write_scenario
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient

BINDINGS = [("1.0", "JSONRPC"), ("0.3", "JSONRPC"), ("1.0", "HTTP+JSON"), ("0.3", "HTTP+JSON")]


def shown(result: Result) -> tuple[Any, ...]:
    """What a caller sees of a result, but for ids."""
    artifacts = [(each.artifact_id, each.name, each.parts) for each in result.artifacts]
    return result.text, result.state, result.question, artifacts, result.data


async def conversation(client: Client) -> list[Any]:
    """Sends, streams, a question, files, failures: everything that has a result."""
    found: list[Any] = [shown(await client.send(text)) for text in ("echo hi", "file", "data", "usage")]
    for text in ("chunks 3", "count 3"):
        stream = client.stream(text)
        found.append([update.text async for update in stream if update.text])
        found.append(shown(await stream.finish()))
    for text in ("fail broken", "reject no", "message direct"):
        found.append(shown(await client.send(text)))
    chat = client.chat()
    found += [shown(await chat.say("ask Which?")), shown(await chat.say("blue"))]
    receipt = await client.send("count 2 20", wait=False)
    found.append(shown(await client.wait(receipt.task_id)))
    card = await client.card()
    found.append((card.name, card.skills, card.streaming))
    return found


async def recorded(app: Any, talk: Any, **options: Any) -> tuple[Any, Scenario]:
    """What a conversation gives through the proxy, and the recording of it."""
    recorder = Recorder("http://real.example", InProcessHttpClient(app, base=""))
    inside = InProcessHttpClient(recorder)
    async with Client("http://localhost", http_client=inside, poll_s=0.05, **options) as client:
        found = await talk(client)
    await inside.close()
    return found, recorder.recording.scenario()


async def replayed(scenario: Scenario, talk: Any, **options: Any) -> Any:
    mock = Mock(scenario)
    async with Client(
        "http://localhost", http_client=InProcessHttpClient(mock), poll_s=0.05, **options
    ) as client:
        found = await talk(client)
    await mock.close()
    assert not mock.hits[""]
    return found


@pytest.mark.parametrize(("version", "binding"), BINDINGS)
def test_a_recording_of_the_demo_agent_gives_the_same(version: str, binding: str) -> None:
    async def main() -> None:
        app = demo.asgi(store="memory:", drain_limit=1, public_url="http://real.example")
        options = {"version": version, "bindings": [binding]}
        async with asyncio.timeout(30), app.lifespan():
            real, scenario = await recorded(app, conversation, **options)
        text = write_scenario(scenario)
        (again,) = read_scenarios(text)
        assert again == scenario
        assert "real.example" not in text
        assert await replayed(again, conversation, **options) == real

    asyncio.run(main())


def test_what_was_recorded_by_one_binding_replays_by_another() -> None:
    async def talk(client: Client) -> Any:
        return shown(await client.send("hello")), shown(await client.stream("hello").finish())

    async def main() -> None:
        app = Mock(replying(Reply(stream=("a", "b"), data={"n": 1}, say="done")))
        real, scenario = await recorded(app, talk, version="0.3", bindings=["JSONRPC"])
        assert await replayed(scenario, talk, version="1.0", bindings=["HTTP+JSON"]) == real
        assert len(scenario.rules) == 2

    asyncio.run(main())


def test_no_secret_and_no_id_gets_into_the_file() -> None:
    ids: list[str] = []

    async def talk(client: Client) -> Any:
        result = await client.send("hello", message_id="message-0815")
        ids.extend((result.task_id, result.context_id))
        return result.text

    reply = Reply(
        artifacts=(
            ScriptedArtifact(id="${task.id}-a", parts=(ScriptedPart(text="${context.id} ${message.id}"),)),
        )
    )

    async def main() -> None:
        app = Mock(replying(reply, agent=Persona(auth=ScriptedAuth(bearer="s3cret-token"))))
        _, scenario = await recorded(app, talk, bearer="s3cret-token")
        text = write_scenario(scenario)
        for kept in ("s3cret", "message-0815", *ids):
            assert kept not in text
        assert "${context.id} ${message.id}" in text
        first = list(ids)
        said = await replayed(scenario, talk)
        assert said == f"{ids[3]} message-0815"
        assert first != ids[2:]

    asyncio.run(main())


def test_the_same_message_with_another_reply_is_told_in_its_turn() -> None:
    rules = (Rule(reply="one", times=1), Rule(reply="two", times=1), Rule(reply="three"))

    async def talk(client: Client) -> list[str]:
        return [(await client.send("again")).text for _ in range(4)]

    async def main() -> None:
        real, scenario = await recorded(Mock(Scenario(rules=rules)), talk)
        assert [rule.times for rule in scenario.rules] == [1, 1, None]
        assert await replayed(scenario, talk) == real == ["one", "two", "three", "three"]

    asyncio.run(main())


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_refusals_are_recorded(binding: str) -> None:
    async def talk(client: Client) -> list[str]:
        found: list[str] = []
        for text in ("error", "gone", "held"):
            try:
                result = await client.send(text, wait=text != "held")
                found.append((await client.cancel(result.task_id)).state.name)
            except Refused as refused:
                found.append(f"{type(refused).__name__} {refused.message}")
        return found

    rules = (
        Rule(
            when=When(text="error"),
            reply=Reply(error=Failure(code=-32005, message="no pictures")),
        ),
        Rule(when=When(text="gone"), faults=(f.status(403),)),
        Rule(when=When(text="held"), reply=Reply(hold=True)),
    )

    async def main() -> None:
        real, scenario = await recorded(Mock(Scenario(rules=rules)), talk, bindings=[binding], retries=0)
        again = await replayed(scenario, talk, bindings=[binding], retries=0)
        assert [each.split()[0] for each in again] == [each.split()[0] for each in real]
        assert [each.split()[0] for each in real] == ["ContentTypeNotSupported", "Forbidden", "CANCELED"]

    asyncio.run(main())


def test_timing_is_kept_if_asked_for() -> None:
    async def main() -> Scenario:
        app = Mock(replying(Reply(stream=("a", "b"), pause=0.03)))
        recorder = Recorder("http://real.example", InProcessHttpClient(app, base=""), timing=True)
        async with Client("http://localhost", http_client=InProcessHttpClient(recorder)) as client:
            await client.stream("x").finish()
        return recorder.recording.scenario()

    reply = asyncio.run(main()).rules[0].reply
    assert isinstance(reply, Reply)
    assert sum(step.delay > 0.02 for step in reply.steps) == 3


def test_an_agent_that_is_not_there_and_one_that_is_none() -> None:
    async def main() -> int:
        recorder = Recorder(
            "http://real.example", InProcessHttpClient(Mock(replying("x")), base="http://other.example")
        )
        async with Client("http://localhost", http_client=InProcessHttpClient(recorder), retries=0) as client:
            with pytest.raises(Exception, match="502"):
                await client.send("x")
        return recorder.recording.count

    assert asyncio.run(main()) == 0
    with pytest.raises(Misuse, match="is not the URL of an agent"):
        Recorder("agents.example", InProcessHttpClient(Mock(replying("x"))))


def test_a_stream_that_breaks_off_is_passed_on_broken() -> None:
    async def talk(client: Client) -> Any:
        return shown(await client.stream("hello").finish())

    async def main() -> None:
        app = Mock(replying(Reply(stream=("a", "b", "c"), pause=0.01), f.cut(3, requests=[1])))
        real, scenario = await recorded(app, talk)
        assert real[0] == "abc"
        assert app.runs.total() == 1
        # What the stream did not tell any more was heard from the one that went on with it.
        assert await replayed(scenario, talk) == real

    asyncio.run(main())


def test_a_card_that_leads_elsewhere_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(client: Client) -> str:
        return (await client.send("hello")).text

    async def main() -> None:
        app = Mock(replying("Hi", agent=Persona(url="http://third.example", versions=("0.3",))))
        real, _ = await recorded(app, talk)
        assert real == "Hi"

    asyncio.run(main())
    assert "mock.elsewhere url=http://third.example/a2a" in caplog.text


def test_an_odd_dialect_is_understood() -> None:
    async def talk(client: Client) -> Any:
        return shown(await client.send("hello"))

    async def main() -> None:
        manner = Quirks(writes="0.3", kind=False, states="underscore", rest=False, claims=("0.3",))
        real, scenario = await recorded(Mock(replying(Reply(ask="Which?"), dialect=manner)), talk)
        assert await replayed(scenario, talk) == real

    asyncio.run(main())


def test_the_proxy_lets_no_host_and_no_page_in_that_the_agent_would_not() -> None:
    async def asked(recorder: Recorder, url: str, *headers: tuple[str, str]) -> int:
        inside = InProcessHttpClient(recorder, base="")
        response = await inside.open(HttpRequest("GET", url, headers, None))
        await response.read(1 << 20)
        await response.close()
        await inside.close()
        return response.status

    async def main() -> None:
        def made(**options: Any) -> Recorder:
            app = Mock(replying(Reply(say="secret")))
            return Recorder("http://real.example", InProcessHttpClient(app, base=""), **options)

        card = "/.well-known/agent-card.json"
        assert await asked(made(), f"http://localhost{card}") == 200
        assert await asked(made(), f"http://rebound.example{card}") == 403
        assert await asked(made(), f"http://localhost{card}", ("origin", "http://page.example")) == 403
        assert await asked(made(hosts=["rebound.example"]), f"http://rebound.example{card}") == 200
        assert await asked(made(hosts=()), f"http://rebound.example{card}") == 200

    asyncio.run(main())
