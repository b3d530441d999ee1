"""Strands: an agent that is a remote one. It cannot answer a question: each of its calls begins a task."""

from strands.agent.a2a_agent import A2AAgent
from trial import COUNT, run


async def send(base: str) -> str:
    result = await A2AAgent(endpoint=base).invoke_async(COUNT)
    return "".join(content.get("text", "") for content in result.message["content"])


async def stream(base: str) -> str:
    answer = ""
    async for event in A2AAgent(endpoint=base).stream_async(COUNT):
        if "result" in event:
            answer = "".join(content.get("text", "") for content in event["result"].message["content"])
    return answer


run(send, stream)
