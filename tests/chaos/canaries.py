"""Row 89: two tenants ask a hub for everything at once, and no answer holds a word of the other one."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import uuid
from collections import Counter
from typing import Any

import httpx2

from tests.chaos.checker import Violation
from tests.chaos.elsewhere import Process
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row, verdict
from tests.harness import NO_TLS, message

OPERATOR = {"X-API-Key": "operators-key-of-row-89"}
V1 = {"A2A-Version": "1.0"}
AGENTS = 'agents: [{name: shared, import: "canary_agent:agent", tenants: all}]\n'
MODULE = """
from trunkline import Agent, Turn

agent = Agent("Shared")

@agent.skill
async def work(turn: Turn) -> str:
    if turn.text.startswith("ask"):
        return "heard " + await turn.ask("Which one? " + turn.text)
    await turn.artifact(text="first of " + turn.text, name="first")
    return "did " + turn.text
"""
# It says something to whoever follows it, for ever.
ENDLESS = ("/api/bus/subscribe",)
CLIENTS = 8
KEPT = 200


class Tenancy:
    """One tenant: its key, its canary, what it has, and what its answers were."""

    def __init__(self, name: str, key: str, bases: list[str], seed: int) -> None:
        self.name = name
        self.canary = f"canary-of-{name}"
        self.random = random.Random(f"{seed}-{name}")
        self.tasks: list[str] = []
        self.contexts: list[str] = []
        self.paths: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.own = 0
        self.broken: list[Violation] = []
        self._bases = bases
        self._http = httpx2.AsyncClient(timeout=60, verify=NO_TLS, headers={"X-API-Key": key})

    async def ask(self, other: Tenancy, verb: str, path: str, body: Any = None, **headers: str) -> Any:
        """One answer, searched for the other one's canary; nothing if it is no JSON."""
        base = self.random.choice(self._bases)
        answer = await self._http.request(verb, base + path, json=body, headers=headers)
        told = answer.content + repr(answer.headers.multi_items()).encode()
        self.statuses[answer.status_code] += 1
        self.own += self.canary.encode() in told
        if other.canary.encode() in told:
            self.broken.append(Violation("CANARY", "-", f"{verb} {path} told {self.name} of {other.name}"))
        if answer.status_code >= 500 and answer.status_code != 503:
            self.broken.append(Violation("FAULT", "-", f"{verb} {path}: {answer.status_code}"))
        try:
            return json.loads(answer.content)
        except ValueError:
            return {}

    async def furnish(self, other: Tenancy) -> None:
        """Have an agent, a ceremony and the first tasks, all of which hold the canary."""
        entry = {"name": f"{self.name}ern", "url": "http://127.0.0.1:1", "description": self.canary}
        await self.ask(other, "POST", "/api/agents", {**entry, "skills": [self.canary]})
        form = {"id": f"{self.name}-watch", "name": self.canary, "schedule": "0 3 * * *", "skill": "work"}
        await self.ask(other, "POST", "/api/ceremonies/create", form)
        openapi = await self.ask(other, "GET", "/api/openapi.json")
        paths = [path for path, verbs in openapi["paths"].items() if "get" in verbs and "{" not in path]
        self.paths = [path for path in paths if path not in ENDLESS]
        await self.send(other)

    async def send(self, other: Tenancy) -> None:
        """Have something done, in one of the ways there are."""
        text = f"{self.random.choice(('do', 'ask'))} {self.canary} {uuid.uuid4()}"
        base = self.random.choice(("", "/v1/a2a/agents/shared"))
        said = message(text, metadata={"skillHint": "work"})
        way = self.random.choice(("rest", "rpc", "old", "stream", "dispatch"))
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}
        told: dict[str, Any] = {}
        if way == "rest":
            told = await self.ask(other, "POST", f"{base}/message:send", {"message": said}, **V1)
        elif way == "rpc":
            told = await self.ask(other, "POST", f"{base}/a2a", rpc, **V1)
        elif way == "old":
            old = message(text, "0.3", metadata={"skillHint": "work"})
            rpc = {**rpc, "method": "message/send", "params": {"message": old}}
            told = await self.ask(other, "POST", f"{base}/a2a", rpc)
        elif way == "stream":
            await self.ask(other, "POST", f"{base}/message:stream", {"message": said}, **V1)
        else:
            order = {"agent": "shared", "message": text, "wait": 5}
            await self.ask(other, "POST", "/api/dispatch", order)
        result: dict[str, Any] = told.get("result") or told
        task: dict[str, Any] = result.get("task") or result
        if "contextId" in task:
            self.tasks = [*self.tasks[-KEPT:], task["id"]]
            self.contexts = [*self.contexts[-KEPT:], task["contextId"]]

    async def look(self, other: Tenancy) -> None:
        """Ask for what is one's own, or for what is the other one's."""
        whose = other if self.random.random() < 0.5 and other.tasks else self
        task, context = (
            self.random.choice(whose.tasks or ["none"]),
            self.random.choice(whose.contexts or ["none"]),
        )
        base = self.random.choice(("", "/v1/a2a/agents/shared"))
        answer = {"decision": "respond", "text": self.canary}
        ways: list[tuple[str, str, Any]] = [
            ("GET", self.random.choice(self.paths), None),
            ("GET", f"{base}/tasks/{task}", None),
            ("GET", f"{base}/tasks?contextId={context}", None),
            ("GET", f"{base}/tasks?pageSize=20", None),
            ("GET", f"{base}/{whose.name}/tasks", None),
            ("GET", f"/api/tasks/{task}", None),
            ("GET", f"/api/tasks?contextId={context}", None),
            ("GET", f"/api/agents/{whose.name}ern", None),
            ("GET", f"/v1/a2a/agents/{whose.name}ern/agent-card.json", None),
            ("GET", "/.well-known/agent-card.json", None),
            ("GET", f"{base}/extendedAgentCard", None),
            ("GET", f"/api/bus/history?correlationId={context}", None),
            ("POST", f"/api/inbox/{task}", answer),
            ("POST", f"{base}/tasks/{task}:cancel", {}),
            ("POST", f"/api/ceremonies/{whose.name}-watch/update", {"name": self.canary}),
            ("POST", f"{base}/message:send", {"message": message(f"do {self.canary}", contextId=context)}),
        ]
        verb, path, body = self.random.choice(ways)
        await self.ask(other, verb, path, body, **V1)

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()


