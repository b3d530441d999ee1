"""AG2: a remote agent in the place of a model; it always streams where the card allows it."""

from ag2 import Agent
from ag2.a2a import A2AConfig
from trial import ASK, COUNT, REPLY, run


async def send(base: str) -> str:
    reply = await Agent("demo", config=A2AConfig(card_url=base, streaming=False)).ask(COUNT)
    return reply.body


async def stream(base: str) -> str:
    reply = await Agent("demo", config=A2AConfig(card_url=base)).ask(COUNT)
    return reply.body


async def again(base: str) -> str:
    reply = await Agent("demo", config=A2AConfig(card_url=base)).ask("echo first")
    return (await reply.ask(COUNT)).body


async def question(base: str) -> str:
    agent = Agent("demo", config=A2AConfig(card_url=base), hitl_hook=lambda event: REPLY)
    return (await agent.ask(ASK)).body


run(send, stream, again, question)
