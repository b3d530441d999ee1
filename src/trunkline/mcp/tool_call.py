"""One call of a tool: a task that is begun and followed for a while, and whose questions go to the user.

It ends with the task, with a question that nobody here can put to the user, or when the time is up; in the
last two cases the task goes on, and its id is handed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from trunkline.bridge.arguments import ToolArguments
from trunkline.bridge.schema import sanitize
from trunkline.client.result import Result, text_of
from trunkline.errors import TaskNotFound, TrunklineError, Unreachable
from trunkline.mcp.elicitation import answer_parts, rejection_parts
from trunkline.mcp.task_agent import Offer
from trunkline.wire.question import Question
from trunkline.wire.types import RESTING, Part, TaskState

log = logging.getLogger("trunkline.mcp")
# Most clients wait for a minute, and give up then.
HAND_OFF_S = 50.0
# So that a client which waits for news hears some.
BEAT_S = 10.0
_ROUNDS = 100
_PROGRESS_LIMIT = 300
_SEEN_S, _SEEN_LOOKS = 0.1, 50


class FormAnswer(Struct, frozen=True):
    """What a user did with a form: `accept` with its content, `decline`, or `cancel`: it stays open."""

    action: str
    content: Mapping[str, Any] | None = None


class ClientSide(Protocol):
    """The client of MCP that waits for a call."""

    @property
    def can_ask(self) -> bool:
        """Whether it can put a question to its user while it waits."""
        ...

    async def ask(self, question: Question) -> FormAnswer:
        """Put a question to its user."""
        ...

    async def tell(self, count: int, words: str) -> None:
        """Say how the work goes."""
        ...

    def has_cancelled(self) -> bool:
        """Whether it was the client that cancelled the call, and not its connection that ended."""
        ...


class ToolCall:
    """A call of one tool by one client."""

    def __init__(self, offer: Offer, side: ClientSide, *, limit_s: float = HAND_OFF_S) -> None:
        self._agent = offer.agent
        self._tool = offer.tool
        self._side = side
        self._limit_s = limit_s
        self._task_id = ""
        self._told = 0
        self._words = "working"

    async def run(self, asked: ToolArguments) -> Result:
        """Begin a task, or go on with one, and follow it.

        Raises:
            TrunklineError: the agent refuses it or is away.
        """
        if asked.task_id and not asked.parts:
            return await self.follow(await self._agent.get(asked.task_id))
        return await self.answer(asked.parts, asked.task_id)

    async def begin(self, asked: ToolArguments) -> Result:
        """Begin a task and wait for nothing.

        Raises:
            TrunklineError: the agent refuses it or is away.
        """
        return await self._agent.begin(asked.parts, skill=self._tool.skill, task_id=asked.task_id)

    async def answer(self, parts: tuple[Part, ...], task_id: str, question: str = "") -> Result:
        """Say something to a task, or without an id begin one, and follow it.

        Raises:
            TrunklineError: the agent refuses it or is away.
        """
        skill = "" if task_id else self._tool.skill
        found = await self._agent.begin(parts, skill=skill, task_id=task_id, question=question)
        return await self.follow(await self._seen(found, question))

    async def follow(self, found: Result) -> Result:
        """A task when it has ended, asks what cannot be asked here, or when the time is up.

        Raises:
            TrunklineError: the agent refuses an answer of the user.
        """
        self._task_id = found.task_id
        try:
            for _ in range(_ROUNDS):
                found = await self._rest(found)
                if found.state is not TaskState.INPUT_REQUIRED or not self._side.can_ask:
                    break
                question = found.question
                said = await self._side.ask(question)
                if said.action == "cancel":
                    break
                accepted = said.action == "accept"
                parts = answer_parts(question, said.content) if accepted else rejection_parts(question)
                told = await self._agent.begin(parts, task_id=found.task_id, question=question.id)
                found = await self._seen(told, question.id)
        except asyncio.CancelledError:
            if self._task_id and self._side.has_cancelled():
                _aside(self._stop())
            raise
        return found

    async def _rest(self, found: Result) -> Result:
        """The task when it rests or the time is up; what it says meanwhile is told."""
        if found.task is None or found.state in RESTING:
            return found
        beating = asyncio.create_task(self._beat())
        moves = self._agent.moves(found.task_id)
        try:
            async with asyncio.timeout(self._limit_s):
                async for found in moves:
                    await self._tell(found)
        except TimeoutError:
            pass
        except Unreachable as error:
            # The task goes on where it is; whoever asks for it later hears of it.
            log.warning("mcp.task_unfollowed task=%a error=%s", found.task_id, error)
        finally:
            beating.cancel()
            with contextlib.suppress(TrunklineError):
                await moves.aclose()
        return found

    async def _seen(self, found: Result, answered: str) -> Result:
        """A task after its question was answered; some agents show for a moment how it was before."""
        for _ in range(_SEEN_LOOKS):
            if not answered or found.state is not TaskState.INPUT_REQUIRED or found.question.id != answered:
                break
            await asyncio.sleep(_SEEN_S)
            found = await self._agent.get(found.task_id)
        return found

    async def _tell(self, found: Result) -> None:
        said = None if found.task is None else found.task.status.message
        words = sanitize(text_of(said), _PROGRESS_LIMIT)
        if words and words != self._words and found.state not in RESTING:
            self._words = words
            await self._progress()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._progress()

    async def _progress(self) -> None:
        self._told += 1
        await self._side.tell(self._told, self._words)

    async def _stop(self) -> None:
        try:
            await self._agent.cancel(self._task_id)
        except TaskNotFound:
            pass
        except TrunklineError as error:
            log.info("mcp.task_uncancelled task=%a error=%s", self._task_id, error)


_asides: set[asyncio.Task[None]] = set()


def _aside(work: Any) -> None:
    """Do something although whoever asked for it is cancelled."""
    task = asyncio.get_running_loop().create_task(work)
    _asides.add(task)
    task.add_done_callback(_asides.discard)
