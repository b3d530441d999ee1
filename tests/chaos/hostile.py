"""Rows of hostile callers: a hundred thousand spoiled requests, canaries of tenants."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice

from tests.chaos.rows import POSTGRES, SQLITE, Result, Run, row
from tests.harness import Agent, ServerProcess, plain_state
from tests.hostile import reach, shapes
from tests.hostile.canaries import WORD, Crowd, enrol
from tests.hostile.conftest import BROKEN, GROWTH_KIB, resident_kib
from tests.hostile.shapes import Case
from tests.hostile.sockets import pour
from tests.hostile.verdict import AT_THE_DOOR, wrong

BATCH = 5_000
FLAGS = ("--dev", "--metrics", "--log-level", "warning", "--set", "cors_origins=https://app.example")


@row(39, "hostile requests over every binding", "100 000; no 5xx, no hang, growth ≤ 32 MiB", SQLITE, name="hostile")  # fmt: skip
async def hostile(run: Run) -> Result:
    """Every member of every request spoiled, then chance until there are enough."""
    count = run.count(100_000, 1_000)
    seed = run.random.randrange(1 << 32)
    found: list[str] = []
    statuses: Counter[int] = Counter()
    began = time.monotonic()
    with ServerProcess(run.directory, "trunkline.demo:agent", *FLAGS, store=run.url) as server:
        task = _still_right(server)
        token = json.loads((run.directory / "tasks.db.admin").read_text())["token"].encode()
        before = resident_kib(server)
        cases = islice(_cases(task, token, count, seed), count)
        done = 0
        while batch := list(islice(cases, BATCH)):
            answers = await pour(server.port, [case.raw for case in batch])
            statuses.update(answer.status for answer in answers)
            pairs = zip(batch, answers, strict=True)
            found += [f"{case.name}: {said}" for case, answer in pairs if (said := wrong(case, answer, AT_THE_DOOR))]  # fmt: skip
            done += len(batch)
            run.say(f"{done} requests, {len(found)} wrong")
        growth = resident_kib(server) - before
        _still_right(server)
        broken = BROKEN.search(server.text())
    for one in found[:20]:
        print(f"    {one[:400]}")
    measured = (
        f"{done} requests in {time.monotonic() - began:.0f} s, {len(found)} wrong, "
        f"growth {growth / 1024:.1f} MiB, answers {dict(sorted(statuses.items()))}"
    )
    return Result(not found and broken is None and growth <= GROWTH_KIB and done == count, measured)


def _cases(task: str, token: bytes, count: int, seed: int) -> Iterator[Case]:
    """A scaled run takes a part of everything."""
    old = [case for form in shapes.forms(task) for case in shapes.spoil(form)]
    every = [*old, *shapes.queries(task), *reach.everything(task, token)]
    yield from reach.share(every, count if count < len(every) else len(every), seed)
    known = [*shapes.forms(task), *reach.forms(task), *reach.operator_forms(token)]
    for turn in range(seed + 1, seed + 1_000_000):
        yield from chain(shapes.doubly(known, 2_000, turn), shapes.torn(known, 2_000, turn))


def _still_right(server: ServerProcess) -> str:
    agent = Agent(server.base)
    try:
        task = agent.send("echo all is well")
        assert plain_state(task) == "completed"
        assert agent.get(task["id"]) == task
        return task["id"]
    finally:
        agent.close()


@row(53, "canaries of tenants in answers, errors, streams, lists and the log", "0 in 100 000 answers", SQLITE, POSTGRES, name="canaries")  # fmt: skip
async def canaries(run: Run) -> Result:
    """Callers of five tenants at once, each asking for its own and for others'."""
    count = run.count(100_000, 2_000)
    members = await enrol(run.url)
    flags = ("--dev", "--log-level", "debug", "--set", "secret_key=sixteen or more of them")
    with ServerProcess(run.directory, "trunkline.demo:agent", *flags, store=run.url) as server:
        crowd = Crowd(server.port, members, run.random.randrange(1 << 32))
        began = time.monotonic()
        await crowd.run(count)
        taken = time.monotonic() - began
        server.stop()
        log = server.text()
    # A path is the caller's own, and an operator should see it; what was said in a body is in no line.
    logged = [line for line in log.splitlines() if WORD.search(line.encode()) and "path=" not in line]
    for one in [*crowd.leaks, *logged][:10]:
        print(f"    {one[:400]}")
    measured = f"{crowd.answers} answers in {taken:.0f} s, {crowd.refused} refused, {len(crowd.leaks)} leaks, {len(logged)} in the log"
    return Result(not crowd.leaks and not logged and crowd.answers >= count and not BROKEN.search(log), measured)  # fmt: skip
