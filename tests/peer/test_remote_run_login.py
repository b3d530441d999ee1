"""An agent that wants a login goes on by itself, once somebody has logged in there; nobody tells us of it."""

from __future__ import annotations

import pytest

from tests.client.agents import COMPLETED as DONE
from tests.client.agents import WORKING, Error, Stand, card, stored, task
from tests.peer.rig import PARKING, PATIENT, calling
from tests.run.desk import run, said
from trunkline import Turn
from trunkline.log.events import QuestionClosed
from trunkline.run.node import Limits
from trunkline.wire.types import TaskState

AUTH = "TASK_STATE_AUTH_REQUIRED"
NO_STREAMS = card(capabilities={"streaming": False})
FORGOTTEN = Error(-32001, "there is no such task")


async def forward(turn: Turn) -> object:
    return (await turn.call("peer", turn.text)).text


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 0.03)


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_it_is_seen_that_an_agent_goes_on_after_a_login_elsewhere(limits: Limits) -> None:
    looks = [stored(AUTH, "")] * 3
    stand = Stand(
        [task(AUTH), *looks, Error(-32603, "not now"), stored(WORKING, ""), stored(DONE, "let in")],
        NO_STREAMS,
    )

    async def main() -> None:
        async with calling(forward, stand, limits=limits) as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.AUTH_REQUIRED)
            assert await runner.ended(feed) is TaskState.COMPLETED
            child = await runner.child(feed)
            events = [one.event for one in await runner.tasks.records(child)]
            # Asked once, withdrawn once, however often it was looked at.
            asked = [one for one in events if getattr(one, "state", None) is TaskState.AUTH_REQUIRED]
            closed = [one for one in events if isinstance(one, QuestionClosed)]
            assert (len(asked), [one.withdrawn for one in closed]) == (1, [True])
            assert stand.methods == ["SendMessage", *["GetTask"] * len(stand.methods[1:])]

    run(main())


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_who_answers_is_heard_all_the_same(limits: Limits) -> None:
    def script(asked: object) -> object:
        is_answered = len(stand.methods) - stand.methods.count("GetTask") > 1
        return (task if stand.methods[-1] == "SendMessage" else stored)(
            *((DONE,) if is_answered else (AUTH,))
        )

    stand = Stand(script, NO_STREAMS)

    async def main() -> None:
        async with calling(forward, stand, limits=limits) as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.AUTH_REQUIRED)
            while stand.methods.count("GetTask") < 2:
                await runner.tasks.move(feed, 0.05)
            await runner.say(feed, said("I am logged in"))
            assert await runner.ended(feed) is TaskState.COMPLETED
            assert stand.methods.count("SendMessage") == 2

    run(main())


def test_an_agent_that_has_forgotten_who_was_to_log_in_ends_the_task() -> None:
    stand = Stand([task(AUTH), *[FORGOTTEN] * 8], NO_STREAMS)

    async def main() -> None:
        async with calling(forward, stand, limits=PARKING) as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.AUTH_REQUIRED)
            assert await runner.ended(feed) is TaskState.FAILED

    run(main())
