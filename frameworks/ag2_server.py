"""AG2: `A2AServer` of an agent whose model is made up."""

import sys
from collections.abc import Sequence
from typing import Any

import uvicorn
from ag2 import Agent
from ag2.a2a import A2AServer
from ag2.events import ModelMessage, ModelMessageChunk, ModelResponse
from ag2.testing import TestClient, TestConfig
from trial import pieces


class Counter(TestClient):
    async def __call__(self, messages: Sequence[Any], context: Any, **kwargs: Any) -> ModelResponse:
        whole = ""
        async for piece in pieces(str(messages[-1])):
            whole += piece
            await context.send(ModelMessageChunk(piece))
        message = ModelMessage(whole)
        await context.send(message)
        return ModelResponse(message)


class Config(TestConfig):
    def copy(self) -> "Config":
        return Config()

    def create(self) -> Counter:
        return Counter()


url = f"http://127.0.0.1:{sys.argv[1]}"
app = A2AServer(Agent("counter", config=Config())).build_jsonrpc(url=url)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
