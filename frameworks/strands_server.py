"""Strands: `A2AServer` of an agent whose model is made up."""

import sys
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent
from strands.models import Model
from strands.multiagent.a2a import A2AServer
from trial import pieces


class Counter(Model):
    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        asked = "".join(content.get("text", "") for content in messages[-1]["content"])
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        async for piece in pieces(asked):
            yield {"contentBlockDelta": {"delta": {"text": piece}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


agent = Agent(name="counter", description="Counts", model=Counter(), callback_handler=None)
A2AServer(agent, host="127.0.0.1", port=int(sys.argv[1])).serve(log_level="error")
