"""Model calls of workflows and model agents count at once, and stop the task when a limit is spent."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.flow.surfaces import ASK, workflow
from tests.gateway.model.hub import Caller, opened, reason, run
from tests.gateway.model.openai_server import ModelServer, Reply
from trunkline.hub.hub import Hub

KEY = "operators-key-1"
_ENDED = ("TASK_STATE_FAILED", "TASK_STATE_CANCELED")
# A call of the model server has 55 tokens; `mini` costs 0.0000105 dollars for these.
TOKENS, PRICE = 55, (50 * 0.15 + 5 * 0.6) / 1e6
THINK = {"id": "think", "type": "llm_call", "config": {"model": "mini", "prompt": "go"}}
COUNT = {"id": "count", "type": "set_state", "config": {"assignments": {"n": {"jq": "(.n // 0) + 1"}}}}
LOOP: dict[str, Any] = workflow(
    THINK,
    COUNT,
    {"id": "again", "type": "switch", "config": {"cases": [{"when": ".n < 1000", "target": "think"}], "default": "end"}},
    name="loop",
)  # fmt: skip
LOOP["edges"] = [one for one in LOOP["edges"] if one["source"] != "again"]
AGENTS = "agents:\n  - {name: loop, workflow: workflows/loop.json, tenants: all}\n"


async def limited(boss: Caller, **quota: Any) -> Caller:
    """A caller of a new tenant with a quota, which may call models."""
    caller = await boss.tenant("acme")
    change = {"quota": quota, "settings": {"tools": ["model:*"]}}
    assert (await boss("PATCH /admin/tenants/acme", change))[0] == 200
    return caller


def set_up(folder: Path, models: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = {"baseUrl": models.url, "model": "mini"}
    monkeypatch.setenv("WORKFLOW_ENGINE_LLM_CONFIG", json.dumps(config))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    (folder / "workflows").mkdir()
    (folder / "workflows" / "loop.json").write_text(json.dumps(LOOP))
    return folder


@pytest.mark.parametrize(
    ("quota", "limit"),
    [({"tokens_per_day": 10 * TOKENS}, "tokens_per_day"), ({"cost_per_day": 9.5 * PRICE}, "cost_per_day")],
)
def test_a_run_stops_at_the_call_that_a_spent_quota_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: dict[str, Any], limit: str
) -> None:
    async def scene(models: ModelServer) -> None:
        async with opened(set_up(tmp_path, models, monkeypatch), AGENTS, key=KEY) as boss:
            acme = await limited(boss, **quota)
            status, told = await acme("POST /v1/executions", {"definition": LOOP, "input": {}})
            assert (status, told["error"]["code"]) == (422, "QUOTA_SPENT"), told
            assert limit in told["error"]["message"]
            assert len(models.asked) == 10
            # Nothing new begins, and nothing is asked.
            status, told = await acme("POST /v1/executions", {"definition": LOOP, "input": {}})
            assert (status, told["error"]["details"]) == (429, {"limit": limit})
            _, told = await acme("GET /api/cost-summaries")
            assert "flow/runs" in json.dumps(told), told
            assert len(models.asked) == 10

    with ModelServer(lambda asked: Reply(["done"])) as models:
        run(scene(models))


def test_a_run_stops_when_the_budget_of_its_chain_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(models: ModelServer) -> None:
        async with opened(set_up(tmp_path, models, monkeypatch), AGENTS) as ask:
            await ask.ready("loop")
            ended = await ask.say("loop", "go", metadata={"trunkline.chain": {"cost": 4.5 * PRICE}})
            assert ended["status"]["state"] == "TASK_STATE_FAILED"
            assert "allows this run to cost is spent" in reason(ended)
            assert len(models.asked) == 5

    with ModelServer(lambda asked: Reply(["done"])) as models:
        run(scene(models))


def test_what_an_open_run_spent_is_counted_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"store": f"sqlite:///{tmp_path / 'hub.db'}", "dev": True, "keys": (KEY,)}
    waiting = {"definition": workflow(THINK, ASK, COUNT, THINK | {"id": "more"}), "input": {}}

    async def scene(models: ModelServer) -> None:
        folder = set_up(tmp_path, models, monkeypatch)
        (folder / "agents.yaml").write_text(AGENTS)
        async with (first := Hub(folder, flags, {})).host.lifespan():
            acme = await limited(Caller(first, KEY), tokens_per_day=2 * TOKENS)
            told = [(await acme("POST /v1/executions", waiting))[1] for _ in range(2)]
            assert [one["status"] for one in told] == ["interrupted"] * 2, told
            await first.host.api.health.caught_up()
        async with (second := Hub(folder, flags, {})).host.lifespan():
            acme = Caller(second, acme.key)
            await second.host.api.health.caught_up()
            assert (await acme("POST /v1/executions", waiting))[0] == 429
            resumed = f"POST /v1/executions/{told[0]['execution_id']}:resume"
            status, ended = await acme(resumed, {"resume_payload": {"ok": True}})
            assert (status, ended["error"]["code"]) == (422, "QUOTA_SPENT"), ended
            _, summaries = await acme("GET /api/cost-summaries")
            assert str(TOKENS - 5) in json.dumps(summaries), summaries
            assert len(models.asked) == 2

    with ModelServer(lambda asked: Reply(["done"])) as models:
        run(scene(models))


def test_a_model_agent_stops_between_two_calls_when_a_quota_is_spent(tmp_path: Path) -> None:
    agents = 'agents:\n  - {name: helper, model: "openai:mini", capabilities: [/todo], tenants: all}\n'

    async def scene(models: ModelServer) -> None:
        async with opened(tmp_path, agents, key=KEY, OPENAI_BASE_URL=models.url) as boss:
            # A streamed answer has twice the tokens.
            acme = await limited(boss, tokens_per_day=6 * TOKENS)
            await acme.ready("helper")
            ended = await acme.say("helper", "go")
            assert ended["status"]["state"] == "TASK_STATE_FAILED"
            assert reason(ended).startswith("quota_spent: the limit tokens_per_day of this tenant is met")
            assert len(models.asked) == 3

    with ModelServer(lambda asked: Reply(calls=[("todo", {"action": "list"})])) as models:
        run(scene(models))


def advised(answer: Reply, **entry: Any) -> Any:
    return pytest.param(answer, {"name": "helper", "model": "openai:mini", "tenants": "all", **entry})


@pytest.mark.parametrize(
    ("answer", "entry"),
    [
        advised(Reply(calls=[("advise", {"question": "q"})] * 5), capabilities=["/advise"]),
        advised(Reply(["done"]), advisor={"model": "openai:mini", "mode": "gate"}),
    ],
    ids=["consult", "gate"],
)
def test_a_model_agent_asks_no_advisor_when_a_quota_is_spent(
    tmp_path: Path, answer: Reply, entry: dict[str, Any]
) -> None:
    async def scene(models: ModelServer) -> None:
        agents = json.dumps({"agents": [entry]})
        async with opened(tmp_path, agents, key=KEY, OPENAI_BASE_URL=models.url) as boss:
            # A streamed answer has twice the tokens.
            acme = await limited(boss, tokens_per_day=2 * TOKENS)
            await acme.ready("helper")
            ended = await acme.say("helper", "go")
            assert ended["status"]["state"] == "TASK_STATE_FAILED"
            assert reason(ended).startswith("quota_spent: the limit tokens_per_day of this tenant is met")
            assert len(models.asked) == 1

    with ModelServer(lambda asked: answer) as models:
        run(scene(models))


@pytest.mark.parametrize("how", ["timeout", "cancel", "refused"])
def test_answer_that_breaks_off_counts_in_the_quota(tmp_path: Path, how: str) -> None:
    seconds = 0.3 if how == "timeout" else 60
    agents = (
        f'agents:\n  - {{name: helper, model: "openai:mini", limits: {{seconds: {seconds}}}, tenants: all}}\n'
    )
    hold = threading.Event()
    reply = Reply(status=401) if how == "refused" else Reply(["x" * 400, "y"], hold=hold)

    async def scene(models: ModelServer) -> None:
        async with opened(tmp_path, agents, key=KEY, OPENAI_BASE_URL=models.url) as boss:
            acme = await limited(boss, tokens_per_day=100)
            await acme.ready("helper")
            message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "go"}]}
            sent = {"message": message, "configuration": {"returnImmediately": True}}
            _, begun = await acme("POST /v1/a2a/agents/helper/message:send", sent)
            place = f"/v1/a2a/agents/helper/tasks/{begun['task']['id']}"
            if how == "cancel":
                await acme.until(f"GET {place}", lambda one: "xxx" in str(one.get("artifacts")))
                assert (await acme(f"POST {place}:cancel", {}))[0] == 200
            await acme.until(f"GET {place}", lambda one: one["status"]["state"] in _ENDED)
            status, _ = await acme(
                "POST /v1/a2a/agents/helper/message:send", sent | {"message": message | {"messageId": "m2"}}
            )
            assert status == (200 if how == "refused" else 429)
        hold.set()

    with ModelServer(lambda asked: reply) as models:
        run(scene(models))


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_model_call_of_a_run_that_nobody_waits_for_counts_in_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    hold = threading.Event()
    thinking = THINK | ({"timeout": "300ms"} if how == "timeout" else {})

    def answer(asked: Any) -> Reply:
        hold.wait(30)
        return Reply(["done"])

    async def scene(models: ModelServer) -> None:
        async with opened(set_up(tmp_path, models, monkeypatch), AGENTS, key=KEY) as boss:
            acme = await limited(boss, tokens_per_day=10)
            order = {"definition": workflow(thinking), "input": {}, "execution_id": "r1"}
            started = asyncio.create_task(acme("POST /v1/executions", order))
            await acme.until("GET /v1/executions/r1", lambda _: bool(models.asked))
            if how == "cancel":
                await acme("POST /v1/executions/r1:cancel", {})
            await started
            status, told = await acme("POST /v1/executions", order | {"execution_id": "r2"})
            assert status == 429, told
        hold.set()

    with ModelServer(answer) as models:
        run(scene(models))


SPENDER = """
import asyncio
from trunkline import Agent, Turn

