"""Microsoft's agent-framework: `A2AExecutor` of an agent with a made-up model, on the A2A SDK."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Message,
    ResponseStream,
)
from agent_framework_a2a import A2AExecutor
from starlette.applications import Starlette
from trial import pieces


class Counter(BaseChatClient):
    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            async for piece in pieces(messages[-1].text):
                yield ChatResponseUpdate(
                    role="assistant", contents=[Content.from_text(piece)], message_id="m"
                )

        async def whole() -> ChatResponse:
            text = "".join([piece async for piece in pieces(messages[-1].text)])
            return ChatResponse(messages=[Message(role="assistant", contents=[text])])

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates) if stream else whole()


base = f"http://127.0.0.1:{sys.argv[1]}"
card = AgentCard(
    name="counter",
    description="Counts",
    version="1",
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    capabilities=AgentCapabilities(streaming=True),
    supported_interfaces=[AgentInterface(url=f"{base}/", protocol_binding="JSONRPC", protocol_version="1.0")],
)
executor = A2AExecutor(Agent(client=Counter(), name="counter"), stream=True)
handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card)
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
