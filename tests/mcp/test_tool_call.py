"""A call of a tool with an agent that does as it is told: progress, time that is up, agents that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from trunkline.bridge.arguments import ToolArguments
from trunkline.bridge.tool import make_tool
from trunkline.client.result import Result
from trunkline.errors import TaskNotCancelable, Unreachable
from trunkline.mcp import tool_call
from trunkline.mcp.task_agent import Offer
from trunkline.mcp.tool_call import FormAnswer, ToolCall
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.question import Question, question_metadata
from trunkline.wire.types import RESTING, Message, Part, Role, Task, TaskState, TaskStatus

TOOL = make_tool("t", "a", Skill("s", "S", "", ()), PeerCard(name="a"))
ASKED = ToolArguments((Part(text="go"),))


def task(state: TaskState, words: str = "", question: str = "") -> Result:
    metadata = question_metadata(question) if question else None
    message = Message("m", role=Role.AGENT, parts=(Part(text=words),), metadata=metadata)
    return Result(Task(id="1", context_id="c", status=TaskStatus(state, message)))


class Agent:
    """An agent whose task goes through these states."""

    def __init__(self, *states: Result | Exception | None) -> None:
        self.states = list(states)
        self.said: list[tuple[str, str, str]] = []
        self.canceled: list[str] = []
        self.seen: list[Result] = []

    async def begin(
        self, parts: Sequence[Part], *, skill: str = "", task_id: str = "", question: str = ""
    ) -> Result:
        self.said.append((str(parts[0].text or parts[0].data), task_id, question))
        return task(TaskState.WORKING)

    async def moves(self, task_id: str) -> AsyncGenerator[Result]:
        while self.states:
            one = self.states.pop(0)
            if one is None:
                await asyncio.Event().wait()
            elif isinstance(one, Exception):
                raise one
            else:
                yield one
                if one.state in RESTING:
                    return

    async def get(self, task_id: str) -> Result:
        return self.seen.pop(0) if self.seen else task(TaskState.WORKING)

    async def cancel(self, task_id: str) -> Result:
        self.canceled.append(task_id)
        raise TaskNotCancelable("it has ended")


class Side:
    """A client of MCP that notes what it hears."""

    def __init__(self, *answers: FormAnswer, cancels: bool = False) -> None:
        self.answers = list(answers)
        self.can_ask = bool(answers)
        self.told: list[tuple[int, str]] = []
        self.cancels = cancels

    async def ask(self, question: Question) -> FormAnswer:
        return self.answers.pop(0)

    async def tell(self, count: int, words: str) -> None:
        self.told.append((count, words))

    def has_cancelled(self) -> bool:
        return self.cancels


def ran(agent: Agent, side: Side, limit_s: float = 30.0) -> Result:
    return asyncio.run(asyncio.wait_for(ToolCall(Offer(TOOL, agent), side, limit_s=limit_s).run(ASKED), 60))


def test_what_an_agent_says_is_progress_once() -> None:
    side = Side()
    states = [task(TaskState.WORKING, words) for words in ("", "one", "one", "two\x1b")]
    assert ran(Agent(*states, task(TaskState.COMPLETED, "done")), side).state is TaskState.COMPLETED
    assert side.told == [(1, "one"), (2, "two")]


def test_while_nothing_moves_a_client_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_call, "BEAT_S", 0.01)
    side = Side()
    assert ran(Agent(task(TaskState.WORKING, "at it"), None), side, 0.3).state is TaskState.WORKING
    counts = [count for count, _ in side.told]
    assert len(counts) > 2
    assert counts == sorted(set(counts))
    assert {words for _, words in side.told} <= {"at it", "working"}


def test_a_task_whose_agent_is_lost_is_told_as_it_was() -> None:
    lost = Unreachable("gone", reason="connect")
    found = ran(Agent(task(TaskState.WORKING, "half"), lost), Side())
    assert (found.state, found.task_id) == (TaskState.WORKING, "1")


def test_an_answer_names_its_question_and_a_late_sight_of_it_is_no_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_call, "_SEEN_S", 0.001)
    asking = task(TaskState.INPUT_REQUIRED, "Which?", "q1")
    agent = Agent(asking, task(TaskState.COMPLETED))

    async def begin(parts: Sequence[Part], **said: str) -> Result:
        agent.said.append((parts[0].text or "", said.get("task_id", ""), said.get("question", "")))
        return asking if said.get("question") else task(TaskState.WORKING)

    agent.begin = begin  # pyright: ignore[reportAttributeAccessIssue]
    agent.seen = [asking, task(TaskState.WORKING)]
    assert ran(agent, Side(FormAnswer("accept", {"answer": "red"}))).state is TaskState.COMPLETED
    assert agent.said == [("go", "", ""), ("red", "1", "q1")]


@pytest.mark.parametrize("cancels", [True, False])
def test_only_who_cancels_stops_the_task(cancels: bool) -> None:
    agent = Agent(None)

    async def main() -> None:
        call = asyncio.create_task(ToolCall(Offer(TOOL, agent), Side(cancels=cancels)).run(ASKED))
        while not agent.said or agent.states:  # noqa: ASYNC110
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert agent.canceled == (["1"] if cancels else [])
