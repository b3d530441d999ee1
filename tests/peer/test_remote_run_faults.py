"""A remote agent is told which question is answered, and is waited for while it says that it takes nothing now."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.agents import WORKING, Http, Stand, card, stored, task
from tests.peer.rig import PARKING, PATIENT, calling, served
from tests.run.desk import reason, run, said
from trunkline import Agent, Turn
from trunkline.errors import Unreachable
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient, InProcessResponse
from trunkline.peer.remote_run import AWAY_KEY
from trunkline.run.feed import Feed
from trunkline.run.node import Limits
from trunkline.wire.types import TaskState

COMPLETED = TaskState.COMPLETED


async def forward(turn: Turn) -> str:
    return (await turn.call("peer", "hello")).text


def curious() -> Agent:
    agent = Agent("curious")

    @agent.skill
    async def wonder(turn: Turn) -> str:
        """Ask twice."""
        first = await turn.ask("First?")
        return f"{first}, {await turn.ask('Second?')}"

    return agent


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_an_answer_is_never_taken_there_for_that_to_another_question(limits: Limits) -> None:
    async def main() -> None:
        async with served(curious()) as app, calling(forward, app, limits=limits) as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            assert feed.state.question is not None
            first = feed.state.question.message_id
            if limits is PARKING:
                while feed.state.wake_at is None or feed.state.node:
                    await runner.tasks.move(feed, 5)
            there = app.host.runner
            (remote,) = there.tasks.open_feeds()
            await there.say(remote, said("one"))
            while remote.state.question is None or remote.state.question.parts[0].text != "Second?":
                await there.tasks.move(remote, 5)
            await runner.say(feed, said("to the first"))
            await runner.until_asked(feed, unlike=first)
            assert reason(feed) == "Second?"
            await runner.say(feed, said("two"))
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            assert feed.state.task().artifacts[0].parts[0].text == "one, two"

    run(main())


@pytest.mark.parametrize("status", [503, 429])
def test_an_agent_that_takes_nothing_now_is_waited_for(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("trunkline.client.retry.FIRST_S", 0.0)
    now: list[Any] = [stored(WORKING)]

    def script(asked: Any) -> Any:
        return task(WORKING) if asked.method == "SendMessage" else now[0]

    async def main() -> None:
        stand = Stand(script, card(capabilities={"streaming": False}))
        async with calling(forward, stand) as runner:
            feed = await runner.open("hello")
            child = await runner.child(feed)
            for _ in range(2):
                now[0] = Http(status, {"retry-after": "0"})
                while not is_away(child):
                    await runner.tasks.move(child, 5)
                now[0] = stored(WORKING)
                # It is said that it is back, so that the time it is away is not counted from the first time on.
                while is_away(child):
                    await runner.tasks.move(child, 5)
            now[0] = stored("TASK_STATE_COMPLETED", "done")
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            assert feed.state.task().artifacts[0].parts[0].text == "done"

    run(main())


class Starting:
    """An application that cannot be connected to until `is_up`."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.is_up = False
        self.attempts = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.attempts += 1
        if not self.is_up:
            raise Unreachable("127.0.0.1:9: nobody answers there", reason="connect")
        await self.app(scope, receive, send)


def test_task_waits_for_a_listed_agent_that_was_never_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("trunkline.client.retry.FIRST_S", 0.0)

    async def main() -> None:
        async with served(curious()) as app:
            starting = Starting(app)
            async with calling(forward, starting) as runner:
                feed = await runner.open("hello")
                child = await runner.child(feed)
                while not is_away(child):
                    await runner.tasks.move(child, 5)
                assert child.state.status_message is not None and starting.attempts
                assert (
                    child.state.status_message.parts[0].text == "peer cannot be reached now; the task waits."
                )
                starting.is_up = True
                await runner.reach(feed, TaskState.INPUT_REQUIRED)
                assert reason(feed) == "First?"
                assert len(app.host.runner.tasks.open_feeds()) == 1

    run(main())


def test_message_that_was_never_sent_waits_for_an_agent_that_does_not_deduplicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The card was read before the agent went down, so only the connection for the message is refused."""
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("trunkline.client.retry.FIRST_S", 0.0)
    is_up, opened = False, InProcessHttpClient.open

    async def connect(client: InProcessHttpClient, request: HttpRequest) -> InProcessResponse:
        if request.method == "POST" and not is_up:
            raise Unreachable("127.0.0.1:9: connection refused", reason="connect")
        return await opened(client, request)

    async def main() -> None:
        nonlocal is_up
        monkeypatch.setattr(InProcessHttpClient, "open", connect)
        script = [task(WORKING), stored("TASK_STATE_COMPLETED", "done")]
        stand = Stand(script, card(capabilities={"streaming": False}))
        async with calling(forward, stand) as runner:
            feed = await runner.open("hello")
            child = await runner.child(feed)
            while not is_away(child):
                await runner.tasks.move(child, 5)
            assert (stand.cards, stand.methods) == (1, [])
            is_up = True
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            assert feed.state.task().artifacts[0].parts[0].text == "done"

    run(main())


def test_call_of_an_address_fails_at_once_when_it_cannot_be_reached() -> None:
    async def call_address(turn: Turn) -> str:
        return (await turn.call("http://127.0.0.1:9", "hello")).text

    async def main() -> None:
        async with calling(call_address, Starting(None)) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is TaskState.FAILED
            assert "cannot be reached" in reason(feed)

    run(main())


def is_away(feed: Feed) -> bool:
    known = feed.state.status_message
    return known is not None and AWAY_KEY in (known.metadata or {})
