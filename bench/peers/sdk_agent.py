"""The bench agent on the official a2a-sdk: `sdk_agent.py PORT memory|sqlite|postgresql://…`."""

from __future__ import annotations

import asyncio
import sys
import uuid
from contextlib import asynccontextmanager

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette


class BenchAgent(AgentExecutor):
    """Does what the text says."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """One task from its first event to its last."""
        task = new_task_from_user_message(context.message)
        task.id, task.context_id = context.task_id, context.context_id
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "hold":
            gate = self.gate
            await updater.start_work()
            await gate.wait()
        if word in {"hold", "chunks"}:
            artifact, count = str(uuid.uuid4()), int(rest)
            for n in range(count):
                part = new_text_part(f"chunk-{n:06d} lorem ipsum dolor sit amet")
                await updater.add_artifact(
                    [part], artifact_id=artifact, name="out", append=n > 0, last_chunk=n == count - 1
                )
        else:
            if word == "release":
                self.gate.set()
                self.gate = asyncio.Event()
            await updater.add_artifact([new_text_part(text)], name="echo")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Never asked for here."""


def sqlite_store() -> TaskStore:
    """WAL and one connection: the default pool answers this load with `database is locked`."""
    from a2a.server.tasks import DatabaseTaskStore
    from sqlalchemy import event
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(
        "sqlite+aiosqlite:///tasks.db", pool_size=1, max_overflow=0, pool_timeout=600
    )

    @event.listens_for(engine.sync_engine, "connect")
    def use_wal(connection, _record) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    return DatabaseTaskStore(engine)


def postgres_store(url: str) -> TaskStore:
    """The pool as it comes, but patient: with the default of 30 s a queue of callers would be errors."""
    from a2a.server.tasks import DatabaseTaskStore
    from sqlalchemy.ext.asyncio import create_async_engine

    url = url.replace("postgresql://", "postgresql+asyncpg://", 1)
    return DatabaseTaskStore(create_async_engine(url, pool_timeout=600))


def task_store(name: str) -> TaskStore:
    """The store that is asked for."""
    if name.startswith("postgresql://"):
        return postgres_store(name)
    return sqlite_store() if name == "sqlite" else InMemoryTaskStore()


def main(port: int, store: str) -> None:
    """Serve until killed."""
    url = f"http://127.0.0.1:{port}/"
    card = AgentCard(
        name="bench",
        description="bench agent",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="echo", description="echo", tags=["bench"])],
    )
    tasks = task_store(store)
    calls = DefaultRequestHandler(agent_executor=BenchAgent(), task_store=tasks, agent_card=card)

    @asynccontextmanager
    async def lifespan(_app: Starlette):
        # Left to the first requests, several of them make the table at once and fail.
        if not isinstance(tasks, InMemoryTaskStore):
            await tasks.initialize()
        yield

    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(calls, "/")]
    app = Starlette(routes=routes, lifespan=lifespan)
    uvicorn.run(app, port=port, log_level="warning", access_log=False, backlog=4096)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
