"""An agent over ASGI, the keys of its callers, and the operator's API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from tests.harness import message
from trunkline import Agent, Turn
from trunkline.host import Application

NORTH, SOUTH = "north", "south"
# Who asks: the tenant, and what the key allows.
CALLERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alice": (NORTH, ()),
    "bob": (NORTH, ()),
    "carol": (NORTH, ("answer",)),
    "dave": (NORTH, ("answer",)),
    "root": (NORTH, ("admin",)),
    "stranger": (SOUTH, ("admin",)),
    "all": (SOUTH, ("admin", "operator")),
}
SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


class Office:
    """The application and its callers."""

    def __init__(self, application: Application, client: httpx2.AsyncClient, keys: dict[str, str]) -> None:
        self.application = application
        self.store = application.host.store
        self.keys = keys
        self._client = client

    async def ask(
        self, who: str, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx2.Response:
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"X-API-Key": self.keys[who], "Content-Type": "application/json", **headers}
        return await self._client.request(method, path, content=content, headers=named)

    async def get(self, who: str, path: str) -> Any:
        answer = await self.ask(who, "GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def send(self, who: str, text: str, *, wait: bool = True, **members: Any) -> Any:
        """A task of somebody's, by A2A."""
        body = {"message": message(text, **members), "configuration": {"returnImmediately": not wait}}
        answer = await self.ask(who, "POST", "/message:send", body, **{"A2A-Version": "1.0"})
        assert answer.status_code == 200, answer.text
        return answer.json()["task"]

    async def until(self, task_id: str, state: str) -> Any:
        """The task, once it is in a state."""
        async with asyncio.timeout(30):
            while (found := await self.get("root", f"/api/tasks/{task_id}"))["state"] != state:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found


def agent() -> Agent:
    made = Agent("desk", description="Does what it is told")

    @made.skill(id="work", default=True)
    async def work(turn: Turn) -> str | None:
        """Answer, fail, report, hold or ask."""
        word = turn.text.partition(" ")[0]
        if word == "fail":
            turn.fail("it broke")
        if word == "hold":
            await asyncio.Event().wait()
        if word == "report":
            turn.usage(input_tokens=1, cost_usd=0.25)
            turn.confidence(0.5)
        if word == "write":
            for piece in ("one ", "two"):
                await turn.write(piece)
                await turn.flush()
            await turn.artifact(text="three")
            return None
        if word == "chart":
            await turn.artifact(data={"bars": [1]})
            await turn.artifact(file=b"abcd", filename="chart.png", media_type="image/png")
            return None
        if word == "consider":
            await turn.write("There are two.")
            await turn.flush()
        if word in ("ask", "consider"):
            return f"heard {await turn.ask('Which one?')}"
        if word == "login":
            return f"heard {(await turn.need_auth('Log in at https://login.example')).text}"
        if word == "colour":
            return f"heard {await turn.ask('Which colour?', choices=['red', 'blue'])}"
        if word in ("amount", "amounts"):
            heard = [await turn.ask("How much?", schema=SCHEMA) for _ in range(1 if word == "amount" else 3)]
            return f"heard {heard[-1]}"
        return f"did {turn.text}"

    @made.skill(id="other")
    async def other(turn: Turn) -> str:
        """Answer otherwise."""
        return "otherwise"

    return made


def office(work: Callable[[Office], Awaitable[Any]], store: str = "memory:", **settings: object) -> Any:
    """Do something with a running application."""

    async def main() -> Any:
        application = agent().asgi(store=store, drain_limit=0.2, cancel_limit=0.2, **settings)
        transport = httpx2.ASGITransport(application)
        async with (
            application.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client,
        ):
            made = {
                who: await application.host.key_store.create(who, tenant=tenant, scopes=scopes)
                for who, (tenant, scopes) in CALLERS.items()
            }
            return await work(Office(application, client, {who: one.token for who, one in made.items()}))

    return asyncio.run(main())
