"""An agent as tool calls need it: tasks that are begun and then followed, asked for and cancelled."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from time import monotonic
from typing import Protocol

from msgspec import Struct

from trunkline.auth.principal import Principal
from trunkline.bridge.tool import Tool
from trunkline.bridge.tools import Toolbox
from trunkline.client.client import Client
from trunkline.client.result import Result
from trunkline.wire.types import Correlation, Part

# How often a task that only adds to its answer is looked at.
_LOOK_S = 0.5


class TaskAgent(Protocol):
    """One agent, for one caller. Each method raises `TrunklineError` where the agent refuses or is away."""

    async def begin(
        self, parts: Sequence[Part], *, skill: str = "", task_id: str = "", question: str = ""
    ) -> Result:
        """Say something: it begins a task, or goes on with one; gives how it stands, without a wait."""
        ...

    def moves(self, task_id: str) -> AsyncGenerator[Result]:
        """The task whenever it has moved, until it rests; the last one is how it rests."""
        ...

    async def get(self, task_id: str) -> Result:
        """The task as it stands."""
        ...

    async def cancel(self, task_id: str) -> Result:
        """Stop the task."""
        ...


class Offer(Struct, frozen=True):
    """A tool, and the agent whose skill it is."""

    tool: Tool
    agent: TaskAgent


class ToolSource(Protocol):
    """What a server of MCP offers to a caller; on this machine alone there is none to tell from another."""

    async def offers(self, caller: Principal | None, correlation: Correlation | None) -> Mapping[str, Offer]:
        """Return the tools by name; their calls belong to the work that `correlation` names."""
        ...


class ClientAgent:
    """An agent that a client calls."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def begin(
        self, parts: Sequence[Part], *, skill: str = "", task_id: str = "", question: str = ""
    ) -> Result:
        """Send the parts without a wait."""
        return await self._client.send(
            list(parts), wait=False, skill=skill, task_id=task_id, question=question
        )

    async def moves(self, task_id: str) -> AsyncGenerator[Result]:
        """The task as its stream, or looking at it, puts it together."""
        looked = 0.0
        async with self._client.subscribe(task_id, through_questions=False) as stream:
            async for update in stream:
                found = stream.result
                if found is not None and (update.kind == "status" or monotonic() - looked >= _LOOK_S):
                    looked = monotonic()
                    yield found
        # What rests is asked for: a stream may be cut short, and what was said last counts.
        yield await self._client.get(task_id)

    async def get(self, task_id: str) -> Result:
        """The task as the agent has it."""
        return await self._client.get(task_id)

    async def cancel(self, task_id: str) -> Result:
        """Have the agent stop it."""
        return await self._client.cancel(task_id)


class ToolboxSource:
    """Offers the tools of a toolbox that have a client behind them."""

    def __init__(self, box: Toolbox) -> None:
        agents: dict[int, ClientAgent] = {}
        self._offers: dict[str, Offer] = {}
        for tool in box:
            peer = box.peer(tool.name)
            if isinstance(peer, Client):
                self._offers[tool.name] = Offer(tool, agents.setdefault(id(peer), ClientAgent(peer)))

    async def offers(self, caller: Principal | None, correlation: Correlation | None) -> Mapping[str, Offer]:
        """Return the same tools for everybody."""
        del caller, correlation
        return self._offers
