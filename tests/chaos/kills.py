"""Rows 91 to 95: processes are killed at random moments while work is planned, waits and cools down."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from glob import glob

from tests.chaos.checker import Violation
from tests.chaos.client import now_ms
from tests.chaos.elsewhere import Process, judge
from tests.chaos.history import Death
from tests.chaos.planned import (
    COOLS,
    MINUTE_MS,
    SHIFT_MS,
    WAITS,
    WORKS,
    StoreClock,
    Workload,
    check_planned,
    read_done,
)
from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row, verdict

TARGET = "0 planned runs lost or doubled, 0 runs failed for waiting, 0 dispatches refused for work never done"
KILLS = 200
DAY_S = 86_400
# A breaker may leave an agent alone for minutes, and its work is done after that.
SETTLE_S = 900.0
DRAIN_S = 3.0
# How long the agent works at most; `--scale` shortens it.
LONGEST_MS = 3000
WORKFLOW = """\
document: {schema: "https://agent-workflow.dev/schemas/workflow-definition.json", name: waits, version: 1.0.0}
state_schema: {type: object, properties: {text: {type: string}, task: {type: string}}}
nodes:
  - {id: begin, type: start}
  - {id: keep, type: set_state, config: {assignments: {task: {jq: .text}}}}
  - {id: pause, type: wait, config: {kind: duration, duration: 1s}}
  - {id: first, type: agent_delegate, config: {agent_id: knows, protocol: a2a, input_mapping: {task: {jq: '.task + " a"'}}}}
  - {id: again, type: wait, config: {kind: duration, duration: 500ms}}
  - {id: second, type: agent_delegate, config: {agent_id: knows, protocol: a2a, input_mapping: {task: {jq: '.task + " b"'}}}}
  - {id: done, type: end}
edges:
  - {source: __start__, target: begin}
  - {source: begin, target: keep}
  - {source: keep, target: pause}
  - {source: pause, target: first}
  - {source: first, target: again}
  - {source: again, target: second}
  - {source: second, target: done}
