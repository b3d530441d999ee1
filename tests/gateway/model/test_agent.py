"""Model agents driven in this process by the test models of pydantic-ai."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel as EveryTool

from tests.gateway.model.hub import answer, named
from tests.gateway.model.test_tools import web
from tests.harness import plain_state
from tests.peer.rig import calling, served
from tests.peer.test_remote_run import Mortal, drive
from tests.run.desk import run, said
from tests.run.pair import die
from trunkline import Agent, Turn
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.catalogue.model_entry import CAPABILITIES, ModelEntry
from trunkline.gateway.model.agent import card_facts, model_agent
from trunkline.gateway.model.tools import ModelParts
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher, FullResponse
from trunkline.peer.remote import Peer
from trunkline.run import children
from trunkline.run.spending import NoQuotas
from trunkline.wire.types import Part, SendRequest, TaskState


class OneModel:
    def __init__(self, model: Model) -> None:
        self._model = model

    def find(
        self, name: str, base_url: str = "", api_key_env: str = "", *, egress: Egress | None = None
    ) -> Model:
        return self._model

    async def close(self) -> None:
        pass


def parts(model: Model, folder: Path) -> ModelParts:
    nothing = cast("Any", None)
    return ModelParts(
        models=OneModel(model), agents=lambda _: (), fetcher=nothing, egress=lambda _: Egress(), mcp=nothing, policy=nothing, meter=NoQuotas(), files=folder, notes=nothing,
        todos=nothing, ceremonies=nothing, now_ms=lambda: 0, own=nothing,
    )  # fmt: skip


def test_every_tool_that_is_granted_is_used_by_the_test_model(tmp_path: Path) -> None:
    async def scene() -> None:
        entry = ModelEntry(model="any:thing", capabilities=("/write", "/list", "/agent", "/advise"))
        agent = model_agent("helper", lambda _: entry, parts(EveryTool(), tmp_path))
        async with agent.test_client() as client:
            task = await client.send("go")
            assert plain_state(task) == "completed", task
            used = [one["parts"][0]["data"] for one in named(task, "tool_call")]
            assert [one["tool"] for one in used] == ["write", "list", "agent", "advise"]
            assert [one["ok"] for one in used] == [True, True, False, True]
        assert (tmp_path / "default" / "a").exists()

    asyncio.run(scene())


def test_a_function_model_streams_and_sees_the_conversation(tmp_path: Path) -> None:
    async def words(messages: list[ModelMessage], info: AgentInfo) -> Any:
        yield f"{len(messages)} "
        yield "heard"

    async def scene() -> None:
        entry = ModelEntry(model="any:thing")
        agent = model_agent("helper", lambda _: entry, parts(FunctionModel(stream_function=words), tmp_path))
        async with agent.test_client() as client:
            first = await client.send("one")
            assert answer(first) == "1 heard"
            assert answer(await client.send("two", contextId=first["contextId"])) == "3 heard"

    asyncio.run(scene())


def test_an_agent_that_is_gone_refuses(tmp_path: Path) -> None:
    async def scene() -> None:
        agent = model_agent("helper", lambda _: None, parts(EveryTool(), tmp_path))
        async with agent.test_client() as client:
            assert plain_state(await client.send("go")) == "rejected"

    asyncio.run(scene())


def test_the_card_lists_chat_and_a_skill_for_each_capability_in_their_order() -> None:
    entry = ModelEntry(model="a:b", role="scout", goal="find", capabilities=("/fetch", "/search", "/mem"))
    facts = card_facts(entry, 1)
    assert facts.description == "scout — find"
    assert [one.id for one in facts.skills] == ["chat", "fetch-url", "web-search", "memory"]
    assert [one.tags[0] for one in facts.skills] == ["text", "/fetch", "/search", "/mem"]
    every = card_facts(ModelEntry(model="a:b", capabilities=tuple(CAPABILITIES)), 1)
    assert len({one.id for one in every.skills}) == 13


def test_there_is_no_tool_that_runs_commands() -> None:
    assert CAPABILITIES.keys().isdisjoint({"/exec", "/shell", "/bash"})


CHAIN = {"trunkline.chain": {"cost": 8.0}}


def listed(name: str, peer: Peer | None = None) -> Listed:
    return Listed(entry=Entry(name=name, owner="api", peer=peer), state="ready")


class Pages(Fetcher):
    """Fetches for the living, and notes what."""

    def __init__(self, life: Life) -> None:
        super().__init__(Egress(loopback=True))
        self._life = life

    async def get(self, url: str, **more: Any) -> FullResponse:
        await self._life.alive()
        self._life.fetched.append(url)
        try:
            return await super().get(url, **more)
        finally:
            await self.close()


class Life:
    """What a task of a model has others do, over the lives of its process: nothing is begun by the dead."""

    def __init__(self, store: Mortal) -> None:
        self.store = store
        self.paid: list[str] = []
        self.page = ""
        self.fetched: list[str] = []
        # By task, what it was allowed to cost.
        self.shares: dict[str, float | None] = {}
        self.near = Agent("writer", on_crash="resume")
        self.near.skill(id="write")(self._write)

    async def _write(self, turn: Turn) -> str:
        self.shares[turn.task_id] = turn.cost_left
        return "a verse"

    async def alive(self) -> None:
        if self.store.dead.is_set():
            await asyncio.Event().wait()

    async def words(self, messages: list[ModelMessage], info: AgentInfo) -> Any:
        await self.alive()
        if len(messages) == 1:
            (asked,) = [part for part in messages[0].parts if isinstance(part, UserPromptPart)]
            self.paid.append(str(asked.content))
            yield {
                # The first, so that nothing is written while it is under way.
                0: DeltaToolCall(name="fetch", json_args=f'{{"url": "{self.page}"}}'),
                1: DeltaToolCall(name="write", json_args='{"path": "a", "text": "b"}'),
                2: DeltaToolCall(name="agent", json_args='{"name": "writer", "message": "go"}'),
                3: DeltaToolCall(name="a2a", json_args='{"line": "card peer"}'),
                4: DeltaToolCall(name="a2a", json_args='{"line": "call peer now"}'),
            }
        else:
            yield "|".join(
                [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
            )

    def skill(self, folder: Path) -> Any:
        """What the agent does, by an entry that may do all this."""
        entry = ModelEntry(model="any:thing", capabilities=("/write", "/agent", "/a2a", "/fetch"))
        made = parts(FunctionModel(stream_function=self.words), folder)
        known = [listed("writer"), listed("peer", Peer(url="http://localhost"))]
        whole = replace(made, agents=lambda _: known, fetcher=lambda _: Pages(self))
        return cast("Any", model_agent("caller", lambda _: entry, whole).skills["chat"].function)


def test_whichever_append_is_the_last_the_model_and_the_agent_that_it_asks_are_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "SWEEP_S", 0.1)

    async def scenario(deadly: int, page: str, app: Any) -> bool:
        """Whether the process died at all."""
        store = Mortal(deadly)
        await store.open()
        life = Life(store)
        life.page = page
        chat = life.skill(tmp_path)
        told = replace(said("look"), parts=(Part(text="look"), Part(url=page)), metadata=CHAIN)
        async with calling(chat, app, life.near, store=store) as first:
            feed, _ = first.submit("t", "me", SendRequest(told), agent=first.origin)
            task_id = feed.state.task_id
            while not feed.state.seq and not store.dead.is_set():  # noqa: ASYNC110 - either may come
                await asyncio.sleep(0)
            ended = await drive(first, store, task_id)
            if not ended:
                await die(first)
                store.revive()
                async with calling(chat, app, life.near, store=store) as second:
                    assert await drive(second, store, task_id)
                    feed = await second.find(task_id)
            assert feed.state.state is TaskState.COMPLETED, (deadly, feed.state.status_message)
            artifacts = {one.name: one for one in feed.state.task().artifacts}
            answered = str(artifacts["response"].parts[0].text).split("|")
            assert answered[0].startswith("x" * 1000), deadly
            assert answered[1:3] == ["a has 1 bytes.", "a verse"], deadly
            assert answered[3].startswith("[/a2a card peer]\nname: peer"), deadly
            assert answered[4] == "[/a2a call peer]\nfrom afar\n[END A2A]", deadly
            # The file of the caller, and what the model looked up.
            assert (life.fetched, elsewhere) == ([page] * 2, ["now"] * deadly), deadly
            assert len(life.paid) == 1 and "x" * 5000 in life.paid[0], deadly
            # A task that is asked twice would have another share of what is left.
            (share,) = life.shares.values()
            assert share is not None and 3.9 < share <= 4, deadly
            shares.add(share)
        await store.close()
        return not ended

    shares: set[float] = set()
    elsewhere: list[str] = []
    far = Agent("far")

    @far.skill(id="far")
    async def afar(turn: Turn) -> str:
        elsewhere.append(turn.text)
        return "from afar"

    async def lives(page: str) -> None:
        async with served(far) as app:
            deadly = 1
            while await scenario(deadly, page, app):
                deadly += 1
        assert deadly > 20 and len(shares) == 1

    with web() as base:
        run(lives(f"{base}/long"))
