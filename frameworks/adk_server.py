"""Google's ADK: `to_a2a` of an agent whose model is made up."""

import sys
from collections.abc import AsyncIterator

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from trial import pieces


class Model(BaseLlm):
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        asked = "".join(part.text or "" for part in llm_request.contents[-1].parts or [])
        whole = ""
        async for piece in pieces(asked):
            whole += piece
            if stream:
                yield LlmResponse(content=_said(piece), partial=True)
        yield LlmResponse(content=_said(whole))


def _said(text: str) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text=text)])


port = int(sys.argv[1])
agent = LlmAgent(name="counter", description="Counts", model=Model(model="none"))
uvicorn.run(to_a2a(agent, host="127.0.0.1", port=port), host="127.0.0.1", port=port, log_level="error")
