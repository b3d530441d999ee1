"""Microsoft's agent-framework: an agent that is a remote one."""

import asyncio
import sys

from agent_framework_a2a import A2AAgent


async def main(base: str, text: str) -> None:
    async with A2AAgent(name="demo", url=f"{base}/a2a") as agent:
        print((await agent.run(text)).text)


asyncio.run(main(*sys.argv[1:]))
