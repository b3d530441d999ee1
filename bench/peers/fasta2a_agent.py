"""The bench agent on fasta2a, in memory: `fasta2a_agent.py PORT`."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage


class BenchWorker(Worker[Any]):
    """Does what the text says. One operation at a time, as the stock worker does."""

    gate = asyncio.Event()
    held: set[asyncio.Task[None]] = set()

    async def run_task(self, params: TaskSendParams) -> None:
        """One task; a held one goes on beside the worker, which would else be stuck."""
        task_id, context_id = params["id"], params["context_id"]
        text = params["message"]["parts"][0]["text"]
        word, _, rest = text.partition(" ")
        if word == "hold":
            await self.storage.update_task(task_id, state="working")
            await self.publish_status(task_id, context_id, "working")
            work = asyncio.create_task(self.wait_for_release(task_id, context_id, int(rest)))
            self.held.add(work)
            work.add_done_callback(self.held.discard)
        elif word == "chunks":
            await self.chunks(task_id, context_id, int(rest))
        else:
            if word == "release":
                self.gate.set()
                self.gate = asyncio.Event()
            artifact: Artifact = {"artifact_id": str(uuid.uuid4()), "name": "echo", "parts": [{"text": text}]}
            await self.publish_artifact(task_id, context_id, artifact)
            await self.storage.update_task(task_id, state="completed", new_artifacts=[artifact])

    async def wait_for_release(self, task_id: str, context_id: str, count: int) -> None:
        """The second half of a held task, with the closing event the worker sends for others."""
        await self.gate.wait()
        await self.chunks(task_id, context_id, count)
        await self.publish_status(task_id, context_id, "completed")
        await self.broker.event_bus.close(task_id)

    async def chunks(self, task_id: str, context_id: str, count: int) -> None:
        """The same artifact in `count` pieces."""
        parts = [{"text": f"chunk-{n:06d} lorem ipsum dolor sit amet"} for n in range(count)]
        whole: Artifact = {"artifact_id": str(uuid.uuid4()), "name": "out", "parts": parts}
        for n, part in enumerate(parts):
            piece: Artifact = {**whole, "parts": [part]}
            await self.publish_artifact(task_id, context_id, piece, append=n > 0, last_chunk=n == count - 1)
        await self.storage.update_task(task_id, state="completed", new_artifacts=[whole])

    async def cancel_task(self, params: TaskIdParams) -> None:
        """Never asked for here."""

    def build_message_history(self, history: list[Message]) -> list[Any]:
        """Not used: the agent has no memory."""
        return []

    def build_artifacts(self, result: Any) -> list[Artifact]:
        """Not used: artifacts are built above."""
        return []


def main(port: int) -> None:
    """Serve until killed."""
    storage, broker = InMemoryStorage(), InMemoryBroker()

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, BenchWorker(broker=broker, storage=storage).run():
            yield

    app = FastA2A(storage=storage, broker=broker, lifespan=lifespan, url=f"http://127.0.0.1:{port}")
    uvicorn.run(app, port=port, log_level="warning", access_log=False, backlog=4096)


if __name__ == "__main__":
    main(int(sys.argv[1]))
