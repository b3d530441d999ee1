"""BeeAI: an agent that is a remote one; it keeps the task that waits for an answer."""

from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.memory import UnconstrainedMemory
from trial import ASK, COUNT, REPLY, run


async def send(base: str) -> str:
    agent = A2AAgent(url=base, memory=UnconstrainedMemory())
    return (await agent.run(COUNT, streaming=False)).last_message.text


async def stream(base: str) -> str:
    return (await A2AAgent(url=base, memory=UnconstrainedMemory()).run(COUNT)).last_message.text


async def question(base: str) -> str:
    agent = A2AAgent(url=base, memory=UnconstrainedMemory())
    await agent.run(ASK)
    return (await agent.run(REPLY)).last_message.text


run(send, stream, question)
