"""Ceremonies on a fleet: tasks are routed, refused and stopped as everybody's are."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.fleet.ceremonies.hall import CREATE, LEAST
from tests.fleet.office import Office, office
from tests.fleet.routing.test_dispatcher import Few, agent
from trunkline.fleet.ceremonies.dispatch import ceremonies_of
from trunkline.fleet.routing.dispatcher import Dispatcher
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher


def test_run_stays_due_when_the_runner_begins_to_drain_while_it_is_opened() -> None:
    async def work(at: Office) -> None:
        runner = at.application.host.runner
        fleet, fetcher = Few(agent("desk", "work")), Fetcher(Egress())
        made = ceremonies_of(
            runner,
            Dispatcher(runner, fleet),
            fleet,
            guarded=lambda _: fetcher,
            own=fetcher,
            variable=lambda _: None,
        )
        at.application.host.api.add(made.routes)
        await made.start()
        assert (await at.ask("alice", "POST", CREATE, {**LEAST, "overlap": "allow"})).status_code == 200
        change = made.scheduler.journals.change

        async def drained(*given: Any) -> Any:
            """Begin to drain once the run is recorded."""
            journal = await change(*given)
            runner.drain()
            return journal

        made.scheduler.journals.change = drained
        answer = await at.ask("alice", "POST", "/api/ceremonies/standup/run", {})
        assert answer.status_code == 200, answer.text
        (run,) = (await at.get("alice", "/api/ceremonies/standup/runs"))["items"]
        assert (run["runId"], run["status"]) == (answer.json()["runId"], "queued")
        assert "going down" in run["error"]
        assert (await at.ask("alice", "POST", "/api/ceremonies/standup/run", {})).status_code == 503
        before = await made.scheduler.journals.read("north", "ceremony:standup")
        await made.scheduler.tick()
        assert await made.scheduler.journals.read("north", "ceremony:standup") == before
        await fetcher.close()

    office(work)


def test_run_stays_due_while_its_agent_has_no_room() -> None:
    async def work(at: Office) -> None:
        runner = at.application.host.runner
        fleet, fetcher = Few(agent("desk", "work", concurrency=1)), Fetcher(Egress())
        made = ceremonies_of(
            runner,
            Dispatcher(runner, fleet),
            fleet,
            guarded=lambda _: fetcher,
            own=fetcher,
            variable=lambda _: None,
        )
        at.application.host.api.add(made.routes)
        await made.start()

        async def statuses() -> list[str]:
            made.scheduler.expect(("north", "standup"))
            await made.scheduler.tick()
            return [run["status"] for run in (await at.get("alice", "/api/ceremonies/standup/runs"))["items"]]

        assert (await at.ask("alice", "POST", CREATE, {**LEAST, "overlap": "allow"})).status_code == 200
        first, second = [
            (await at.ask("alice", "POST", "/api/ceremonies/standup/run", {})).json() for _ in range(2)
        ]
        assert sorted(await statuses()) == ["queued", "running"]
        assert (await at.ask("alice", "POST", f"/api/tasks/{first['taskId']}/cancel")).status_code == 200
        assert sorted(await statuses()) == ["canceled", "running"]
        await at.until(second["taskId"], "working")
        await fetcher.close()

    office(work)


def test_run_stays_due_while_the_breaker_of_its_agent_is_open() -> None:
    async def work(at: Office) -> None:
        runner = at.application.host.runner
        broken = agent("desk", "work", excluded="its breaker is open", is_passing=True)
        fleet, fetcher = Few(broken), Fetcher(Egress())
        made = ceremonies_of(
            runner,
            Dispatcher(runner, fleet),
            fleet,
            guarded=lambda _: fetcher,
            own=fetcher,
            variable=lambda _: None,
        )
        at.application.host.api.add(made.routes)
        await made.start()
        assert (await at.ask("alice", "POST", CREATE, LEAST)).status_code == 200
        await at.ask("alice", "POST", "/api/ceremonies/standup/run", {})
        (run,) = (await at.get("alice", "/api/ceremonies/standup/runs"))["items"]
        assert run["status"] == "queued" and "its breaker is open" in run["error"]
        fleet.known["desk"] = agent("desk", "work")
        made.scheduler.expect(("north", "standup"))
        await made.scheduler.tick()
        (run,) = (await at.get("alice", "/api/ceremonies/standup/runs"))["items"]
        assert run["status"] == "running"
        await fetcher.close()

    office(work)


def test_runs_of_one_moment_stay_due_while_their_agent_has_no_room_for_all() -> None:
    async def work(at: Office) -> None:
        runner = at.application.host.runner
        fleet, fetcher = Few(agent("desk", "work", concurrency=2)), Fetcher(Egress())
        made = ceremonies_of(
            runner,
            Dispatcher(runner, fleet),
            fleet,
            guarded=lambda _: fetcher,
            own=fetcher,
            variable=lambda _: None,
        )
        at.application.host.api.add(made.routes)
        await made.start()
        ids = [f"standup{number}" for number in range(6)]
        for one_id in ids:
            assert (await at.ask("alice", "POST", CREATE, {**LEAST, "id": one_id})).status_code == 200
        # All of them see the same room free, and then enter one after the other.
        await asyncio.gather(
            *[at.ask("alice", "POST", f"/api/ceremonies/{one_id}/run", {}) for one_id in ids]
        )
        runs = [(await at.get("alice", f"/api/ceremonies/{one_id}/runs"))["items"][0] for one_id in ids]
        assert sorted([run["status"] for run in runs]) == ["queued"] * 4 + ["running"] * 2
        assert all(["2 tasks are in work" in run["error"] for run in runs if run["status"] == "queued"])
        await fetcher.close()

    office(work)


def test_a_ceremony_goes_through_the_dispatcher() -> None:
    async def work(at: Office) -> None:
        runner = at.application.host.runner
        fleet = Few(agent("desk", "work"), agent("off", "work", excluded="it is disabled"))
        fetcher = Fetcher(Egress())
        made = ceremonies_of(
            runner,
            Dispatcher(runner, fleet),
            fleet,
            guarded=lambda _: fetcher,
            own=fetcher,
            variable=lambda _: None,
        )
        at.application.host.api.add(made.routes)
        await made.start()

        async def post(path: str, body: Any) -> Any:
            answer = await at.ask("alice", "POST", path, body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        async def last_run(ceremony_id: str, status: str) -> Any:
            async with asyncio.timeout(30):
                while True:
                    await made.scheduler.tick()
                    (run,) = (await at.get("alice", f"/api/ceremonies/{ceremony_id}/runs"))["items"]
                    if run["status"] == status:
                        return run
                    made.scheduler.expect(("north", ceremony_id))

        # One outcome for each agent that has the skill; of one that is disabled it is a refusal.
        await post(CREATE, {**LEAST, "message": "quick"})
        await post("/api/ceremonies/standup/run", {})
        run = await last_run("standup", "failure")
        states = {one["agent"]: one["state"] for one in run["tasks"]}
        assert states == {"desk": "completed", "off": "rejected"}
        detail = await at.get("alice", f"/api/tasks/{run['tasks'][0]['taskId']}")
        assert "ceremony:standup" in str(detail["events"])
        # Nobody has this skill: the refusal is a task too.
        await post(CREATE, {**LEAST, "id": "odd", "skill": "sing"})
        await post("/api/ceremonies/odd/run", {})
        assert (await last_run("odd", "failure"))["state"] == "rejected"
        await post(CREATE, {**LEAST, "id": "slow", "targets": ["desk"], "timeoutMs": 1})
        await post("/api/ceremonies/slow/run", {})
        assert (await last_run("slow", "timeout"))["state"] == "canceled"
        await fetcher.close()

    office(work)
