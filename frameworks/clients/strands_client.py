"""Strands: an agent that is a remote one."""

import asyncio
import sys

from strands.agent.a2a_agent import A2AAgent


async def main(base: str, text: str) -> None:
    result = await A2AAgent(endpoint=base).invoke_async(text)
    print("".join(content.get("text", "") for content in result.message["content"]))


asyncio.run(main(*sys.argv[1:]))