"""


class Scene:
    """The hubs over one store, the agent that they share, and the clock of the store."""

    def __init__(self, run: Run, hubs: int) -> None:
        self.run = run
        self.clock = StoreClock()
        own = run.directory / "agent"
        self.file = own / "done.jsonl"
        self.agent = Process(own, "-m", "tests.chaos.peer", "PORT", str(self.file), WORKS, name="agent")
        self.hubs = [self._hub(place) for place in range(hubs)]

    @property
    def processes(self) -> list[Process]:
        """Everything that runs."""
        return [self.agent, *self.hubs]

    def _hub(self, place: int) -> Process:
        folder = self.run.directory / f"hub{place}"
        (folder / "workflows").mkdir(parents=True)
        (folder / "workflows" / "waits.yaml").write_text(WORKFLOW)
        (folder / "agents.yaml").write_text(
            "agents:\n"
            f'  - {{name: {WORKS}, url: "{self.agent.base}", skills: [{WORKS}]}}\n'
            f'  - {{name: {COOLS}, url: "{self.agent.base}", skills: [{WORKS}], cooldown: {{{WORKS}: 1h}}}}\n'
            f"  - {{name: {WAITS}, workflow: workflows/waits.yaml}}\n"
        )
        (folder / "hub.yaml").write_text(
            f"settings: {{poll_interval: 0.5, drain_limit: {DRAIN_S:.0f}s, log_level: warning}}"
        )
        command = ("-m", "trunkline.cli", "hub", str(folder), "--port", "PORT", "--store", self.run.url)
        return Process(folder, *command, name=f"hub{place}")

    async def kill(self, victim: Process) -> None:
        """Kill a process, and start it again a little later."""
        self.run.history.deaths.append(Death(victim.name, now_ms()))
        await victim.end()
        await asyncio.sleep(self.run.random.uniform(0, 0.5))
        await victim.begin()

    async def kill_hub(self) -> None:
        """Kill one of the hubs."""
        await self.kill(self.run.random.choice(self.hubs))

    async def kill_agent(self) -> None:
        """Kill the agent."""
        await self.kill(self.agent)

    async def kill_draining_hub(self) -> None:
        """Kill one of the hubs at some moment after SIGTERM, unless it has ended before."""
        victim = self.run.random.choice(self.hubs)
        assert victim.process is not None
        self.run.history.deaths.append(Death(victim.name, now_ms()))
        victim.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(self.run.random.uniform(0, DRAIN_S * 1.2))
        await self.kill(victim)

    async def kill_and_step(self) -> None:
        """Kill a hub, and start it with a clock that was set a day forward or back."""
        offsets = {-DAY_S: [0], 0: [-DAY_S, DAY_S], DAY_S: [0]}[self.clock.offset_s]
        await self.step(self.run.random.choice(offsets))

    async def step(self, offset_s: int) -> None:
        """Kill a hub, and start it with a clock that is this far from the real one."""
        victim = self.run.random.choice(self.hubs)
        self.run.history.deaths.append(Death(victim.name, now_ms()))
        await victim.end()
        self.clock.step(offset_s)
        victim._env["FAKETIME"] = f"{offset_s:+d}"
        await victim.begin()

    def fake_clocks(self, library: str) -> None:
        """Have the hubs live by a clock that is set with each start; the monotonic one stays the real one."""
        for hub in self.hubs:
            hub._env |= {
                "LD_PRELOAD": library,
                "FAKETIME": "+0",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }

    async def end(self) -> list[Violation]:
        """Stop the hubs in order, and check what they leave behind."""
        found: list[Violation] = []
        for hub in self.hubs:
            if code := await asyncio.to_thread(hub.stop):
                found.append(Violation("END", "-", f"{hub.name} ended with {code}"))
            if "Traceback" in hub.text():
                found.append(Violation("LOG", "-", f"{hub.name} logged a traceback"))
        return found + await judge(self.run.url, self.run.history)


Strike = Callable[[], Awaitable[None]]


async def endure(scene: Scene, strike: Strike, *, every_ms: int = MINUTE_MS) -> Result:
    """Strike so many times while work is planned, and compare what was planned with what was done."""
    run, kills = scene.run, scene.run.count(KILLS, option="kills")
    work = Workload(
        scene.hubs, run.seed, scene.clock, every_ms=every_ms, longest_ms=round(LONGEST_MS * run.scale)
    )
    try:
        await asyncio.gather(*(one.begin() for one in scene.processes))
        await work.start(run.options.get("clients") or 2)
        for number in range(kills):
            if run.random.random() < 0.7:
                # On a busy machine little would be done if each start were interrupted.
                work.answered.clear()
                await work.answered.wait()
            await asyncio.sleep(run.random.uniform(0, 2.0))
            await strike()
            run.say(f"{number + 1} of {kills} kills, {_count(work)}")
        if scene.clock.steps:
            # What the day before left behind has come by now.
            await scene.step(DAY_S)
        await work.settle(SETTLE_S)
        violations = check_planned(work.record, read_done(scene.file), work.steps)
        violations += await scene.end()
    finally:
        await work.close()
        for one in scene.processes:
            if one.process is not None:
                one.stop(signal.SIGKILL)
    for violation in violations[:12]:
        print(f"    {violation}")
    return verdict(violations, f"{kills} kills; {_count(work)}")


def _count(work: Workload) -> str:
    record = work.record
    runs = sum(len(one) for one in record.runs.values())
    kinds = Counter(request.agent for request in record.requests)
    rows = sum(row.get("count", 1) for one in record.reported.values() for row in one.values())
    refused = sum(record.refused.values())
    return (
        f"{runs} scheduled runs, {rows} moments reported as skipped or missed, {kinds[WAITS]} workflows, "
        f"{kinds[COOLS]} dispatches with a cooldown"
        + (f", {refused} refused while the agent was away" if refused else "")
    )


@row(
    91,
    "a hub killed at random while schedules run, workflows wait and cooldowns begin",
    TARGET,
    SQLITE,
    name="kill-hub",
)
async def row_91(run: Run) -> Result:
    scene = Scene(run, 1)
    return await endure(scene, scene.kill_hub)


@row(
    92,
    "the same with two hubs over one database, one of which is killed",
    TARGET,
    POSTGRES,
    name="kill-replica",
)
async def row_92(run: Run) -> Result:
    scene = Scene(run, 2)
    return await endure(scene, scene.kill_hub)


@row(93, "the same, and the remote agent is killed", TARGET, SQLITE, name="kill-agent")
async def row_93(run: Run) -> Result:
    scene = Scene(run, 1)
    return await endure(scene, scene.kill_agent)


@row(
    94,
    "the same, and a hub is killed while it drains after SIGTERM",
    TARGET,
    SQLITE,
    POSTGRES,
    name="kill-drain",
)
async def row_94(run: Run) -> Result:
    scene = Scene(run, 1 if run.kind == SQLITE else 2)
    return await endure(scene, scene.kill_draining_hub)


@row(
    95, "the same, and the clock is set by a day, forward or back, before the hub starts again (libfaketime)", TARGET,
    SQLITE, name="kill-clock",
)  # fmt: skip
async def row_95(run: Run) -> Result:
    library = next(iter(glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), "")
    if not library:
        return Result(None, "libfaketime is not installed (apt-get install faketime)")
    scene = Scene(run, 1)
    scene.fake_clocks(library)
    return await endure(scene, scene.kill_and_step, every_ms=SHIFT_MS)
