"""Toolboxes of one agent and of many: rows 7, 58 and 66, PK 10 and 11."""

from __future__ import annotations

import asyncio
import logging
import textwrap
from pathlib import Path
from typing import Any

import pytest
from mcp.types import Tool as McpTool

from tests.bridge.agents import client_of, planner
from tests.client.agents import COMPLETED, Stand, card, task
from tests.harness import ServerProcess
from trunkline import Agent, Turn
from trunkline.bridge.outcome import ToolOutcome
from trunkline.bridge.tools import tools
from trunkline.client.client import Client
from trunkline.client.result import Result
from trunkline.client.sync import SyncClient
from trunkline.errors import Misuse, Unreachable
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import Interface, PeerCard
from trunkline.wire.types import Message, Part, Role, Task, TaskState, TaskStatus

WAIT_S = 60


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


def test_every_shape_of_every_tool() -> None:
    async def main() -> None:
        async with client_of(planner()) as client, tools(client, allow=["plan"]) as box:
            (tool,) = box
            assert (len(box), "a2a__planner__plan" in box, box[tool.name]) == (1, True, tool)
            (chat,), (responses,), (anthropic,), (mcp,) = (
                box.openai(), box.openai_responses(), box.anthropic(), box.mcp(),
            )  # fmt: skip
            schema = tool.input_schema
            about = {"name": "a2a__planner__plan", "description": "Plan a trip."}
            assert chat == {"type": "function", "function": {**about, "parameters": schema}}
            assert responses == {"type": "function", **about, "parameters": schema, "strict": False}
            assert anthropic == {**about, "input_schema": schema}
            checked = McpTool.model_validate(mcp)
            assert (checked.name, checked.title, checked.input_schema) == (tool.name, "Plan", schema)
            assert schema["properties"]["days"] == {"type": "integer", "default": 2}
            assert schema["required"] == ["city"]

    run(main())


def test_a_long_description_is_cut_to_what_models_take() -> None:
    async def main() -> str:
        (tool,) = await tools(PeerCard(name="a", skills=(Skill("b", "", "x" * 2000, ()),)))
        return tool.description

    assert len(run(main())) == 1024


AGENT = """
    from tests.bridge.agents import planner

    agent = planner()
"""


