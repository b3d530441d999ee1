"""A cancel and the end of work at the same moment, through a hub: store, answers and streams say the same."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.gateway.model.hub import V1, Caller, opened, run
from tests.harness import message
from trunkline.log.events import Status
from trunkline.wire.types import TERMINAL

AGENTS = "agents:\n  - {name: racer, import: 'cancel_race:agent'}\n"
RACER = """
import asyncio
from collections import defaultdict
from trunkline import Agent, Turn

agent = Agent("Racer")
gates = defaultdict(asyncio.Event)

@agent.skill
async def work(turn: Turn) -> str:
    await gates[turn.text].wait()
    return "done"
"""
SITE = "/v1/a2a/agents/racer"
SEED, ROUNDS = 11, 1000


async def _round(caller: Caller, place: int, hops: int, gates: Any) -> str:
    """The one outcome of a round, however it is asked for."""
    sent = {"message": message(f"round {place}"), "configuration": {"returnImmediately": True}}
    status, told = await caller(f"POST {SITE}/message:send", sent)
    assert status == 200, told
    path = f"{SITE}/tasks/{told['task']['id']}"
    frames = asyncio.create_task(caller.stream(f"{path}:subscribe", {}, V1))
    await caller.until(f"GET {path}", lambda one: one["status"]["state"] == "TASK_STATE_WORKING")
    canceling = asyncio.create_task(caller(f"POST {path}:cancel", {}))
    for _ in range(hops):
        await asyncio.sleep(0)
    gates[f"round {place}"].set()
    status, canceled = await canceling
    kept = await caller.until(f"GET {path}", lambda one: one["status"]["state"] != "TASK_STATE_WORKING")
    state: str = kept["status"]["state"]
    heard = [one["statusUpdate"]["status"]["state"] for one in await frames if "statusUpdate" in one]
    # The stream may have begun before the task was at work.
    assert heard[-1] == state and set(heard[:-1]) <= {"TASK_STATE_WORKING"}, (state, heard)
    if state == "TASK_STATE_CANCELED":
        assert (status, canceled["status"]["state"]) == (200, state)
    else:
        assert (state, canceled["error"]["details"][0]["reason"]) == (
            "TASK_STATE_COMPLETED",
            "TASK_NOT_CANCELABLE",
        )
    tasks = caller.hub.host.runner.tasks
    feed = await tasks.load("default", told["task"]["id"])
    assert feed is not None
    told_of = [one.event.state for one in await tasks.records(feed) if isinstance(one.event, Status)]
    assert [one for one in told_of if one in TERMINAL] == [feed.state.state], told_of
    return state


def test_gp_04_a_cancel_and_an_end_at_once_have_one_outcome_everywhere(tmp_path: Path) -> None:
    (tmp_path / "cancel_race.py").write_text(RACER)
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    outcomes = Counter[str]()

    async def scene() -> None:
        async with opened(tmp_path, AGENTS) as caller:
            await caller.ready("racer")
            gates = sys.modules["cancel_race"].gates
            for place in range(ROUNDS):
                outcomes[await _round(caller, place, chance.randrange(40), gates)] += 1

    run(scene())
    assert set(outcomes) == {"TASK_STATE_CANCELED", "TASK_STATE_COMPLETED"}, outcomes