agent = Agent("Spender")
go = asyncio.Event()

@agent.skill
async def spend(turn: Turn) -> str:
    turn.usage(input_tokens=60, cost_usd=0.6)
    return "spent"

@agent.skill
async def hold(turn: Turn) -> str:
    await go.wait()
    turn.usage(input_tokens=60, cost_usd=0.6)
    return "spent"
"""
SPENDERS = "agents:\n  - {name: spender, import: 'SPENDER:agent', tenants: all}\n"


def dispatch(skill: str, **more: Any) -> dict[str, Any]:
    return {"agent": "spender", "skill": skill, "message": "go", **more}


@pytest.mark.parametrize("quota", [{"tokens_per_day": 100}, {"cost_per_day": 1.0}])
def test_a_task_that_has_ended_counts_for_the_next_request(tmp_path: Path, quota: dict[str, Any]) -> None:
    module = f"spender_{'_'.join(quota)}"
    (tmp_path / f"{module}.py").write_text(SPENDER)

    async def scene() -> None:
        async with opened(tmp_path, SPENDERS.replace("SPENDER", module), key=KEY) as boss:
            acme = await limited(boss, **quota)
            for status in (200, 200, 429, 429):
                assert (await acme("POST /api/dispatch", dispatch("spend", wait=30)))[0] == status

    run(scene())


def test_a_limit_is_exceeded_at_most_by_the_tasks_that_are_in_work(tmp_path: Path) -> None:
    (tmp_path / "held_spender.py").write_text(SPENDER)

    async def scene() -> None:
        async with opened(tmp_path, SPENDERS.replace("SPENDER", "held_spender"), key=KEY) as boss:
            acme = await limited(boss, tokens_per_day=100, concurrent_tasks=3)
            opened_tasks = [await acme("POST /api/dispatch", dispatch("hold")) for _ in range(5)]
            assert [status for status, _ in opened_tasks] == [200] * 3 + [429] * 2
            importlib.import_module("held_spender").go.set()
            for _, told in opened_tasks[:3]:
                path = f"GET /api/tasks/{told['tasks'][0]['taskId']}"
                await acme.until(path, lambda one: one["state"] == "completed")
            # All three were in work when the limit was reached; no other one begins.
            assert (await acme("POST /api/dispatch", dispatch("spend")))[0] == 429

    run(scene())


def test_a_task_that_ended_at_another_hub_counts_for_the_next_request(
    tmp_path: Path, postgres_url: str
) -> None:
    (tmp_path / "shared_spender.py").write_text(SPENDER)
    (tmp_path / "agents.yaml").write_text(SPENDERS.replace("SPENDER", "shared_spender"))
    flags = {"store": postgres_url, "dev": True, "keys": (KEY,), "secret_key": "of-the-two-hubs-" * 3}

    async def scene() -> None:
        first, second = Hub(tmp_path, flags, {}), Hub(tmp_path, flags, {})
        async with first.host.lifespan(), second.host.lifespan():
            here = await limited(Caller(first, KEY), tokens_per_day=100)
            there = Caller(second, here.key)
            await there.until("GET /api/agents", lambda told: "items" in told)
            await Caller(second, KEY).until("GET /admin/tenants/acme", lambda told: told["quota"])
            for caller, status in ((here, 200), (there, 200), (here, 429), (there, 429)):
                assert (await caller("POST /api/dispatch", dispatch("spend", wait=30)))[0] == status

    run(scene())
