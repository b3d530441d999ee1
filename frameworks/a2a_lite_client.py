"""a2a-lite: its network of agents. It writes skill and arguments as JSON into a text, which comes back."""

import json
from typing import Any

from a2a_lite import AgentNetwork
from trial import ANSWER, run


async def _network(base: str) -> AgentNetwork:
    network = AgentNetwork()
    network.add("demo", base)
    await network.discover("demo")
    return network


def _text(told: Any) -> str:
    return (json.loads(told) if isinstance(told, str) else told)["params"]["text"]


async def send(base: str) -> str:
    return _text(await (await _network(base)).call("demo", "echo", text=ANSWER))


async def stream(base: str) -> str:
    network = await _network(base)
    return _text("".join([str(piece) async for piece in network.stream("demo", "echo", text=ANSWER)]))


run(send, stream)
