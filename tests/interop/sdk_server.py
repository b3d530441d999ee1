"""An agent on the official Python SDK that does what the first word of the text says."""

from __future__ import annotations

import asyncio
from typing import Any

from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette

BASE = "http://localhost"


class Obedient(AgentExecutor):
    """`echo`, `count N`, `ask`, `wait` (until it is canceled), `message`, `fail`."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "message":
            await event_queue.enqueue_event(new_text_message(rest))
            return
        asked = context.current_task is not None
        if not asked:
            task = new_task_from_user_message(context.message)
            task.id, task.context_id = context.task_id, context.context_id
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        if word == "ask":
            await updater.requires_input(updater.new_agent_message([new_text_part("Which one?")]))
        elif word == "fail":
            await updater.failed(updater.new_agent_message([new_text_part(rest)]))
        elif word == "wait":
            await asyncio.Event().wait()
        elif word == "count":
            for number in range(int(rest)):
                part = new_text_part(f"{number} ")
                await updater.add_artifact(
                    [part], artifact_id="out", append=number > 0, last_chunk=number == int(rest) - 1
                )
                await asyncio.sleep(0.01)
            await updater.complete()
        else:
            await updater.add_artifact([new_text_part(text)], name="echo")
            await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(*versions: str, base: str = BASE) -> Any:
    """The card, with both bindings in each of these versions."""
    return pb.AgentCard(
        name="Official",
        description="Does what the first word says",
        version="1.0.0",
        supported_interfaces=[
            pb.AgentInterface(url=f"{base}{path}", protocol_binding=binding, protocol_version=version)
            for version in versions
            for binding, path in (("JSONRPC", "/rpc"), ("HTTP+JSON", ""))
        ],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="obey", name="Obey", description="Obeys", tags=["interop"])],
    )


def application(*versions: str, base: str = BASE) -> Starlette:
    """The agent as an ASGI application; 0.3 is served if it is among the versions."""
    made = card(*versions, base=base)
    calls = DefaultRequestHandler(
        agent_executor=Obedient(),
        task_store=InMemoryTaskStore(),
        agent_card=made,
        push_config_store=InMemoryPushNotificationConfigStore(),
        extended_agent_card=made,
    )
    both = "0.3" in versions
    return Starlette(
        routes=[
            *create_agent_card_routes(made),
            *create_jsonrpc_routes(calls, "/rpc", enable_v0_3_compat=both),
            *create_rest_routes(calls, enable_v0_3_compat=both),
        ]
    )
