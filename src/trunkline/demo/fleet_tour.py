"""The second part of the tour: a hub with scripted agents and the demo agent, in processes of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rich.console import Console
from rich.table import Table

from trunkline.clock import now_ms, random_bits
from trunkline.demo.tour_process import StepFailed, TourProcess, free_port, outlive
from trunkline.fleet.hub_client import HubClient
from trunkline.wire.spellings import timestamp

LIMIT_S = 30.0
TICK_S = 0.05
STEPS, PAUSE_MS = 16, 120
# Steps that are recorded when the first is killed.
BEFORE = 3
# So much later the planned work begins: after the crashes, where nobody is slow.
AHEAD_MS = 4000
# What `trunkline hub init` writes, and who joins it here.
SCRIPTED = ("approver", "reviewer", "writer")
WORKFLOW = "publisher"
JOINED = "stepper"
_LAST_PORT = 65_000
_ENDED = ("completed", "failed", "canceled", "rejected")

Answer = dict[str, Any]
Found = TypeVar("Found")


class HubServer(TourProcess):
    """The workspace that `trunkline hub init` writes, served; the agent at an address has joined it."""

    def __init__(self, directory: Path, port: int, agent: str) -> None:
        self.workspace = directory / "fleet"
        super().__init__(directory, port, ["hub", str(self.workspace)])
        self._agent = agent

    def prepare(self) -> None:
        """Write the workspace."""
        command = [sys.executable, "-m", "trunkline.cli", "hub", "init", str(self.workspace)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StepFailed(done.stderr)
        entry = self.workspace / "agents.d" / f"{JOINED}.yaml"
        entry.parent.mkdir()
        entry.write_text(f"name: {JOINED}\nurl: {self._agent}\n", encoding="utf-8")

    def ask(self, method: str, path: str, body: Answer | None = None) -> Any:
        """Call the operator's API; gives its answer.

        Raises:
            Gone: the hub has ended.
            StepFailed: it refuses.
        """
        with self.checked():
            status, answer = asyncio.run(self._call(method, path, body))
        if status >= 400:  # noqa: PLR2004 - HTTP's own number
            raise StepFailed(f"{method} {path} gave {status}: {answer.decode()}")
        return msgspec.json.decode(answer)

    async def _call(self, method: str, path: str, body: Answer | None) -> tuple[int, bytes]:
        client = HubClient(self.base, "")
        try:
            return await client.ask(method, path, body)
        finally:
            await client.close()


class FleetTour:
    """The steps with the fleet, each checked; the first that does not hold ends the tour.

    Whoever kills the hub or the agent meanwhile has it started again, and the step is taken once more.
    """

    def __init__(self, hub: HubServer, agent: TourProcess, console: Console) -> None:
        self._hub = hub
        self._agent = agent
        self._console = console
        self._ceremony = ""

    def run(self, number: int) -> None:
        """All steps in order, the first with this number.

        Raises:
            StepFailed: something was not as promised.
        """
        steps: list[tuple[str, Callable[[], None]]] = [
            ("A fleet: a hub finds its agents", self._discover),
            ("Plan work by the clock", self._plan),
            ("kill -9 the agent, then the hub, in the middle of routed work", self._crash),
            ("A question of an agent, answered from the inbox", self._answer),
            ("The clock has begun what was planned, once", self._fire),
            ("A workflow: two agents, then a person, and the hub dies in between", self._walk),
        ]
        self._hub.prepare()
        for place, (title, step) in enumerate(steps, number):
            self._console.print(f"\n[bold cyan]{place}. {title}[/]")
            self._survive(step)

    def _survive(self, step: Callable[[], None]) -> None:
        def take() -> None:
            for server in (self._agent, self._hub):
                if not server.runs:
                    server.start()
            step()

        given_up = "somebody kills the hub or its agent each time the tour takes this step"
        outlive(take, lambda gone: self._console.print(f"   [yellow]{gone}[/]"), given_up)

    def _discover(self) -> None:
        def look() -> list[Answer]:
            found: list[Answer] = self._hub.ask("GET", "/agents")["items"]
            return found if all([one["state"] == "ready" for one in found]) else []

        agents = self._until("every agent's card", look)
        if sorted([one["name"] for one in agents]) != sorted([*SCRIPTED, WORKFLOW, JOINED]):
            raise StepFailed(f"the hub has found {[one['name'] for one in agents]}")
        table = Table("agent", "state", "skills", box=None, padding=(0, 2, 0, 1))
        for one in agents:
            table.add_row(one["name"], one["state"], ", ".join([skill["id"] for skill in one["skills"]]))
        self._console.print(table)
        self._console.print(
            f"   what `trunkline hub init` writes, a workflow among it, and the demo agent as {JOINED}"
        )

    def _plan(self) -> None:
        self._ceremony = f"tour-{random_bits(32):08x}"
        form = {"id": self._ceremony, "name": "Two steps", "schedule": timestamp(now_ms() + AHEAD_MS),
                "skill": "steps", "message": "2 0", "targets": [JOINED]}  # fmt: skip
        kept = self._hub.ask("POST", "/ceremonies/create", form)
        self._console.print(f"   ceremony {kept['id']}  two steps by {JOINED} at {kept['schedule']}")

    def _crash(self) -> None:
        task_id = self._dispatch(skill="steps", message=f"{STEPS} {PAUSE_MS}")
        self._until("the first steps", lambda: len(self._task(task_id).get("text", "").split()) >= BEFORE)
        why = self._hub.ask("GET", f"/tasks/{task_id}/route")["reason"]
        self._console.print(f"   task {task_id}  {why}")
        self._die("agent", self._agent)
        self._die("hub", self._hub)
        text = self._ended(task_id)["text"]
        if [word.partition("@")[0] for word in text.split()] != [str(1 + place) for place in range(STEPS)]:
            raise StepFailed(f"the steps were {text!r}")
        self._console.print(f"   {text.strip()}")
        self._console.print(
            f"   task {task_id}  [green]completed[/]  no step was lost, no recorded step was taken again"
        )

    def _die(self, name: str, server: TourProcess) -> None:
        self._console.print(f"   killing the {name}, process {server.pid}")
        server.kill()
        seconds = server.start()
        self._console.print(f"   the {name} is back after {seconds:.2f} s as process {server.pid}")

    def _answer(self) -> None:
        task_id = self._dispatch(agent="approver", message="The note is ready.")
        self._question(task_id)
        self._hub.ask("POST", f"/inbox/{task_id}", {"decision": "respond", "text": "Yes."})
        text = self._ended(task_id)["text"]
        if text != "Approved.":
            raise StepFailed(f"approver said {text!r}")
        self._console.print(f"   task {task_id}  [green]completed[/]  {text}")

    def _question(self, task_id: str) -> None:
        def look() -> list[Answer]:
            return [one for one in self._hub.ask("GET", "/inbox")["items"] if one["taskId"] == task_id]

        (question,) = self._until("a question in the inbox", look)
        self._console.print(f"   task {task_id}  [magenta]input-required[/]  {question['text']}")

    def _walk(self) -> None:
        task_id = self._dispatch(agent=WORKFLOW, message="A note about tides")
        self._question(task_id)
        self._die("hub", self._hub)
        self._hub.ask("POST", f"/inbox/{task_id}", {"decision": "edit", "data": {"approved": True}})
        ended = self._ended(task_id)
        results, children = ended["data"], len(ended["children"])
        is_approved = len(results) == 1 and results[0].get("approved") is True
        if not is_approved or children != len(("writer", "reviewer")):
            raise StepFailed(f"the workflow returned {results} after {children} delegations")
        result = results[0]
        self._console.print(f"   task {task_id}  [green]completed[/]  {result['draft']} {result['review']}")
        self._console.print("   each agent was asked once: what is recorded is not done again")

    def _fire(self) -> None:
        def look() -> list[Answer]:
            runs: list[Answer] = self._hub.ask("GET", f"/ceremonies/{self._ceremony}/runs")["items"]
            return [] if any([run["status"] in ("queued", "running") for run in runs]) else runs

        runs = self._until("the planned run", look)
        if [run["status"] for run in runs] != ["success"]:
            raise StepFailed(f"the runs were {runs}")
        self._console.print(
            f"   run {runs[0]['runId']}  [green]{runs[0]['status']}[/]  "
            f"planned for {runs[0]['plannedAt']}, begun at {runs[0]['startedAt']}"
        )

    def _dispatch(self, **form: str) -> str:
        (task,) = self._hub.ask("POST", "/dispatch", form)["tasks"]
        return task["taskId"]

    def _task(self, task_id: str) -> Answer:
        return self._hub.ask("GET", f"/tasks/{task_id}")

    def _ended(self, task_id: str) -> Answer:
        def look() -> Answer | None:
            task = self._task(task_id)
            return task if task["state"] in _ENDED else None

        task = self._until(f"the end of task {task_id}", look)
        if task["state"] != "completed":
            raise StepFailed(f"task {task_id} is {task['state']}: {task.get('error', '')}")
        return task

    def _until(self, what: str, look: Callable[[], Found | None]) -> Found:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if found := look():
                return found
            self._agent.check_alive()
            time.sleep(TICK_S)
        raise StepFailed(f"{what} did not come in {LIMIT_S:.0f} s")


def show_fleet(directory: Path, agent: TourProcess, console: Console, number: int) -> None:
    """Take the steps with a hub that ends with them; the first has this number.

    Raises:
        StepFailed: something was not as promised.
    """
    # The scripted agents are served on the port after the hub's, so neither is that of the agent.
    hub = HubServer(directory, free_port(min(agent.port + 1, _LAST_PORT)), agent.base)
    try:
        FleetTour(hub, agent, console).run(number)
    finally:
        hub.stop()
