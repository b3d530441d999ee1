"""An agent that calls the next one, with the chain it is part of."""

from __future__ import annotations

import os
import uuid
from typing import Any

import httpx2

from trunkline import Agent, Refused, Turn
from trunkline.run.hops import KEY

agent = Agent("ring", description="Hands everything on.", version="1.0.0")


_http = httpx2.AsyncClient(timeout=20, headers={"A2A-Version": "1.0"})


async def _call(text: str, chain: dict[str, Any]) -> str:
    message = {
        "messageId": str(uuid.uuid4()),
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        "metadata": {KEY: chain},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = (await _http.post(f"{os.environ['NEXT']}/a2a", json=body)).json()
    if "error" in answer:
        return f"refused {answer['error']['data'][0]['metadata']['reason']}"
    task = answer["result"]["task"]
    return "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"])


@agent.skill
async def act(turn: Turn) -> str:
    """`line`: the next one once. `stubborn`: so too, whatever the chain says. `tree`: as often as may be."""
    if turn.text == "stubborn":
        known = turn.metadata.get(KEY, {})
        return "task " + await _call("stubborn", {"hops": known.get("hops", 0) + 1, "budget": 1000})
    said: list[str] = []
    try:
        while not said or turn.text == "tree":
            said.append(await _call(turn.text, turn.chain()))
    except Refused as end:
        said.append(f"ended {end.details['reason']}")
    return f"task {' '.join(said)}"
