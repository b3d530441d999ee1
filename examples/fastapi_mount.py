"""An agent inside a FastAPI application, behind a key, beside routes of the application's own.

DESK_KEY=a-long-random-key uvicorn fastapi_mount:app
DESK_KEY=a-long-random-key python fastapi_mount.py
"""

import asyncio
import os
import sys

from fastapi import FastAPI

from trunkline import Agent, Client

agent = Agent("desk", description="Knows the opening hours", keys=[os.environ["DESK_KEY"]])
HOURS = {"monday": "9 to 5", "sunday": "closed"}


@agent.skill
def hours(day: str) -> str:
    """Say when the shop is open."""
    return HOURS.get(day.lower(), "10 to 6")


app = FastAPI(lifespan=agent.lifespan)
app.mount("/agents/desk", agent.asgi())
app.mount("/.well-known", agent.card_routes("/agents/desk"))


@app.get("/hours/{day}")
def read_hours(day: str) -> dict[str, str]:
    """The same for a browser: no key, no agent."""
    return {"hours": hours(day)}


async def main(url: str) -> None:
    """Ask the agent; its card is at the origin, so the origin is all that a caller needs."""
    async with Client(url, api_key_env="DESK_KEY") as client:
        print((await client.send("Sunday")).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["http://127.0.0.1:8000"]))
