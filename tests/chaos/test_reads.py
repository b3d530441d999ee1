"""Row 16: reading changes nothing, whatever a reader does with what it got."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from hashlib import blake2b
from typing import Any

import pytest

from tests.chaos.client import Refusal
from tests.chaos.inside import Inside, inside
from trunkline import Agent, Turn
from trunkline.log.encoding import encode_one
from trunkline.wire.types import Message

READS = 5_000
ASKING = 3


async def _digest(app: Inside) -> bytes:
    """Of every log and head that is stored."""
    digest = blake2b()
    for log in await app.logs():
        digest.update(repr((log.task_id, log.head)).encode())
        for one in log.records:
            digest.update(b"%d %d %b" % (one.seq, one.at, encode_one(one.event)))
    return digest.digest()


def _agent() -> Agent:
    agent = Agent("reads")

    @agent.skill
    async def act(turn: Turn) -> str | None:
        """Write or ask, as the text says."""
        if turn.text == "ask":
            return await turn.ask("which?")
        for place in range(5):
            await turn.write(f"{place} ")
        await turn.artifact(data={"deep": [1, {"er": 2}]})
        return None

    return agent


async def _read(app: Inside, ids: list[str], chance: random.Random) -> None:
    """One read, of any kind; some are refused, and that is an answer too."""
    # The last ones ask; a subscription would wait with them.
    task_id = chance.choice([*ids, "nobody"])
    length: dict[str, Any] = chance.choice(
        [{}, {"historyLength": 0}, {"historyLength": 1}, {"historyLength": 50}]
    )
    match chance.randrange(4):
        case 0:
            await app.answer("GetTask", {"id": task_id, **length})
        case 1:
            query = {"pageSize": chance.randrange(1, 5), "includeArtifacts": chance.random() < 0.5, **length}
            page = await app.ask("ListTasks", query)
            if page["nextPageToken"]:
                await app.ask("ListTasks", {**query, "pageToken": page["nextPageToken"]})
        case 2 if task_id not in ids[-ASKING:]:
            last = (b"last-event-id", b"%d" % chance.randrange(4))
            async with aclosing(app.frames("SubscribeToTask", {"id": task_id}, last)) as frames:
                try:
                    async for _ in frames:
                        if chance.random() < 0.3:
                            break
                except Refusal:
                    return
        case _:
            await app.answer("GetTask", {"id": task_id, "historyLength": -1})


@pytest.mark.slow
def test_a_mix_of_reads_leaves_every_log_as_it_was() -> None:
    chance = random.Random(16)

    async def main() -> None:
        async with inside(_agent()) as app:
            ids = [(await app.send("go"))["id"] for _ in range(6)]
            ids += [(await app.send("ask"))["id"] for _ in range(ASKING)]
            before = await _digest(app)
            for _ in range(READS // 50):
                await asyncio.gather(*(_read(app, ids, chance) for _ in range(50)))
            assert await _digest(app) == before

    asyncio.run(main())


def test_a_skill_may_do_what_it_likes_with_what_it_was_given_and_what_it_gave() -> None:
    agent = Agent("vandal")

    @agent.skill
    async def spoil(turn: Turn) -> str:
        """Change everything that was given, and what was said when it has been said."""
        turn.metadata.clear()
        turn.data[0].clear()
        progress, about = {"kept": 1}, {"kept": 2}
        await turn.status("spoiling", progress)
        await turn.artifact(text="whole", metadata=about)
        for message in (turn.request, await turn.ask_message("more?"), *turn.history):
            _spoil(message)
        progress.clear()
        about.clear()
        return "spoilt"

    async def main() -> None:
        async with inside(agent) as app:
            parts = [{"data": {"kept": [1]}}, {"text": "x"}]
            task = await app.send("", parts=parts, metadata={"kept": {"deep": 1}})
            task = await app.send("", parts=parts, metadata={"kept": {"deep": 2}}, taskId=task["id"])
            mine = [said for said in task["history"] if said["role"] == "ROLE_USER"]
            assert [said["parts"] for said in mine] == [parts, parts]
            assert [said["metadata"] for said in mine] == [{"kept": {"deep": 1}}, {"kept": {"deep": 2}}]
            assert task["artifacts"][0]["metadata"] == {"kept": 2}
            # What is shown is what is stored: nobody changed only one of them.
            (log,) = await app.logs()
            assert b"".join(encode_one(one.event) for one in log.records).count(b'"kept"') == 6

    asyncio.run(main())


def _spoil(message: Message) -> None:
    for holder in (
        message.metadata,
        *(part.data for part in message.parts),
        *(part.metadata for part in message.parts),
    ):
        if isinstance(holder, dict):
            holder.clear()
