"""Agents in this process, for the tests of tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trunkline import Agent, Turn
from trunkline.client.client import Client
from trunkline.net.in_process import InProcessHttpClient


@dataclass
class Trip:
    city: str
    days: int = 2


def planner(name: str = "Planner", **settings: object) -> Agent:
    """An agent whose skills end in every way there is."""
    agent = Agent(name, description="Plans", store="memory:", drain_limit=0.1, **settings)

    @agent.skill(tags=["text"])
    async def shout(text: str) -> str:
        """Say it loud."""
        await asyncio.sleep(0.01)
        return text.upper()

    @agent.skill(tags=["travel"])
    async def plan(trip: Trip) -> dict[str, object]:
        """Plan a trip."""
        return {"city": trip.city, "days": trip.days}

    @agent.skill(tags=["travel"])
    async def book(trip: Trip, turn: Turn) -> str:
        """Book a trip."""
        when = await turn.ask("When do you leave?")
        return f"{trip.city} on {when}"

    @agent.skill
    async def paint(turn: Turn) -> str:
        """Paint a wall."""
        colour = await turn.ask("Which colour?")
        return f"{turn.context_id}: {colour}"

    @agent.skill
    async def login(turn: Turn) -> str:
        """Look behind the login."""
        await turn.need_auth("Log in at https://login.example")
        return "inside"

    @agent.skill
    async def fail(turn: Turn) -> None:
        """Fail."""
        turn.fail("the oven is cold")

    @agent.skill
    async def reject(turn: Turn) -> None:
        """Decline."""
        turn.reject("I only bake bread")

    @agent.skill
    async def hang(turn: Turn) -> None:
        """Never end."""
        await asyncio.Event().wait()

    return agent


@asynccontextmanager
async def client_of(agent: Agent, **options: object) -> AsyncIterator[Client]:
    """A client of an agent that runs in this process meanwhile."""
    app = agent.asgi()
    http_client = InProcessHttpClient(app)
    async with app.lifespan(), Client("http://localhost", http_client=http_client, **options) as client:  # pyright: ignore[reportArgumentType]
        yield client
    await http_client.close()