def test_the_same_tool_works_here_and_far_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 66."""
    (tmp_path / "far.py").write_text(textwrap.dedent(AGENT))

    async def both(source: Any) -> list[Any]:
        async with tools(source) as box:
            said = await box.call("a2a__planner__plan", {"city": "Oslo"})
            asked = await box.call("a2a__planner__book", {"city": "Oslo"})
            told = await box.answer(asked, "Monday")
            return [box.openai(), said.words, asked.question, told.words, told.task_id == asked.task_id]

    with ServerProcess(
        tmp_path, "far:agent", env={"PYTHONPATH": str(Path(__file__).parents[2])}, store="memory:"
    ) as server:
        far = run(both(server.base))
    assert run(both(planner())) == far
    assert far[1:] == ['{"city":"Oslo","days":2}', "When do you leave?", "Oslo on Monday", True]


def test_an_agent_in_this_process_that_wants_a_key() -> None:
    async def main() -> ToolOutcome:
        async with tools(planner(keys=["a-key-of-this-agent"])) as box:
            return await box.call("a2a__planner__shout", {"query": "hi"})

    assert run(main()).text == "HI"


def test_many_agents_are_told_apart_by_name() -> None:
    async def main() -> list[str]:
        async with tools([planner("One"), planner("Two")], allow=["shout"]) as box:
            return [(await box.call(tool.name, {"query": tool.agent})).text for tool in box]

    assert run(main()) == ["ONE", "TWO"]


def test_names_of_your_own() -> None:
    async def main() -> list[str]:
        async with tools({"east": planner(), "west": planner()}, allow=["shout"], prefix="team") as box:
            return [tool.name for tool in box]

    assert run(main()) == ["team__east__shout", "team__west__shout"]


def test_equal_agents_get_names_that_no_order_changes() -> None:
    def card(url: str) -> PeerCard:
        return PeerCard(name="shop", skills=(Skill("buy", "", "", ()),), interfaces=(Interface(url),))

    async def names(*cards: PeerCard) -> dict[str, str]:
        box = await tools(cards)
        return {one.interfaces[0].url: tool.name for one, tool in zip(cards, box, strict=True)}

    east, west = card("https://east.example"), card("https://west.example")
    assert run(names(east, west)) == run(names(west, east))
    with pytest.raises(Misuse, match="mapping"):
        run(names(east, east))


def test_two_callers_of_one_agent_keep_their_own_credentials() -> None:
    """PK 11: clients are by what was configured, not by address."""
    seen: list[str] = []
    agent = planner(keys=["first-key-first-key", "second-key-second-key"])

    async def main() -> None:
        app = agent.asgi()

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/a2a":
                seen.append(dict(scope["headers"])[b"x-api-key"].decode())
            await app(scope, receive, send)

        http_client = InProcessHttpClient(watched)
        async with (
            app.lifespan(),
            Client("http://localhost", http_client=http_client, api_key="first-key-first-key") as first,
            Client("http://localhost", http_client=http_client, api_key="second-key-second-key") as second,
            tools({"one": first, "two": second}) as box,
        ):
            for name in ("one", "two", "one"):
                assert (await box.call(f"a2a__{name}__shout", {"query": "x"})).text == "X"
        await http_client.close()

    run(main())
    assert [key.partition("-")[0] for key in seen] == ["first", "second", "first"]


def test_a_dead_agent_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with (
            Client("http://127.0.0.1:9", retries=0) as dead,
            tools({"dead": dead, "live": planner()}, allow=["shout"]) as box,
        ):
            assert [tool.agent for tool in box] == ["live"]
            assert list(box.missing) == ["dead"]

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "tools.agent_missing agent=dead" in caplog.text


def test_only_dead_agents_are_an_error() -> None:
    async def main() -> None:
        async with Client("http://127.0.0.1:9", retries=0) as dead:
            await tools(dead)

    with pytest.raises(Unreachable):
        run(main())


def test_a_card_without_skills_is_one_tool() -> None:
    async def main() -> list[tuple[str, str, str]]:
        box = await tools(
            [PeerCard(name="Old Sage", description="Knows all"), PeerCard(name="")], prefix="a2a"
        )
        return [(tool.name, tool.description, tool.skill) for tool in box]

    assert run(main()) == [("a2a__old_sage", "Knows all", ""), ("a2a__agent", "a2a__agent", "")]


def test_a_card_that_lists_a_skill_twice() -> None:
    async def main() -> list[str]:
        skills = (Skill("b", "", "first", ()), Skill("b", "", "second", ()))
        return [tool.description for tool in await tools(PeerCard(name="a", skills=skills))]

    assert run(main()) == ["first"]


def test_a_skill_that_is_not_public_shows_no_parameters() -> None:
    agent = Agent("vault", store="memory:", drain_limit=0.1)

    @agent.skill
    async def open_(box: str, code: int) -> str:
        """Open a box."""
        return box

    @agent.skill(public=False)
    async def empty(secret_name: str, code: int) -> str:
        """Empty a box."""
        return secret_name

    async def main() -> PeerCard:
        async with client_of(agent) as client, tools(client) as box:
            assert [tool.skill for tool in box] == ["open_"]
            return await client.card()

    assert "secret_name" not in str(run(main()).document)


def test_a_file_reaches_the_skill_with_its_name() -> None:
    """PK 2, the way out: nothing is dropped or encoded again."""
    agent = Agent("reader", store="memory:", drain_limit=0.1)

    @agent.skill(input_modes=["text/plain", "application/pdf"])
    async def read(turn: Turn) -> list[object]:
        """Read a file."""
        return [[part.text, part.raw, part.filename, part.media_type] for part in turn.request.parts]

    async def main() -> Any:
        async with tools(agent) as box:
            arguments = {"query": "look", "file_data": "JVBERi0=", "file_name": "a b.pdf"}
            return (await box.call("a2a__reader__read", arguments)).data

    assert run(main()) == ([["look", None, "", ""], [None, "JVBERi0=", "a b.pdf", "application/pdf"]],)


def test_nothing_gives_no_tools() -> None:
    async def main() -> int:
        return len(await tools([]))

    assert run(main()) == 0


@pytest.mark.parametrize("odd", [7, [7], {"a": None}])
def test_what_has_no_skills_is_refused(odd: Any) -> None:
    with pytest.raises(Misuse, match="cards, clients, agents and addresses"):
        run(_open(odd))


def test_a_client_that_blocks_is_refused() -> None:
    with SyncClient("http://127.0.0.1:9") as client, pytest.raises(Misuse, match="SyncClient"):
        run(_open(client))


async def _open(source: Any) -> None:
    await tools(source)


def test_a_prefix_that_does_not_fit_is_told_at_once() -> None:
    with pytest.raises(Misuse, match="prefix"):
        tools([], prefix="no spaces")


def test_a_tool_that_is_not_there_is_told_to_the_model() -> None:
    async def main() -> list[ToolOutcome]:
        async with tools(planner(), allow=["shout"]) as box:
            await box.call("a2a__planner__plan", {})
            await box.call("a2a__planner__shout", '{"qu')
            await box.call("a2a__planner__shout", '{"query": "x"}')
            return [*box.outcomes]

    unknown, garbled, worked = run(main())
    assert (worked.text, worked.is_error) == ("X", False)
    assert unknown.is_error and "there are a2a__planner__shout" in unknown.text
    assert garbled.is_error and "not JSON" in garbled.text


def test_what_is_no_question_cannot_be_answered() -> None:
    async def main() -> None:
        async with tools(planner(), allow=["shout"]) as box:
            done = await box.call("a2a__planner__shout", {"query": "x"})
            for odd, words in (
                (done, "no question"),
                ({"tool": "x"}, "no handle"),
                ({"tool": "x", "task_id": "t"}, "not in"),
            ):
                with pytest.raises(Misuse, match=words):
                    await box.answer(odd, "y")

    run(main())


def test_calls_can_share_a_conversation() -> None:
    async def main() -> list[str]:
        async with tools(planner(), allow=["shout"]) as box:
            return [
                (await box.call("a2a__planner__shout", {"query": "x"}, context_id="talk-1")).context_id
                for _ in "ab"
            ]

    assert run(main()) == ["talk-1", "talk-1"]


def test_closing_stops_what_was_opened_and_no_more() -> None:
    async def main() -> None:
        agent: Agent = planner()
        app = agent.asgi()
        box = await tools(agent)
        await box.close()
        async with client_of(agent) as client:
            async with await tools(client, allow=["shout"]):
                pass
            assert (await client.send("still here")).text == "STILL HERE"
        with pytest.raises(RuntimeError, match="not been started"):
            await app({"type": "http"}, None, None)  # pyright: ignore[reportArgumentType]

    run(main())


def test_a_question_is_known_by_its_agent_and_its_task() -> None:
    class Asks:
        """An agent whose tasks all have one id."""

        def __init__(self, name: str) -> None:
            self.name = name
            self.sent: list[str] = []

        async def card(self) -> PeerCard:
            return PeerCard(name=self.name, skills=(Skill("ask", "Ask", "Asks.", ()),))

        async def send(self, *_: Any, context_id: str = "", **__: Any) -> Any:
            self.sent.append(context_id)
            message = Message("m", role=Role.AGENT, parts=(Part(text="which?"),))
            status = TaskStatus(TaskState.INPUT_REQUIRED, message)
            return Result(task=Task("task-1", f"context of {self.name}", status))

    async def main() -> None:
        one, other = Asks("one"), Asks("other")
        async with tools([one, other]) as box:  # type: ignore[list-item]
            await box.call("a2a__one__ask", {"query": "x"})
            await box.call("a2a__other__ask", {"query": "x"})
            await box.call("a2a__one__ask", {"query": "y", "task_id": "task-1"})
        assert one.sent[-1] == "context of one"

    run(main())


def test_a_tool_call_names_its_work_to_a_0_3_agent() -> None:
    skill = {"id": "plan", "name": "Plan", "description": "Plans", "tags": []}
    stand = Stand(lambda _: task(COMPLETED)["task"], card(skills=[skill]))

    async def main() -> None:
        async with stand.client(version="0.3") as client, tools(client) as box:
            (tool,) = box
            await box.call(tool.name, {"query": "go"}, correlation_id="co", parent_id="pa")

    run(main())
    (asked,) = [one for one in stand.asked if one.method == "message/send"]
    named = {"skillHint": "plan", "correlationId": "co", "parentId": "pa"}
    assert asked.params["metadata"] == named
    assert asked.params["message"]["metadata"] == {**named, "skillId": "plan"}
