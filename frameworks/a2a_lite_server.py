"""a2a-lite: an agent with one skill that streams."""

import sys
from collections.abc import AsyncIterator

import uvicorn
from a2a_lite import Agent
from trial import pieces

agent = Agent(name="counter", description="Counts", url=f"http://127.0.0.1:{sys.argv[1]}")


@agent.skill("count", streaming=True)
async def count(message: str) -> AsyncIterator[str]:
    """Count."""
    async for piece in pieces(message):
        yield piece


uvicorn.run(agent.get_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