def _hubs(run: Run) -> list[Process]:
    made: list[Process] = []
    for place in range(1 if run.kind == SQLITE else 2):
        folder = run.directory / f"hub{place}"
        folder.mkdir()
        (folder / "agents.yaml").write_text(AGENTS)
        (folder / "canary_agent.py").write_text(MODULE)
        command = ("-m", "trunkline.cli", "hub", str(folder), "--port", "PORT", "--store", run.url)
        more = ("--key", OPERATOR["X-API-Key"], "--log-level", "error")
        # The agent of each tenant is nowhere, which is all that it needs to be.
        open_to = ("--set", "egress_networks=127.0.0.0/8", "--set", "rate_limit=1000000")
        made.append(Process(folder, *command, *more, *open_to, name=f"hub{place}"))
    return made


async def _tenants(run: Run, hubs: list[Process]) -> list[Tenancy]:
    bases = [hub.base for hub in hubs]
    made: list[Tenancy] = []
    async with httpx2.AsyncClient(timeout=60, verify=NO_TLS, headers=OPERATOR) as boss:
        for name in ("north", "south"):
            answer = await boss.post(f"{bases[0]}/admin/tenants", json={"name": name})
            made.append(Tenancy(name, answer.json()["token"], bases, run.seed))
    return made


@row(
    89, "two tenants ask a hub for everything, their own and the other one's, at once; two hubs on PostgreSQL",
    "100 000 answers: no word of the other tenant in any of them",
    SQLITE, POSTGRES, name="canaries",
)  # fmt: skip
async def row_89(run: Run) -> Result:
    wanted = run.count(100_000, 200)
    hubs = _hubs(run)
    tenants: list[Tenancy] = []
    try:
        for hub in hubs:
            await hub.begin()
        tenants = await _tenants(run, hubs)
        pairs = [tuple(tenants), tuple(tenants[::-1])]

        def answers() -> int:
            return sum([one.statuses.total() for one in tenants])

        async def keep_asking(one: Tenancy, other: Tenancy) -> None:
            while answers() < wanted:
                await (one.send(other) if one.random.random() < 0.2 else one.look(other))
                run.say(f"{answers()} of {wanted} answers")

        for one, other in pairs:
            await one.furnish(other)
        clients = run.options.get("clients") or CLIENTS
        await asyncio.gather(*[keep_asking(*pair) for pair in pairs for _ in range(clients)])
        violations = [found for one in tenants for found in one.broken]
    finally:
        for one in tenants:
            await one.close()
        for hub in hubs:
            if hub.process is not None:
                hub.stop(signal.SIGKILL)
    for violation in violations[:12]:
        print(f"    {violation}")
    statuses = dict(sorted(sum([one.statuses for one in tenants], Counter[int]()).items()))
    told = [one.own for one in tenants]
    # Canaries that nobody has would not be found anywhere.
    return verdict(violations, f"{answers()} answers {statuses}, own canaries in {told}", min(told) > 0)
