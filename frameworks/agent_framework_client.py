"""Microsoft's agent-framework: an agent that is a remote one."""

from agent_framework_a2a import A2AAgent
from trial import ASK, COUNT, REPLY, run


async def send(base: str) -> str:
    async with A2AAgent(name="demo", url=f"{base}/a2a") as agent:
        return (await agent.run(COUNT)).text


async def stream(base: str) -> str:
    async with A2AAgent(name="demo", url=f"{base}/a2a") as agent:
        return "".join([update.text async for update in agent.run(COUNT, stream=True)])


async def question(base: str) -> str:
    async with A2AAgent(name="demo", url=f"{base}/a2a") as agent:
        session = agent.create_session()
        await agent.run(ASK, session=session)
        return (await agent.run(REPLY, session=session)).text


run(send, stream, question)
