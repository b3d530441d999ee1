"""Row 80: hubs and the agents that they give work to are killed in the middle of it, one, the other or both."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from tests.chaos.checker import Violation
from tests.chaos.client import now_ms
from tests.chaos.fleet import ROOT, TARGET, judge
from tests.chaos.history import Death, collect
from tests.chaos.peer import FORGETS, KNOWS, OLD
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row, verdict
from tests.harness import NO_TLS, SECRET, ServerProcess
from trunkline.log.events import Submitted
from trunkline.store.url import store_from_url

STREAMS = "streams"
SETTLE_S = 180.0
OVER = {"completed", "failed", "canceled", "rejected"}
ANSWER = "that one"
_PATH = {"PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))}


class Process(ServerProcess):
    """A hub or an agent that is killed and started again at the same port."""

    def __init__(self, directory: Path, *command: str, name: str) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory, env={**_PATH, **SECRET})
        self.name = name
        self._command = [sys.executable, *(one.replace("PORT", str(self.port)) for one in command)]
        self.up = asyncio.Event()

    async def begin(self) -> None:
        """Start it, and wait until it listens."""
        await asyncio.to_thread(self.start)
        self.up.set()

    async def end(self) -> None:
        """kill -9."""
        self.up.clear()
        await asyncio.to_thread(self.stop, signal.SIGKILL)


class Orders:
    """What was asked for, and the task that each became."""

    agents: tuple[str, ...] = (KNOWS, FORGETS, STREAMS)

    def __init__(self, hubs: list[Process], seed: int) -> None:
        self.hubs = hubs
        self.random = random.Random(seed)
        # By the text of the order, which is unique: its agent and its task.
        self.tasks: dict[str, tuple[str, str]] = {}
        self.refused = self.answered = self.uncertain = self.unsent = 0
        self.broken: list[Violation] = []
        self.stopping = False
        self._number = 0
        self.http = httpx2.AsyncClient(timeout=30, verify=NO_TLS)

    async def call(self, verb: str, path: str, body: Any = None) -> Any:
        """The answer of a hub that is up; None if the connection broke."""
        hub = self.random.choice(self.hubs)
        await hub.up.wait()
        try:
            answer = await self.http.request(verb, f"{hub.base}/api/{path}", json=body)
        except httpx2.HTTPError:
            return None
        return answer.json() if answer.status_code < 500 else None

    async def order(self) -> None:
        """Ask for work again and again, until it is enough; what broke is asked for again."""
        while not self.stopping:
            self._number += 1
            agent = self.random.choice(self.agents)
            text = self._text(agent, self._number)
            task_id, state = await self.begin(agent, text)
            if state == "rejected":
                # Nobody takes it now, and its caller knows.
                self.refused += 1
            else:
                self.tasks[text] = agent, task_id
            await asyncio.sleep(self.random.uniform(0, 0.2))

    async def begin(self, agent: str, text: str) -> tuple[str, str]:
        """Have an agent do something; the task and its state."""
        body = {"agent": agent, "skill": SKILLS.get(agent, agent), "message": text, "correlationId": text}
        while (answer := await self.call("POST", "dispatch", body)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        (task,) = answer["tasks"]
        return task["taskId"], task["state"]

    def _text(self, agent: str, number: int) -> str:
        if agent == STREAMS:
            return f"{self.random.randint(1, 8)} {self.random.randint(10, 120)} #{number}"
        if self.random.random() < 0.3:
            return f"ask #{number}"
        return f"work {self.random.randint(0, 1500)} #{number}"

    async def answer(self) -> None:
        """Answer whatever is asked, for ever."""
        while True:
            page: dict[str, Any] = await self.call("GET", "inbox?limit=200") or {"items": []}
            for item in page["items"]:
                body = {"question": item["question"], "decision": "respond", "text": ANSWER}
                told = await self.call("POST", f"inbox/{item['taskId']}", body)
                self.answered += told is not None and "code" not in told
            await asyncio.sleep(0.3)

    async def settle(self) -> list[Violation]:
        """Wait until everything has ended; what has not is a violation."""
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        left = {task_id for _, task_id in self.tasks.values()}
        while left and asyncio.get_running_loop().time() < deadline:
            for task_id in list(left):
                found = await self.call("GET", f"tasks/{task_id}")
                if found is not None and found.get("state") in OVER:
                    left.discard(task_id)
            await asyncio.sleep(0.2)
        return [Violation("END", task_id, "came to no end") for task_id in left]

    async def judge(self, taken: Counter[str]) -> list[Violation]:
        """Whether each order was done once and tells so; those that are uncertain are counted."""
        found: list[Violation] = []
        for text, (agent, task_id) in self.tasks.items():
            task: dict[str, Any] = await self.call("GET", f"tasks/{task_id}") or {}
            state, error = task.get("state"), str(task.get("error", ""))
            if taken[text] > 1:
                found.append(Violation("TWICE", task_id, f"{agent} has {text!r} {taken[text]} times"))
            if state == "failed" and error.startswith("uncertain") and agent in (FORGETS, OLD):
                self.uncertain += 1
            elif state == "failed" and not taken[text]:
                # Nobody was there when it was to be sent, and its caller is told so.
                self.unsent += 1
            elif state != "completed":
                found.append(Violation("LOST", task_id, f"{agent}, {text!r}: {state} {error}"))
            elif taken[text] != 1 or task["text"].strip() != wanted(agent, text):
                found.append(
                    Violation("WRONG", task_id, f"{agent}, {text!r}, {taken[text]}: {task['text']!r}")
                )
        return found

    def more(self) -> str:
        """What else was counted."""
        return ""

    async def close(self) -> None:
        await self.http.aclose()


SKILLS = {STREAMS: "steady"}


def wanted(agent: str, text: str) -> str:
    if agent == STREAMS:
        return " ".join(str(place * place) for place in range(int(text.split()[0])))
    return f"heard {ANSWER}" if text.startswith("ask") else f"did {text}"


def _agents(run: Run, kinds: tuple[str, ...]) -> dict[str, Process]:
    own = run.directory / "agents"
    own.mkdir()
    made = {
        kind: Process(own, "-m", "tests.chaos.peer", "PORT", f"{own}/{kind}.jsonl", kind, name=kind)
        for kind in kinds
        if kind != STREAMS
    }
    serve = ("-m", "trunkline.cli", "serve", TARGET, "--port", "PORT", "--store", f"sqlite:///{own}/agent.db")
    # What ends it is the row, again and again, and none of its tasks.
    lives = ("--log-level", "warning", "--set", "takeover_limit=1000")
    return {**made, STREAMS: Process(own, *serve, *lives, name=STREAMS)}


def _hubs(run: Run, agents: dict[str, Process]) -> list[Process]:
    lines = [
        f'  - {{name: {name}, url: "{one.base}", skills: [{SKILLS.get(name, name)}]}}'
        for name, one in agents.items()
    ]
    made: list[Process] = []
    for place in range(1 if run.kind == SQLITE else 2):
        folder = run.directory / f"hub{place}"
        folder.mkdir()
        (folder / "agents.yaml").write_text("agents:\n" + "\n".join(lines))
        (folder / "hub.yaml").write_text("settings: {poll_interval: 1s, log_level: warning}")
        command = ("-m", "trunkline.cli", "hub", str(folder), "--port", "PORT", "--store", run.url)
        made.append(Process(folder, *command, name=f"hub{place}"))
    return made


def _taken(run: Run) -> Counter[str]:
    """How often each text has reached an agent and become work there."""
    found: Counter[str] = Counter()
    for file in (run.directory / "agents").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            said = json.loads(line)
            found[said["text"]] += said["new"]
    return found


async def _streamed(run: Run) -> Counter[str]:
    store = store_from_url(f"sqlite:///{run.directory}/agents/agent.db")
    await store.open()
    try:
        firsts = [one.records[0].event for one in await collect(store)]
    finally:
        await store.close()
    return Counter(
        "".join(part.text or "" for part in first.message.parts)
        for first in firsts
        if isinstance(first, Submitted)
    )


@row(
    80, "hub, agent or both killed in the middle of dispatched work; two hubs on PostgreSQL",
    "100 kills a store: nothing lost, every question answered, nothing sent twice; uncertain only where nobody deduplicates",
    SQLITE, POSTGRES, name="fleet",
)  # fmt: skip
async def row_80(run: Run) -> Result:
    return await endure(run, Orders, 100)


async def endure(run: Run, ordering: type[Orders], full: int) -> Result:
    """Kill hubs, agents or both while work is ordered, so many times; then judge what became of each order."""
    kills = run.count(full, option="kills")
    agents = _agents(run, ordering.agents)
    hubs = _hubs(run, agents)
    processes = [*agents.values(), *hubs]
    orders = ordering(hubs, run.seed)
    try:
        for one in processes:
            await one.begin()
        callers = [asyncio.create_task(orders.order()) for _ in range(run.options.get("clients") or 6)]
        answering = asyncio.create_task(orders.answer())
        killed = await _kill(run, kills, orders, [*agents.values()])
        orders.stopping = True
        await asyncio.gather(*callers)
        violations = await orders.settle()
        answering.cancel()
        await agents[STREAMS].end()
        violations += await orders.judge(_taken(run) + await _streamed(run)) + orders.broken
        for hub in hubs:
            code = await asyncio.to_thread(hub.stop)
            violations += [Violation("END", "-", f"{hub.name} ended with {code}")] if code else []
            violations += (
                [Violation("LOG", "-", f"{hub.name} logged a traceback")] if "Traceback" in hub.text() else []
            )
        violations += await judge(run.url, run.history)
    finally:
        await orders.close()
        for one in processes:
            if one.process is not None:
                one.stop(signal.SIGKILL)
    for violation in violations[:12]:
        print(f"    {violation}")
    return verdict(
        violations,
        f"{sum(killed.values())} times killed {dict(killed)}, {len(orders.tasks)} tasks, {orders.answered} answers, "
        f"{orders.refused} refused and {orders.unsent} failed unsent while an agent was away, "
        f"{orders.uncertain} uncertain{orders.more()}",
    )


async def _kill(run: Run, kills: int, orders: Orders, agents: list[Process]) -> Counter[str]:
    killed: Counter[str] = Counter()
    for number in range(kills):
        await asyncio.sleep(run.random.uniform(0.2, 1.5))
        what = run.random.choice(("hub", "agent", "both"))
        victims = [run.random.choice(orders.hubs)] if what != "agent" else []
        victims += [run.random.choice(agents)] if what != "hub" else []
        killed[what] += 1
        for victim in victims:
            run.history.deaths.append(Death(victim.name, now_ms()))
            await victim.end()
        await asyncio.sleep(run.random.uniform(0, 0.5))
        await asyncio.gather(*(victim.begin() for victim in victims))
        run.say(f"{number + 1} of {kills} kills, {len(orders.tasks)} tasks, {orders.answered} answers")
    return killed
