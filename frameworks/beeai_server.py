"""BeeAI: `A2AServer` of something that can be run, without a model."""

import sys
from typing import Any

from beeai_framework.adapters.a2a import A2AServer, A2AServerConfig
from beeai_framework.backend import AssistantMessage
from beeai_framework.emitter import Emitter
from beeai_framework.runnable import Runnable, RunnableOutput, runnable_entry
from trial import pieces


class Counter(Runnable[RunnableOutput]):
    @property
    def emitter(self) -> Emitter:
        return Emitter.root().child(namespace=["counter"], creator=self)

    @runnable_entry
    async def run(self, input: Any, /, **kwargs: Any) -> RunnableOutput:
        whole = "".join([piece async for piece in pieces(input[-1].text)])
        return RunnableOutput(output=[AssistantMessage(whole)])


config = A2AServerConfig(host="127.0.0.1", port=int(sys.argv[1]))
A2AServer(config=config).register(Counter(), name="counter", description="Counts").serve()
