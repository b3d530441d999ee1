"""CrewAI: what its agents do when they delegate to a remote one, without the model that decides to."""

import asyncio
import sys

from crewai.a2a.utils.delegation import aexecute_a2a_delegation


async def main(base: str, text: str) -> None:
    endpoint = f"{base}/.well-known/agent-card.json"
    result = await aexecute_a2a_delegation(endpoint=endpoint, auth=None, timeout=30, task_description=text)
    print(result.get("result") or result.get("error"))


asyncio.run(main(*sys.argv[1:]))
