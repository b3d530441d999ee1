"""Work that is planned, waits or is refused while processes die, and the record of it that is kept outside.

Three callers keep a hub busy: one for each schedule, some that start workflows, and some that dispatch work to an
agent with a cooldown. They record every request and every answer. The agent records what it did, with the task of
the hub that each message names as its parent. The two records are compared at the end.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct

from tests.chaos.checker import Violation
from tests.chaos.client import now_ms
from tests.chaos.elsewhere import OVER, Process
from tests.harness import NO_TLS

POLICIES = [*product(("skip", "queue", "allow"), ("skip", "once", "all"))]
# The agent under its own name, under one with a cooldown, and behind a workflow.
WORKS, COOLS, WAITS = "knows", "cools", "waits"
MINUTE_MS, SHIFT_MS = 60_000, 8 * 3_600_000
_PAUSE_S, _READ_S, _CALL_S = 0.1, 2.0, 30.0
# How long a moment may be neither begun nor reported after it has come.
_LOST_S = 90.0
# Statuses after which a caller asks again.
_PASSES = {429, 503}


class StoreClock:
    """The clock of the store: how far it is from the real one, in seconds, and how often it was set."""

    def __init__(self) -> None:
        self.offset_s = 0
        self.steps = 0

    def now(self) -> int:
        """Return its time, in milliseconds."""
        return now_ms() + self.offset_s * 1000

    def step(self, offset_s: int) -> None:
        """Note that it is set."""
        self.offset_s = offset_s
        self.steps += 1


class Moment(Struct):
    """A moment at which a schedule was to run; `required` if a run or a report of it must follow."""

    schedule: str
    at: int
    required: bool = True


class Request(Struct):
    """Work that was requested, and its last known state; `crossed` if its key may have expired meanwhile.

    `parts` are the texts that the agent must get, each once.
    """

    text: str
    agent: str
    parts: tuple[str, ...]
    task_id: str = ""
    state: str = ""
    error: str = ""
    crossed: bool = False


class Done(Struct, frozen=True):
    """Work that the agent did: its text, and the task of the hub that it was done for."""

    text: str
    parent: str


class Record:
    """Everything that was planned, requested and answered."""

    def __init__(self) -> None:
        self.moments: dict[tuple[str, int], Moment] = {}
        # The runs of a schedule by their IDs, and the rows of those that did not begin.
        self.runs: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.reported: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.requests: list[Request] = []
        self.refused: Counter[str] = Counter()
        self.broken: list[Violation] = []

    def read(self, schedule: str, items: list[dict[str, Any]]) -> None:
        """Add a page of the history of a schedule."""
        for item in items:
            if "plannedAt" in item and "taskId" in item:
                self.runs[schedule][item["runId"]] = item
            else:
                self.reported[schedule][json.dumps(item, sort_keys=True)] = item

    def covers(self, moment: Moment, step_ms: int) -> bool:
        """Return whether a run or a report of a moment was read; the moments of a schedule are a step apart."""
        if any(_ms(run["plannedAt"]) == moment.at for run in self.runs[moment.schedule].values()):
            return True
        for row in self.reported[moment.schedule].values():
            since = _ms(row.get("plannedAt") or row["since"])
            if since <= moment.at <= since + (row.get("count", 1) - 1) * step_ms:
                return True
        return False

    def open_runs(self) -> list[str]:
        """Return the schedules with a run that has not ended."""
        return [
            name
            for name, runs in self.runs.items()
            if any(run["status"] in ("queued", "running") for run in runs.values())
        ]


def check_planned(record: Record, done: list[Done], steps: Mapping[str, int]) -> list[Violation]:
    """Return each planned moment that was lost or done twice, and each request that was refused or done wrongly.

    `steps` is how far the moments of a schedule are apart, in milliseconds.
    """
    found = [*record.broken]
    found += [
        Violation("LOST", moment.schedule, f"neither a run nor a report of {_text(moment.at)}")
        for moment in record.moments.values()
        if moment.required and not record.covers(moment, steps[moment.schedule])
    ]
    by_parent, by_text = Counter(one.parent for one in done), Counter(one.text for one in done)
    for name, runs in record.runs.items():
        found += _check_runs(name, runs, by_parent)
    known = {run["taskId"] for runs in record.runs.values() for run in runs.values()}
    planned = {f"work of {name}" for name in record.runs}
    for one in done:
        if any(one.text.endswith(text) for text in planned) and one.parent not in known:
            found.append(Violation("UNPLANNED", one.parent, f"{one.text!r} was done for no run"))
    for request in record.requests:
        found += _check_request(request, [by_text[part] for part in request.parts])
    return found


def _check_runs(name: str, runs: Mapping[str, dict[str, Any]], done: Counter[str]) -> list[Violation]:
    found: list[Violation] = []
    for planned, count in Counter(run["plannedAt"] for run in runs.values()).items():
        if count > 1:
            found.append(Violation("TWICE", name, f"{count} runs of {planned}"))
    for run in runs.values():
        times = done[run["taskId"]]
        if times > 1:
            found.append(
                Violation("TWICE", run["taskId"], f"the run of {name} of {run['plannedAt']}: {times}")
            )
        if run["status"] != "success":
            found.append(Violation("FAILED", run["taskId"], f"{name} of {run['plannedAt']}: {run}"))
        elif not times:
            found.append(Violation("LOST", run["taskId"], f"{name} of {run['plannedAt']} was never done"))
    return found


def _check_request(request: Request, times: list[int]) -> list[Violation]:
    what = f"{request.agent}, {request.text!r}, done {times} times: {request.state} {request.error}"
    if request.state == "rejected":
        return [Violation("REFUSED", request.task_id, what)]
    if request.state != "completed":
        return [Violation("FAILED", request.task_id, what)]
    # A key expires after a day: a forward step of the clock between two tries may have work done twice.
    if not all(times):
        return [Violation("LOST", request.task_id, what)]
    return [Violation("TWICE", request.task_id, what)] if max(times) > 1 and not request.crossed else []


class Workload:
    """Callers that keep hubs busy until they have to settle.

    Schedules of cron run `every_ms`, a minute or eight hours. The agent takes at most `longest_ms` for anything.
    """

    def __init__(
        self,
        hubs: list[Process],
        seed: int,
        clock: StoreClock,
        *,
        every_ms: int = MINUTE_MS,
        longest_ms: int = 3000,
    ) -> None:
        self.record = Record()
        self.steps: dict[str, int] = {}
        self._hubs = hubs
        self._every_ms = every_ms
        self._longest_ms = longest_ms
        self._clock = clock
        self._random = random.Random(seed)
        self._http = httpx2.AsyncClient(timeout=_CALL_S, verify=NO_TLS)
        self._stopping = False
        self._callers: list[asyncio.Task[None]] = []
        self._number = 0
        self._began = 0
        # Set by each answer of a hub.
        self.answered = asyncio.Event()

    async def start(self, clients: int) -> None:
        """Create the schedules and begin to ask for work."""
        self._began = self._clock.now()
        for overlap, misfire in POLICIES:
            self._begin(self._roll(overlap, misfire))
            await self._repeat(overlap, misfire)
        for _ in range(clients):
            self._begin(self._dispatch())
            self._begin(self._run_workflow())

    async def settle(self, limit_s: float) -> None:
        """Ask for nothing more, and read what became of everything until nothing is open or the limit is over."""
        self._stopping = True
        await asyncio.gather(*self._callers)
        self._plan_repeated(self._clock.now())
        deadline, is_paused = time.monotonic() + limit_s, False
        while time.monotonic() < deadline:
            await asyncio.gather(*(self._read(name) for name in self.steps))
            await asyncio.gather(*(self._see(one) for one in self.record.requests if one.state not in OVER))
            if all(one.state in OVER for one in self.record.requests) and not self._lost():
                if is_paused and not self.record.open_runs():
                    return
                # Further moments would come while the servers are stopped.
                is_paused = is_paused or await self._pause()
            await asyncio.sleep(_PAUSE_S * 3)

    def _lost(self) -> list[Moment]:
        moments, steps = self.record.moments.values(), self.steps
        return [one for one in moments if one.required and not self.record.covers(one, steps[one.schedule])]

    async def _pause(self) -> bool:
        for name in [one for one in self.steps if one.startswith("cron")]:
            await self._ask("POST", f"ceremonies/{name}/update", {"enabled": False})
        return True

    async def close(self) -> None:
        """End every caller."""
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)
        await self._http.aclose()

    def _begin(self, caller: Coroutine[Any, Any, None]) -> None:
        self._callers.append(asyncio.create_task(caller))

    async def _ask(self, verb: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """Ask a hub that is up, again and again until one answers."""
        headers = {"Idempotency-Key": key} if key else {}
        while True:
            hub = self._random.choice(self._hubs)
            await hub.up.wait()
            try:
                answer = await self._http.request(verb, f"{hub.base}/api/{path}", json=body, headers=headers)
            except (httpx2.HTTPError, AttributeError):
                # With uvloop a connection that breaks at once has no socket left to ask for its peer.
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.status_code < 500 and answer.status_code not in _PASSES:
                self.answered.set()
                return answer.status_code, answer.json()
            await asyncio.sleep(_PAUSE_S)

    async def _read(self, schedule: str) -> None:
        _, page = await self._ask("GET", f"ceremonies/{schedule}/runs?skipped=true&limit=200")
        self.record.read(schedule, page.get("items", []))

    def _form(self, name: str, schedule: str, overlap: str, misfire: str, **more: Any) -> dict[str, Any]:
        text = f"work {self._random.randint(0, self._longest_ms)} work of {name}"
        named = {"id": name, "name": name, "skill": WORKS, "targets": [WORKS], "message": text}
        return {**named, "schedule": schedule, "overlap": overlap, "misfire": misfire, **more}

    async def _roll(self, overlap: str, misfire: str) -> None:
        """Plan one moment after the other, a second or two ahead, each once the one before is accounted for."""
        name, path = f"next-{overlap}-{misfire}", "ceremonies/create"
        self.steps[name] = 1
        while not self._stopping:
            moment = Moment(name, (self._clock.now() + self._random.randint(2000, 4000)) // 1000 * 1000)
            form: dict[str, Any] = {"schedule": _text(moment.at)}
            if path.endswith("create"):
                form = self._form(name, form["schedule"], overlap, misfire)
            status, _ = await self._ask("POST", path, form)
            if status == 409 and path.endswith("create"):
                # The answer to the first try was lost.
                status = 200
            if path.endswith("create") and status == 200:
                path = f"ceremonies/{name}/update"
            # Refused: the moment passed before a hub took it. An earlier try of the same may have been taken.
            moment.required = status == 200
            self.record.moments[name, moment.at] = moment
            deadline = time.monotonic() + _LOST_S
            while moment.required and not self.record.covers(moment, 1) and time.monotonic() < deadline:
                await asyncio.sleep(self._random.uniform(0.3, 0.8))
                await self._read(name)
                if (
                    moment.at > self._clock.now() + MINUTE_MS
                    or self._stopping
                    and moment.at > self._clock.now()
                ):
                    # The clock was set back: the next moment replaces this one, which may never come.
                    moment.required = False

    async def _repeat(self, overlap: str, misfire: str) -> None:
        """Create a schedule of cron, and go on reading its history, which keeps the newest rows only."""
        name = f"cron-{overlap}-{misfire}"
        self.steps[name] = self._every_ms
        is_frequent = self._every_ms == MINUTE_MS
        cron, jitter = ("* * * * *", MINUTE_MS // 2) if is_frequent else ("0 */8 * * *", 0)
        await self._ask(
            "POST", "ceremonies/create", self._form(name, cron, overlap, misfire, jitterMs=jitter)
        )
        self._begin(self._follow(name))

    async def _follow(self, name: str) -> None:
        while not self._stopping:
            await self._read(name)
            await asyncio.sleep(_READ_S)

    def _plan_repeated(self, until: int) -> None:
        """Record the moments of every cron schedule that have come, less the longest jitter."""
        step = self._every_ms
        # The schedule may have been created at its first moment.
        first = (self._began // step + 2) * step
        for name in [one for one in self.steps if one.startswith("cron")]:
            for at in range(first, until - MINUTE_MS // 2, step):
                self.record.moments[name, at] = Moment(name, at)

    async def _dispatch(self) -> None:
        """Dispatch work about a subject of its own, again under its key, and again under another one."""
        while not self._stopping:
            request, key, subject = self._request(COOLS), str(uuid.uuid4()), str(uuid.uuid4())
            body = {"agent": COOLS, "skill": WORKS, "message": request.text, "metadata": {"subject": subject}}
            before = self._clock.steps
            task = await self._order(body, key)
            request.task_id, request.state = task["taskId"], task["state"]
            request.error = task.get("error", "")
            request.crossed = self._clock.steps > before
            if await self._is_refused(request):
                continue
            again = await self._order(body, key)
            cooled = await self._order(body, f"{key}-2")
            if self._clock.steps != before:
                request.crossed = True
            elif again["taskId"] != request.task_id:
                self._violate("AGAIN", request, f"the same key gave {again['taskId']}")
            elif cooled["state"] != "rejected":
                self._violate(
                    "COOLED", request, f"it was done again as {cooled['taskId']} during its cooldown"
                )
            await asyncio.sleep(self._random.uniform(0, 0.5))

    async def _run_workflow(self) -> None:
        """Start workflows that wait for a moment, for the agent, and again."""
        while not self._stopping:
            request, key = self._request(WAITS), str(uuid.uuid4())
            before = self._clock.steps
            task = await self._order({"agent": WAITS, "message": request.text}, key)
            request.task_id, request.state = task["taskId"], task["state"]
            request.error = task.get("error", "")
            request.crossed = self._clock.steps > before
            if not await self._is_refused(request):
                await asyncio.sleep(self._random.uniform(0.2, 1.5))

    def _request(self, agent: str) -> Request:
        self._number += 1
        text = f"work {self._random.randint(0, self._longest_ms)} {agent} #{self._number}"
        return Request(text, agent, (f"{text} a", f"{text} b") if agent == WAITS else (text,))

    async def _order(self, body: dict[str, Any], key: str) -> dict[str, Any]:
        status, answer = await self._ask("POST", "dispatch", body, key)
        if status != 200:
            raise AssertionError(f"dispatch was answered with {status}: {answer}")
        (task,) = answer["tasks"]
        return task

    async def _is_refused(self, request: Request) -> bool:
        """Record a request; return whether nobody took it because the agent was away."""
        if request.state == "rejected" and "cools down" not in request.error:
            self.record.refused[request.error] += 1
            await asyncio.sleep(_PAUSE_S * 5)
            return True
        self.record.requests.append(request)
        return request.state == "rejected"

    async def _see(self, request: Request) -> None:
        status, task = await self._ask("GET", f"tasks/{request.task_id}")
        if status == 200:
            request.state, request.error = task["state"], str(task.get("error", ""))

    def _violate(self, kind: str, request: Request, what: str) -> None:
        self.record.broken.append(Violation(kind, request.task_id, f"{request.text!r}: {what}"))


def read_done(file: Path) -> list[Done]:
    """Return what an agent recorded as done."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [Done(line["text"], line["parent"]) for line in lines if line["new"]]


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _text(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
