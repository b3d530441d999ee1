"""The page of metrics: what is on it is what the docs say, and it counts what happened."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.harness import V1, message
from tests.hooks import Hooks
from trunkline import Agent, Effect, Turn
from trunkline.errors import Misuse
from trunkline.fleet.health.fleet_health import FleetHealth
from trunkline.host import Application
from trunkline.log.events import Submitted
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.store.url import store_from_url
from trunkline.telemetry import metrics as page
from trunkline.wire.types import Message, Part, Role

DOCS = Path(__file__).parents[2] / "docs/operations.md"
ROW = re.compile(r"^\| `(trunkline_\w+)` \| ([^|]*)\|", re.MULTILINE)
KEY = {"X-API-Key": "a-long-enough-key"}


def _serve(asking: Callable[[Application, httpx2.AsyncClient], Awaitable[Any]], **flags: object) -> Any:
    agent = Agent("counted")

    @agent.skill()
    async def echo(turn: Turn) -> str:
        """Say it back, after a question if asked to."""
        return turn.text if turn.text != "ask" else (await turn.ask("What?")).text

    @agent.skill(effects=[Effect("shop", "stock", -1)])
    async def drifting(turn: Turn) -> str:
        """Do nothing of what is declared."""
        return turn.text

    async def main() -> Any:
        app = Application(agent, {"store": "memory:", "metrics": True, **flags})
        transport = httpx2.ASGITransport(app)
        async with (
            app.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=V1) as client,
        ):
            return await asking(app, client)

    return asyncio.run(main())


async def _busy(app: Application, client: httpx2.AsyncClient) -> tuple[str, str]:
    for text in ("hello", "hello", "ask"):
        await client.post("/message:send", json={"message": message(text)})
    await client.post("/message:send", json={"message": message("go", metadata={"skill": "drifting"})})
    again = {"message": message("once")}
    for _ in range(2):
        await client.post("/message:send", json=again)
    await client.get("/tasks/0190a1b2-0000-7000-8000-000000000000")
    await client.get("/nowhere")
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text, app.host.runner.node


async def _followed(app: Application, client: httpx2.AsyncClient) -> str:
    """The page of a host that follows the health of its agents, as a hub does."""
    await _busy(app, client)
    host = app.host
    host.api.health = health = FleetHealth(
        host.store, origin="counted", window_s=3600.0, registered=lambda _: host.agents
    )
    await health.fresh()
    return (await client.get("/metrics")).text


def _samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def _values(text: str) -> dict[tuple[str, ...], float]:
    """Each value by the name of its metric and its labels but the node."""
    return {
        (
            sample.name,
            *(sample.labels[name] for name in sorted(sample.labels) if name != "node"),
        ): sample.value
        for sample in _samples(text)
    }


def test_what_happened_is_counted() -> None:
    text, node = _serve(_busy)
    found = _values(text)
    assert {sample.labels["node"] for sample in _samples(text)} == {node}
    expected = {
        ("trunkline_ready",): 1,
        ("trunkline_tasks_running",): 1,
        ("trunkline_streams_open",): 0,
        ("trunkline_task_changes_total", "submitted"): 5,
        ("trunkline_task_changes_total", "completed"): 4,
        ("trunkline_task_changes_total", "input-required"): 1,
        ("trunkline_task_changes_total", "failed"): 0,
        ("trunkline_requests_total", "SendMessage", "OK"): 6,
        ("trunkline_requests_total", "GetTask", "TASK_NOT_FOUND"): 1,
        ("trunkline_requests_total", "unknown", "ROUTE_NOT_FOUND"): 1,
        ("trunkline_refusals_total", "TASK_NOT_FOUND"): 1,
        ("trunkline_refusals_total", "ROUTE_NOT_FOUND"): 1,
        ("trunkline_appends_total", "written"): 10,
        ("trunkline_appends_total", "duplicate"): 1,
        ("trunkline_appends_total", "failed"): 0,
        ("trunkline_commit_appends_sum",): 11,
        ("trunkline_effect_drifts_total", "drifting"): 1,
        ("trunkline_takeovers_total", "no"): 0,
        ("trunkline_takeovers_total", "resume"): 0,
        ("trunkline_late_events_total",): 0,
        ("trunkline_deliveries_total", "done"): 0,
        ("trunkline_deliveries_total", "dead"): 0,
        ("trunkline_delivery_lag_seconds",): 0,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert found["trunkline_commit_seconds_count",] == found["trunkline_commit_appends_count",] > 0
    assert found["trunkline_commit_seconds_bucket", "+Inf"] == found["trunkline_commit_seconds_count",]


def test_deliveries_are_counted_by_what_became_of_them() -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> str:
        with Hooks() as hooks:
            hooks.scripts["/"] = [200, 404]
            configuration = {"taskPushNotificationConfig": {"url": hooks.url("/")}}
            await client.post(
                "/message:send", json={"message": message("hi"), "configuration": configuration}
            )
            assert app.host.notifier is not None
            async with asyncio.timeout(60):
                while not app.host.notifier.counts.dead:  # noqa: ASYNC110 - nothing there to wait on
                    await asyncio.sleep(0.01)
        return (await client.get("/metrics")).text

    found = _values(_serve(asking, dev=True))
    assert found["trunkline_deliveries_total", "done"] == found["trunkline_deliveries_total", "dead"] == 1


def test_a_host_that_follows_its_fleet_shows_how_agents_did() -> None:
    found = {
        (one.name, one.labels.get("outcome") or one.labels.get("quantile")): one.value
        for one in _samples(_serve(_followed))
        if (one.labels.get("tenant"), one.labels.get("agent")) == ("default", "counted")
    }
    assert found["trunkline_fleet_outcomes", "completed"] == 4
    assert found["trunkline_fleet_outcomes", "input-required"] == 1
    assert found["trunkline_fleet_cost_usd", None] == 0
    assert found["trunkline_fleet_latency_seconds", "0.95"] >= 0

    async def asking(app: Application, client: httpx2.AsyncClient) -> str:
        return (await client.get("/metrics")).text

    assert "trunkline_fleet" not in _serve(asking)


def test_who_does_not_push_counts_no_deliveries() -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> str:
        return (await client.get("/metrics")).text

    assert "trunkline_deliver" not in _serve(asking, push=False)


def test_the_docs_list_what_is_there() -> None:
    text = _serve(_followed)
    there: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("trunkline_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"node", "le"}
            there[name] = labels
    listed = {
        name: set(re.findall(r"`(\w+)`", labels)) for name, labels in ROW.findall(DOCS.read_text("utf-8"))
    }
    assert listed == there


def test_an_authors_own_metrics_are_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    own = CollectorRegistry()
    monkeypatch.setattr(page, "REGISTRY", own)
    Counter("cups_of_tea", "Drunk.", registry=own).inc()
    text, node = _serve(_busy)
    assert f'cups_of_tea_total{{node="{node}"}} 1.0' in text


def test_open_metrics_is_spoken_too() -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})

    answer = _serve(asking)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("verb", "headers", "status"),
    [
        ("GET", KEY, 200),
        ("HEAD", KEY, 200),
        ("GET", {}, 401),
        ("GET", {**KEY, "Host": "evil.example"}, 403),
        ("GET", {**KEY, "Origin": "http://evil.example"}, 403),
        ("POST", KEY, 405),
    ],
)
def test_metrics_are_guarded_like_any_other_route(verb: str, headers: dict[str, str], status: int) -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.request(verb, "/metrics", headers=headers)

    answer = _serve(asking, keys=("a-long-enough-key",))
    assert answer.status_code == status
    assert (b"trunkline_" in answer.content) == (status == 200 and verb == "GET")


def test_without_the_setting_there_is_no_page() -> None:
    async def asking(app: Application, client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.get("/metrics")

    assert _serve(asking, metrics=False).status_code == 404


def test_a_task_of_a_dead_process_is_a_takeover(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    task_id = "0190a1b2-0000-7000-8000-000000000000"

    async def leave_behind() -> None:
        store = store_from_url(url)
        await store.open()
        said = Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),))
        events = (Submitted(message=said, context_id="c", principal="anonymous", node="gone"),)
        head = head_after(State(task_id), events, 1)
        await store.log.append("default", task_id, 0, events, at=1, head=head)
        await store.close()

    async def asking(app: Application, client: httpx2.AsyncClient) -> str:
        feed = await app.host.runner.tasks.find(
            "default", "anonymous", task_id, app.host.runner.names_of(app.agent.id)
        )
        await app.host.runner.tasks.end(feed, 10)
        assert app.host.runner.takeovers == 1
        return (await client.get("/metrics")).text

    asyncio.run(leave_behind())
    text = _serve(asking, store=url)
    found = _values(text)
    assert [found["trunkline_takeovers_total", again] for again in ("no", "restart", "resume")] == [1, 0, 0]
    assert found["trunkline_task_changes_total", "failed"] == 1


def test_metrics_without_their_library_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("bare", store="memory:")
    agent.skill()(_nothing)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "trunkline.telemetry.metrics", raising=False)
    with pytest.raises(Misuse, match=r"pip install 'trunkline\[metrics\]'"):
        Application(agent, {"metrics": True})


async def _nothing(text: str) -> str:
    """Say it back."""
    return text
