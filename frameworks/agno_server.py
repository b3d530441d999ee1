"""Agno: the A2A interface of its AgentOS, with an agent whose model is made up."""

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS
from trial import pieces


class Counter(Model):
    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        whole = "".join([piece async for piece in pieces(str(kwargs["messages"][-1].content))])
        return ModelResponse(role="assistant", content=whole)

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        async for piece in pieces(str(kwargs["messages"][-1].content)):
            yield ModelResponse(role="assistant", content=piece)

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


agent = Agent(id="counter", name="counter", model=Counter(id="none"), telemetry=False)
app = AgentOS(agents=[agent], a2a_interface=True, telemetry=False).get_app()
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
