"""The agent that the workflows of the vectors delegate to."""

from __future__ import annotations

import asyncio
from typing import Any

from trunkline import Agent

agent = Agent("coder", description="Writes patches")


@agent.skill
async def code(task: str) -> dict[str, Any]:
    """Write a patch; it takes long enough to be looked at while it works."""
    await asyncio.sleep(0.05)
    return {"patch": f"// {task}"}
