"""Runs of workflows in processes that kill themselves behind a row, and processes that go on with them.

A program: `python -m tests.flow.dying FOLDER STORE CASE CUT…`. It prints one JSON object for the run that nobody kills
and one for each cut. Each run has a process of its own, forked from this one. STORE is the address of a PostgreSQL for
all of them, or `sqlite`: then each has a file of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.flow import vectors
from trunkline.errors import Conflict
from trunkline.flow.activities.base import Activity, Outcome
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import ActivitySubmission, FlowCaller
from trunkline.flow.results import RunResult
from trunkline.log.events import AnyEvent, Chunk, FlowRows, Status, Submitted
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.run import children
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.node import HostedAgent, Limits
from trunkline.store.group_commit import Ack
from trunkline.wire.types import Artifact, Part, SendRequest, TaskState

AGENT = "coder"
# Each with its input and who does its activities.
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "routing": ("lighthouse-customer-routing", {"ticket_text": "t"}, "in_process"),
    "research": ("r2-research-parallel", {"topic": "t"}, "in_process"),
    "any": ("r2-parallel-join-any", {"topic": "t"}, "in_process"),
    "coding": ("r3-multi-agent-coding", {"task": "t", "repo": "r"}, "in_process"),
    "host": ("conformance-host-activity-parallel", {}, "host_mediated"),
    "signal": ("conformance-signal-wait", {}, "in_process"),
    "delegate": ("conformance-agent-delegate-linear", {"task": "t"}, "in_process"),
}
OUTPUTS: dict[str, dict[str, Any]] = {
    "classify": {"intent": "unsure", "confidence": 0.2},
    "web_collect": {"findings": ["w"]},
    "internal_collect": {"findings": ["i"]},
    "run_tests": {"tests_passed": True},
}
PAYLOADS = {"human_review": {"intent": "billing"}, "review": {"approve": True}}
CALLER = FlowCaller()


class Noting:
    """Does activities, and what is delegated to the one agent there is; notes each before it is done."""

    works_elsewhere = False

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def _note(self, what: str) -> None:
        with self._notes.open("a") as file:
            file.write(f"{what}\n")

    async def execute(self, activity: Activity) -> Outcome:
        """Give what is set for the node."""
        self._note(activity.node.id)
        return Outcome(ok=True, output=OUTPUTS.get(activity.node.id, {}))

    def agent(self, tenant: str, agent_id: str) -> str | None:
        """All delegations are tasks of one agent."""
        del tenant, agent_id
        return AGENT

    def admit(self, request: SendRequest) -> str:
        """Every message is taken."""
        del request
        return "code"

    def named(self, name: str) -> str:
        """Every name is its own."""
        return name

    def on_crash(self, skill: str) -> OnCrash:
        """It is begun again."""
        del skill
        return OnCrash.RESUME

    async def close(self) -> None:
        """Nothing is held."""

    async def run(self, work: Work) -> Verdict:
        """Answer at once."""
        self._note(AGENT)
        work.put(Chunk(Artifact("out", parts=(Part(data={"patch": "p"}),)), last=True))
        return Status(TaskState.COMPLETED)


class DyingLog:
    """Stands before the log of a store, and kills the process behind so many rows, or appends without rows."""

    def __init__(self, log: Any, cut: int, written: Callable[[Counter[str]], None]) -> None:
        self._append = log.append
        self._left = cut
        self._written = written
        self._events: dict[str, list[AnyEvent]] = {}
        self._agents: dict[str, str] = {}
        self._noted = asyncio.Event()
        # What of all that was done is recorded, by node or agent.
        self.recorded: Counter[str] = Counter()

    def append(self, tenant: str, task_id: str, expected: int, events: Any, **more: Any) -> Ack:
        """Append, up to the cut."""
        if not self._left:
            # Nobody hears of this any more.
            return Ack()
        kept = self._taken(task_id, events)
        if self._left:
            return self._appended(tenant, task_id, expected, kept, more)
        last = Ack()
        self._end = asyncio.ensure_future(self._append_and_die(last, tenant, task_id, expected, kept, more))
        return last

    def _appended(
        self, tenant: str, task_id: str, expected: int, events: list[AnyEvent], more: dict[str, Any]
    ) -> Ack:
        ack: Ack = self._append(tenant, task_id, expected, events, **more)

        def note(error: object) -> None:
            if error is None:
                self._events[task_id] = [*self._events.get(task_id, [])[:expected], *events]
                self._noted.set()

        ack.then(note)
        return ack

    async def _append_and_die(self, last: Ack, tenant: str, task_id: str, expected: int, *rest: Any) -> None:
        events, more = rest
        while len(self._events.get(task_id, [])) < expected:
            self._noted.clear()
            await self._noted.wait()
        more["head"] = head_after(State(task_id), [*self._events.get(task_id, []), *events], more["at"])
        try:
            await self._append(tenant, task_id, expected, events, **more)
        except Conflict as error:
            # Another append was faster: the next one is the last.
            self._left = 1
            last.settle(error)
            return
        self._written(self.recorded)
        os.kill(os.getpid(), signal.SIGKILL)

    def _taken(self, task_id: str, events: Any) -> list[AnyEvent]:
        """The events up to the cut: an append without rows is whole, one with rows ends with the last of them."""
        if not any(isinstance(event, FlowRows) for event in events):
            self._left -= 1
        kept: list[AnyEvent] = []
        for event in events:
            if isinstance(event, FlowRows):
                rows = event.rows[: self._left]
                self._left -= len(rows)
                self._note(rows)
                kept.append(FlowRows(rows))
                if len(rows) < len(event.rows):
                    break
                continue
            if isinstance(event, Submitted):
                self._agents[task_id] = event.agent
            if isinstance(event, Status) and event.state is TaskState.COMPLETED:
                self.recorded[self._agents[task_id]] += 1
            kept.append(event)
        return kept

    def _note(self, rows: Any) -> None:
        for row in rows:
            if row.name == "ActivityCompleted" and "delegateCorrelationId" not in row.payload:
                self.recorded[row.payload["nodeId"]] += 1


async def _to_the_end(flows: LocalFlows, run: str) -> RunResult:
    handle = flows.handle(run)
    while True:
        result = await handle.wait()
        match result.status:
            case "interrupted":
                await handle.resume(PAYLOADS[str(result.node_id)])
            case "awaiting_signal":
                await handle.signal(result.signal_name, {"approved_by": "somebody"})
            case "awaiting_activity":
                outcome = ActivitySubmission(ok=True, result=OUTPUTS.get(str(result.node_id), {}))
                await handle.submit(str(result.node_id), outcome, result.parallel_span)
            case _:
                return result


class Play:
    """One case in one folder; `cut` is 0 for the run that nobody kills."""

    def __init__(self, case: str, folder: Path, store: str, cut: int) -> None:
        name, self._given, self._mode = CASES[case]
        self._document = vectors.example(name)
        self._folder = folder / f"{case}-{cut}"
        self._folder.mkdir()
        self._store = f"sqlite:///{self._folder}/runs.db" if store == "sqlite" else store
        self._run = f"{case}-{cut}"
        self._cut = cut
        self._notes = self._folder / "notes"
        self._notes.touch()

    def _flows(self) -> LocalFlows:
        noting = Noting(self._notes)
        flows = LocalFlows(
            self._store,
            limits=Limits(park_after_s=0.0),
            carried=[HostedAgent(AGENT, noting)],
            activities=noting,
            agents=noting,
        )
        flows.engine.workflows.add(vectors.UNIT_TESTS, vectors.child_workflow())
        return flows

    def _write(self, name: str, told: Any) -> None:
        (self._folder / name).write_text(json.dumps(told))

    async def begin(self) -> None:
        """Start the run and die, or come to its end where there is no cut."""
        async with self._flows() as flows:
            log: Any = flows.store.log
            dying = DyingLog(log, self._cut or 1 << 30, lambda counted: self._write("recorded", counted))
            log.append = dying.append
            await flows.port.start(
                CALLER, self._document, self._given, execution_id=self._run, mode=self._mode, wait_s=0.0
            )
            await self._end(flows)
            self._write("recorded", dying.recorded)
            self._write("units", (1 << 30) - dying._left)  # pyright: ignore[reportPrivateUsage]

    async def go_on(self) -> None:
        """Go on with what is in the store."""
        async with self._flows() as flows:
            await self._end(flows)

    async def _end(self, flows: LocalFlows) -> None:
        result = await _to_the_end(flows, self._run)
        rows = await flows.port.rows(CALLER, self._run)
        told = [result.status, result.final_state, result.result, result.error]
        self._write("ended", [told, [[row.name, row.payload.get("nodeId")] for row in rows]])

    def play(self) -> dict[str, Any]:
        """What became of it."""
        code = _forked(self.begin)
        before = len(self._notes.read_text().split())
        # Appends that come together are one: a run may be over before as many as another run had.
        is_killed = bool(self._cut) and code == -signal.SIGKILL
        assert is_killed or code == 0, f"cut {self._cut}: it ended with {code}"
        if is_killed:
            assert _forked(self.go_on) == 0, f"cut {self._cut}: nobody could go on with it"
        told, rows = json.loads((self._folder / "ended").read_text())
        units = self._folder / "units"
        return {
            "cut": self._cut,
            "killed": is_killed,
            "units": int(units.read_text()) if units.exists() else 0,
            "told": told,
            "rows": rows,
            "recorded": json.loads((self._folder / "recorded").read_text()),
            "calls": Counter(self._notes.read_text().split()[before if self._cut else 0 :]),
        }


def faults(whole: dict[str, Any], killed: dict[str, Any]) -> list[str]:
    """How a run that was killed ended otherwise than the one that nobody killed."""
    # What is to be called after a kill: all that was not recorded before, and nothing that was.
    left = Counter[str](whole["recorded"])
    left.subtract(killed["recorded"])
    calls = {name: count for name, count in left.items() if count and name in whole["calls"]}
    same = {"told": whole["told"], "rows": whole["rows"], "calls": calls}
    return [
        f"killed behind {killed['cut']}, its {name} are {killed[name]}, not {wanted}"
        for name, wanted in same.items()
        if killed[name] != wanted
    ]


def _forked(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """How a process ended that has done this and nothing else; a signal is a negative number."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            asyncio.run(asyncio.wait_for(work(), 60))
            code = 0
        except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """Play the case without a cut, then with each; `all` are all there are."""
    # A parent that was not told of its child's end hears of it at the next look, which need not be so late here.
    children.SWEEP_S = 0.1
    folder, store, case, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    whole = Play(case, folder, store, 0).play()
    print(json.dumps(whole), flush=True)
    cuts = range(1, whole["units"] + 1) if words == ["all"] else [int(word) for word in words]
    for cut in cuts:
        if cut <= whole["units"]:
            print(json.dumps(Play(case, folder, store, cut).play()), flush=True)


if __name__ == "__main__":
    main()
