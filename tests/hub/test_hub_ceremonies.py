"""Ceremonies of a hub as a process: files and keys that change while it runs, zones, owners, runs and misfires."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Agent, ServerProcess
from tests.hub.remote_agents import RemoteAgent, RemoteAgents, until
from tests.hub.test_hub import HubProcess
from trunkline.mock.serve import BackgroundServer

KEYS = {"alice": "tasks:read, tasks:write", "bob": "tasks:read, tasks:write", "root": "admin"}
ENV = {f"{who.upper()}_KEY": f"key-of-{who}-in-the-test" for who in (*KEYS, "alice2")}
FILE = 'name: {name}\nschedule: "{schedule}"\nskill: worker\ntargets: [worker]\nenabled: {enabled}\n'
LEAST: dict[str, Any] = {
    "id": "standup",
    "name": "Stand-up",
    "schedule": "0 9 * * 1-5",
    "skill": "worker",
    "targets": ["worker"],
}


class Calendar:
    """The hub, its folder of ceremonies, and those who ask."""

    def __init__(self, hub: ServerProcess, worker: RemoteAgent) -> None:
        self.hub = hub
        self.worker = worker
        self.folder = hub.directory / "ceremonies"
        self.agent = Agent(hub.base)

    def ask(self, who: str, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = self.agent.http.request(
            verb, f"{self.hub.base}/api/{path}", json=body, headers={"X-API-Key": ENV[f"{who.upper()}_KEY"]}
        )
        return answer.status_code, answer.json()

    def post(self, who: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self.ask(who, "POST", f"ceremonies/{path}", {} if body is None else body)

    def listed(self, who: str = "root") -> dict[str, Any]:
        return {one["id"]: one for one in self.ask(who, "GET", "ceremonies")[1]["items"]}

    def runs(self, one: str) -> list[Any]:
        return self.ask("root", "GET", f"ceremonies/{one}/runs")[1]["items"]

    def write(self, one: str, **members: str) -> int:
        filled = {"name": "Daily", "schedule": "0 9 * * *", "enabled": "true", **members}
        return (self.folder / f"{one}.yaml").write_text(FILE.format(**filled))


def _keys(**names: str) -> str:
    return "keys:\n" + "".join(
        f"  {who}: {{env: {env}, scopes: [{KEYS[who]}]}}\n" for who, env in names.items()
    )


ALL_KEYS = {who: f"{who.upper()}_KEY" for who in KEYS}


@pytest.fixture(scope="module")
def calendar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calendar]:
    workspace: Path = tmp_path_factory.mktemp("ceremonies")
    worker = RemoteAgent("worker")
    (workspace / "ceremonies").mkdir()
    (workspace / "keys.yaml").write_text(_keys(**ALL_KEYS))
    with BackgroundServer(RemoteAgents(worker)) as url:
        (workspace / "agents.yaml").write_text(f'agents:\n  - {{name: worker, url: "{url}/worker"}}\n')
        # The zone of the machine says nothing about that of a schedule.
        with HubProcess(workspace, env={**ENV, "TZ": "Asia/Kathmandu"}) as hub:
            made = Calendar(hub, worker)
            until(lambda: made.ask("root", "GET", "agents/worker")[1]["state"] == "ready")
            yield made
            made.agent.close()


def test_hb24_files_take_effect_while_the_hub_runs(calendar: Calendar) -> None:
    size = calendar.write("daily")
    assert until(lambda: calendar.listed().get("daily"))["owner"] == "file"
    assert calendar.write("daily", schedule="0 8 * * *") == size
    until(lambda: calendar.listed()["daily"]["schedule"] == "0 8 * * *")
    calendar.write("daily", enabled="false")
    assert (
        until(lambda: one if not (one := calendar.listed()["daily"])["enabled"] else None)["nextFires"] == []
    )
    (calendar.folder / "daily.yaml").unlink()
    until(lambda: "daily" not in calendar.listed())


def test_hb25_schedules_are_in_utc_unless_they_name_a_zone(calendar: Calendar) -> None:
    calendar.write("daily")
    fires = until(lambda: calendar.listed().get("daily"))["nextFires"]
    assert {one[10:] for one in fires} == {"T09:00:00.000Z"}
    zone = {**LEAST, "id": "zone", "schedule": "30 2 * * *", "timezone": "Asia/Tokyo"}
    _, made = calendar.post("alice", "create", zone)
    assert {one[10:] for one in made["nextFires"]} == {"T17:30:00.000Z"}
    far = datetime.now(UTC) + timedelta(days=40)
    ahead = {**LEAST, "id": "far", "schedule": f"0 0 {far.day} {far.month} *"}
    _, made = calendar.post("alice", "create", ahead)
    assert made["nextFires"][0][:10] == far.date().isoformat()
    # A timer of 32 bits would have fired by now, or within a second.
    _, soon = calendar.post("alice", "create", {**LEAST, "id": "soon", "schedule": _moment(1)})
    until(lambda: calendar.runs("soon"))
    assert (calendar.runs("far"), soon["nextFires"][0][:4]) == ([], str(datetime.now(UTC).year))


def _moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def test_hb26_runs_have_ids_and_a_history_and_overlap_and_time_out_as_told(calendar: Calendar) -> None:
    one = {**LEAST, "id": "runs", "message": "stays"}
    calendar.post("alice", "create", one)
    status, started = calendar.post("alice", "runs/run")
    assert status == 200
    (run,) = calendar.runs("runs")
    assert (run["runId"], run["taskId"], run["status"]) == (started["runId"], started["taskId"], "running")
    # By default a run that is still open keeps the next one from beginning.
    status, refused = calendar.post("alice", "runs/run")
    assert (status, refused["code"]) == (409, "RUN_OPEN")
    _, allowed = calendar.post("alice", "runs/update", {"overlap": "allow", "timeoutMs": 1000})
    assert allowed["overlap"] == "allow"
    status, second = calendar.post("alice", "runs/run")
    assert status == 200

    def timed_out() -> Any:
        ended = {one["runId"]: one for one in calendar.runs("runs") if one["status"] == "timeout"}
        return ended.get(second["runId"])

    assert until(timed_out)["completedAt"]
    task = calendar.ask("root", "GET", f"tasks/{second['taskId']}")[1]
    until(lambda: calendar.worker.calls["CancelTask"])
    assert (task["agent"], task["state"]) == ("worker", "canceled")


def test_hb27_a_ceremony_is_its_authors_and_keys_change_while_the_hub_runs(calendar: Calendar) -> None:
    assert calendar.post("alice", "create", LEAST)[0] == 200
    for who in KEYS:
        assert calendar.post(who, "create", {**LEAST, "name": "Mine"})[0] == 409
    assert "standup" not in calendar.listed("bob") and "standup" in calendar.listed("alice")
    for act, body in (("update", {"name": "x"}), ("delete", None), ("run", None)):
        assert calendar.post("bob", f"standup/{act}", body)[0] == 403
        assert calendar.post("alice", f"nowhere/{act}", body)[0] == 404
    assert calendar.post("root", "standup/update", {"name": "Renamed"})[0] == 200
    assert calendar.post("alice", "standup/run")[0] == 200
    # The key of an agent is replaced: the new one is the same author, the old one nobody.
    (calendar.hub.directory / "keys.yaml").write_text(_keys(**{**ALL_KEYS, "alice": "ALICE2_KEY"}))
    until(lambda: calendar.ask("alice2", "GET", "ceremonies")[0] == 200)
    assert calendar.ask("alice", "GET", "ceremonies")[0] == 401
    assert calendar.post("alice2", "standup/delete")[0] == 200
    (calendar.hub.directory / "keys.yaml").write_text(_keys(**ALL_KEYS))
    until(lambda: calendar.ask("alice", "GET", "ceremonies")[0] == 200)


def test_a_ceremony_outlives_the_key_of_its_author_until_an_admin_ends_it(calendar: Calendar) -> None:
    assert calendar.post("alice", "create", {**LEAST, "id": "leaver"})[0] == 200
    others = {who: env for who, env in ALL_KEYS.items() if who != "alice"}
    (calendar.hub.directory / "keys.yaml").write_text(_keys(**others))
    until(lambda: calendar.ask("alice", "GET", "ceremonies")[0] == 401)
    assert calendar.runs("leaver") == []
    soon = (datetime.now(UTC) + timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert calendar.post("root", "leaver/update", {"schedule": soon})[0] == 200
    (run,) = until(lambda: calendar.runs("leaver"))
    # A run is listed before its task is opened.
    log = until(lambda: calendar.ask("root", "GET", f"tasks/{run['taskId']}/log")[1].get("items"))
    assert [row["principal"] for row in log if row["kind"] == "submitted"] == ["alice"]
    assert calendar.post("bob", "leaver/delete")[0] == 403
    assert calendar.post("root", "leaver/delete")[0] == 200
    (calendar.hub.directory / "keys.yaml").write_text(_keys(**ALL_KEYS))
    until(lambda: calendar.ask("alice", "GET", "ceremonies")[0] == 200)


def test_hb28_and_hb29_what_is_not_said_stays_and_what_is_wrong_is_nowhere(calendar: Calendar) -> None:
    calendar.post("alice", "create", {**LEAST, "id": "paused"})
    calendar.post("alice", "paused/update", {"enabled": False})
    assert calendar.post("alice", "paused/update", {"name": "New"})[1]["enabled"] is False
    before = calendar.listed()
    bad: dict[str, Any] = {
        "schedule": "61 * * * *", "targets": [], "id": "../up", "enabled": "yes", "unheard": 1,
    }  # fmt: skip
    for field, value in bad.items():
        wrong = {field: value}
        status, refused = calendar.post("alice", "create", {**LEAST, "id": "wrong", **wrong})
        assert (status, refused["field"]) == (400, field), refused
        if field != "id":
            assert calendar.post("alice", "paused/update", wrong)[0] == 400
    assert calendar.listed() == before
    assert not [*calendar.folder.glob("*wrong*"), *calendar.hub.directory.glob("*up*")]


def test_hb26_a_moment_that_passed_while_nobody_ran_is_made_up_for_once(calendar: Calendar) -> None:
    made = {**LEAST, "id": "late", "schedule": _moment(1.5), "message": "quick"}
    assert calendar.post("alice", "create", made)[0] == 200
    calendar.hub.kill()
    until(lambda: datetime.now(UTC) > datetime.fromisoformat(made["schedule"]))
    calendar.hub.start()
    (run,) = until(lambda: [one for one in calendar.runs("late") if one["status"] == "success"])
    assert calendar.ask("root", "GET", f"tasks/{run['taskId']}")[1]["text"] == "did quick"


HOLDING = '''
import asyncio, os
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill(id="hold")
async def hold(turn: Turn) -> str:
    """Work until there is a file `released`."""
    while not os.path.exists("released"):
        await asyncio.sleep(0.02)
    return "released"

@agent.skill(id="quick")
async def quick(turn: Turn) -> str:
    return "done"
'''


def _drained_over(hub: HubProcess, other: HubProcess, count: int) -> list[dict[str, Any]]:
    """Have a hub drain while schedules are due; return their runs, as the other hub shows them."""
    agent = Agent(hub.base)
    held = agent.http.post(f"{hub.base}/api/dispatch", json={"skill": "hold", "message": "hold"}).json()
    task = f"{hub.base}/api/tasks/{held['tasks'][0]['taskId']}"
    until(lambda: agent.http.get(task).json()["state"] == "working")
    due = _moment(3)
    for number in range(count):
        form = {"id": f"once{number}", "name": "Once", "schedule": due, "skill": "quick", "targets": ["here"]}
        assert agent.http.post(f"{hub.base}/api/ceremonies/create", json=form).status_code == 200
    agent.close()
    assert hub.process is not None
    hub.process.send_signal(signal.SIGTERM)
    until(lambda: datetime.now(UTC) > datetime.fromisoformat(due) + timedelta(seconds=3))
    # It has drained over the moment at which they were due, and past a few turns of its scheduler.
    assert hub.process.poll() is None
    if other is hub:
        (hub.directory / "released").touch()
        hub.process.wait(60)
        hub.start()
    asking = Agent(other.base)

    def runs() -> list[dict[str, Any]]:
        paths = [f"{other.base}/api/ceremonies/once{number}/runs?skipped=true" for number in range(count)]
        found = [item for path in paths for item in asking.http.get(path).json()["items"]]
        return found if len(found) >= count and all("completedAt" in one for one in found) else []

    found = until(runs)
    asking.close()
    return found


def _workspace(folder: Path) -> Path:
    folder.mkdir()
    (folder / "local_agent.py").write_text(HOLDING)
    (folder / "agents.yaml").write_text('agents:\n  - {name: here, import: "local_agent:agent"}\n')
    return folder


def test_run_that_is_due_while_a_hub_drains_is_done_by_its_next_start(tmp_path: Path) -> None:
    with HubProcess(_workspace(tmp_path / "hub")) as hub:
        runs = _drained_over(hub, hub, 2)
        assert [one["status"] for one in runs] == ["success"] * 2


def test_run_that_is_due_while_a_hub_drains_is_done_by_the_other_hub(
    tmp_path: Path, postgres_url: str
) -> None:
    workspace, flags = _workspace(tmp_path / "hub"), ("--store", postgres_url)
    with HubProcess(workspace, *flags) as draining, HubProcess(workspace, *flags) as healthy:
        runs = _drained_over(draining, healthy, 8)
        assert [one["status"] for one in runs] == ["success"] * 8
        (workspace / "released").touch()
