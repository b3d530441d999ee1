"""Row 59 and PK 1: whatever becomes of a call, its caller sees it, in words to act on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.bridge.agents import client_of, planner
from trunkline import Agent
from trunkline.bridge.outcome import ToolOutcome, failed
from trunkline.bridge.tools import Toolbox, tools
from trunkline.client.client import Client
from trunkline.client.result import Result
from trunkline.errors import Misuse, Unavailable, Unreadable, UnsupportedOperation
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import Interface, PeerCard
from trunkline.wire.types import Part, Task, TaskState, TaskStatus

WAIT_S = 60


def called(tool: str, arguments: dict[str, Any], agent: Agent | None = None, **options: Any) -> ToolOutcome:
    async def main() -> ToolOutcome:
        async with client_of(agent or planner(), **options) as client, tools(client) as box:
            return await box.call(f"a2a__planner__{tool}", arguments)

    return asyncio.run(asyncio.wait_for(main(), WAIT_S))


@pytest.mark.parametrize("reply", ["wait", "receipt"])
def test_a_slow_agents_answer_is_waited_for(reply: str) -> None:
    """PK 1: an agent that answers `submitted` at once gives no empty answer."""
    outcome = called("shout", {"query": "hello"}, planner(reply=reply), poll_s=0.01)
    assert (outcome.text, outcome.is_error, outcome.state) == ("HELLO", False, TaskState.COMPLETED)


@pytest.mark.parametrize(
    ("tool", "state", "words"),
    [
        ("fail", TaskState.FAILED, "The agent failed: the oven is cold"),
        ("reject", TaskState.REJECTED, "The agent declined the task: I only bake bread"),
    ],
)
def test_failed_and_rejected_are_errors(
    tool: str, state: TaskState, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trunkline")
    outcome = called(tool, {"query": "bake"})
    assert (outcome.is_error, outcome.state, outcome.text) == (True, state, words)
    assert f"tool.failed tool={outcome.tool} task={outcome.task_id!a} state={state.value}" in caplog.messages


def test_a_canceled_task_is_an_error() -> None:
    async def main() -> ToolOutcome:
        async with client_of(planner()) as client, tools(client) as box:
            calling = asyncio.create_task(box.call("a2a__planner__hang", {"query": "x"}))
            while not (page := await client.list()).tasks:
                pass
            await client.cancel(page.tasks[0].id)
            return await calling

    outcome = asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert (outcome.is_error, outcome.state) == (True, TaskState.CANCELED)
    assert outcome.text.startswith("The task was canceled")


def test_typed_arguments_reach_the_function() -> None:
    outcome = called("plan", {"city": "Oslo"})
    assert outcome.data == ({"city": "Oslo", "days": 2},)
    assert '{"city":"Oslo","days":2}' in outcome.words


def test_an_argument_that_the_agent_refuses_is_told_to_the_model() -> None:
    outcome = called("plan", {"city": "Oslo", "days": "two"})
    assert outcome.is_error
    assert "days" in outcome.text and "Correct the arguments" in outcome.words


def conversation(
    tool: str, *, steps: Callable[[Toolbox, ToolOutcome], Awaitable[ToolOutcome]], **said: Any
) -> Any:
    async def main() -> tuple[ToolOutcome, ToolOutcome]:
        async with client_of(planner()) as client, tools(client) as box:
            asked = await box.call(f"a2a__planner__{tool}", said)
            return asked, await steps(box, asked)

    return asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_a_question_is_answered_on_the_same_task() -> None:
    asked, told = conversation("paint", steps=lambda box, asked: box.answer(asked, "blue"), query="paint it")
    assert (asked.question, asked.is_error, asked.state) == ("Which colour?", False, TaskState.INPUT_REQUIRED)
    assert f'task_id="{asked.task_id}"' in asked.words
    assert (told.task_id, told.text) == (asked.task_id, f"{asked.context_id}: blue")


def test_the_model_answers_by_calling_the_same_tool() -> None:
    def steps(box: Toolbox, asked: ToolOutcome) -> Awaitable[ToolOutcome]:
        return box.call(asked.tool, {"query": "red", "task_id": asked.task_id})

    asked, told = conversation("paint", steps=steps, query="paint it")
    assert (told.task_id, told.text) == (asked.task_id, f"{asked.context_id}: red")


def test_a_typed_tool_takes_the_answer_beside_its_parameters() -> None:
    def steps(box: Toolbox, asked: ToolOutcome) -> Awaitable[ToolOutcome]:
        return box.call(asked.tool, {"city": "Oslo", "answer": "Monday", "task_id": asked.task_id})

    asked, told = conversation("book", steps=steps, city="Oslo")
    assert asked.question == "When do you leave?"
    assert (told.task_id, told.text) == (asked.task_id, "Oslo on Monday")


def test_a_handle_is_kept_as_json_and_outlives_the_toolbox() -> None:
    async def main() -> tuple[ToolOutcome, ToolOutcome]:
        async with client_of(planner()) as client:
            async with tools(client) as first:
                asked = await first.call("a2a__planner__paint", {"query": "paint it"})
            assert asked.handle is not None
            kept = {"tool": asked.tool, "task_id": asked.task_id, "context_id": asked.context_id}
            async with tools(client) as second:
                return asked, await second.answer(kept, "green")

    asked, told = asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert (told.task_id, told.text) == (asked.task_id, f"{asked.context_id}: green")


def test_a_login_is_the_users() -> None:
    outcome = called("login", {"query": "look"})
    assert (outcome.state, outcome.is_error) == (TaskState.AUTH_REQUIRED, False)
    assert outcome.question == "Log in at https://login.example"
    assert "Only the user can do this" in outcome.words


def test_an_unknown_task_is_told_with_the_way_on() -> None:
    outcome = called("paint", {"query": "red", "task_id": "01a1e2ef-d89d-7147-a1d0-cc76691a5253"})
    assert outcome.is_error and "without the task id" in outcome.words


def test_out_of_time() -> None:
    outcome = called("hang", {"query": "x"}, timeout_s=0.2)
    assert outcome.is_error and "took too long" in outcome.words


def test_a_task_without_words_is_waited_for_until_it_rests() -> None:
    def steps(box: Toolbox, asked: ToolOutcome) -> Awaitable[ToolOutcome]:
        return box.call(asked.tool, {"task_id": asked.task_id})

    asked, told = conversation("paint", steps=steps, query="paint it")
    assert told.question == asked.question


def test_a_caller_who_is_not_let_in() -> None:
    outcome = called("shout", {"query": "x"}, planner(keys=["a-key-of-this-agent"]))
    assert outcome.is_error and "does not let this caller in" in outcome.words
    assert (
        called(
            "shout", {"query": "x"}, planner(keys=["a-key-of-this-agent"]), api_key="a-key-of-this-agent"
        ).text
        == "X"
    )


def test_a_busy_agent_says_when_to_come_again() -> None:
    async def main() -> ToolOutcome:
        busy = planner(rate_limit=0.001, rate_burst=1)
        async with client_of(busy, retries=0) as client, tools(client) as box:
            await box.call("a2a__planner__shout", {"query": "x"})
            return await box.call("a2a__planner__shout", {"query": "x"})

    outcome = asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert outcome.is_error and "seconds at the earliest" in outcome.words


CARD = PeerCard(
    name="ghost",
    skills=(Skill("haunt", "Haunt", "", ()),),
    interfaces=(Interface("http://localhost/a2a", "JSONRPC", "1.0"),),
)


async def _vanish(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    raise ConnectionError("gone")


def test_a_lost_answer_is_not_asked_for_again() -> None:
    async def main() -> ToolOutcome:
        async with Client(
            "http://localhost/a2a", http_client=InProcessHttpClient(_vanish), card=CARD
        ) as client:
            async with tools(client) as box:
                return await box.call("a2a__ghost__haunt", {"query": "boo"})

    outcome = asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert outcome.is_error and "Do not call again" in outcome.words


def test_an_agent_that_is_not_there() -> None:
    async def main() -> ToolOutcome:
        async with Client("http://127.0.0.1:9/a2a", card=CARD, retries=0) as client, tools(client) as box:
            return await box.call("a2a__ghost__haunt", {"query": "boo"})

    outcome = asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert outcome.is_error and "was not reached" in outcome.words


def test_a_card_alone_gives_tools_that_cannot_be_called() -> None:
    async def main() -> None:
        box = await tools(CARD)
        assert [tool.description for tool in box] == ["Haunt"]
        with pytest.raises(Misuse, match="Client"):
            await box.call("a2a__ghost__haunt", {"query": "boo"})

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (Unavailable("going down"), "Call again later"),
        (UnsupportedOperation("not here"), "does not take this request"),
        (Unreadable("no A2A"), "Go on without this tool"),
    ],
)
def test_other_errors_have_advice_too(error: Any, advice: str) -> None:
    assert advice in failed("x", error).words


class Hasty:
    """A client of somebody else's that does not wait, or is used wrongly."""

    def __init__(self, state: TaskState | None) -> None:
        self.state = state

    async def card(self, *, refresh: bool = False) -> PeerCard:
        return CARD

    async def send(
        self, content: Sequence[str | Part], *, skill: str = "", task_id: str = "", context_id: str = ""
    ) -> Result:
        if self.state is None:
            raise Misuse("it is closed")
        return Result(Task("t-1", "c-1", TaskStatus(self.state)))

    async def wait(self, task_id: str) -> Result:
        return Result(Task(task_id, "c-1", TaskStatus(TaskState.COMPLETED)))


def test_an_unfinished_task_is_no_answer() -> None:
    async def main() -> tuple[ToolOutcome, ToolOutcome]:
        box = await tools(Hasty(TaskState.WORKING))
        begun = await box.call("a2a__ghost__haunt", {"query": "boo"})
        return begun, await box.call("a2a__ghost__haunt", {"task_id": begun.task_id})

    begun, done = asyncio.run(main())
    assert 'call a2a__ghost__haunt again with task_id="t-1"' in begun.words
    assert done.state is TaskState.COMPLETED


def test_a_mistake_of_the_program_is_raised() -> None:
    async def main() -> None:
        await (await tools(Hasty(None))).call("a2a__ghost__haunt", {"query": "boo"})

    with pytest.raises(Misuse, match="closed"):
        asyncio.run(main())
