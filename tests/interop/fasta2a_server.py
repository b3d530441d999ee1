"""An agent on fasta2a that does what the first word of the text says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage


class Obedient(Worker[Any]):
    """`echo`, `count N`, `ask`, `wait` (until it is canceled). One operation at a time, as the stock worker."""

    async def run_task(self, params: TaskSendParams) -> None:
        task_id, context_id = params["id"], params["context_id"]
        text = params["message"]["parts"][0]["text"]
        word, _, rest = text.partition(" ")
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        if word == "wait":
            return
        if word == "ask":
            question: Message = {
                "role": "agent",
                "message_id": f"question-{task_id}",
                "parts": [{"text": "Which one?"}],
            }
            await self.storage.update_task(task_id, state="input-required", new_messages=[question])
            return
        pieces = [f"{number} " for number in range(int(rest))] if word == "count" else [text]
        whole: Artifact = {"artifact_id": "out", "parts": [{"text": piece} for piece in pieces]}
        for place, piece in enumerate(pieces):
            part: Artifact = {"artifact_id": "out", "parts": [{"text": piece}]}
            await self.publish_artifact(
                task_id, context_id, part, append=place > 0, last_chunk=place == len(pieces) - 1
            )
            await asyncio.sleep(0.005)
        await self.storage.update_task(task_id, state="completed", new_artifacts=[whole])

    async def cancel_task(self, params: TaskIdParams) -> None:
        task = await self.storage.load_task(params["id"])
        assert task is not None
        await self.storage.update_task(task["id"], state="canceled")
        await self.publish_status(task["id"], task["context_id"], "canceled")
        await self.broker.event_bus.close(task["id"])

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return []

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return []


def application() -> FastA2A:
    """The agent as an ASGI application, at the origin."""
    storage, broker = InMemoryStorage(), InMemoryBroker()

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, Obedient(broker=broker, storage=storage).run():
            yield

    return FastA2A(
        storage=storage, broker=broker, lifespan=lifespan, url="http://localhost", name="Fast", docs_url=None
    )
