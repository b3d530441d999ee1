"""A conversation with one agent: keeps its context, and its task until that has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Unpack

from msgspec.structs import replace

from trunkline.client.message import Content, Sending
from trunkline.client.result import Result
from trunkline.client.stream import Stream
from trunkline.errors import Misuse, Refused, TaskNotFound, UnsupportedOperation

if TYPE_CHECKING:
    from trunkline.client.client import Client

# What an agent answers to a message for a task that has ended meanwhile.
_OVER = (UnsupportedOperation, TaskNotFound)


class Chat:
    """Says one thing after the other. What the agent asks is answered on the same task; after an end the next
    word opens a new task in the same context."""

    def __init__(self, client: Client, *, context_id: str = "", skill: str = "") -> None:
        self.context_id = context_id
        # The task that the next word belongs to; empty if it opens one.
        self.task_id = ""
        self._question = ""
        self._client = client
        self._skill = skill
        self._closed = False
        self._turn = asyncio.Lock()

    async def say(self, content: Content, *, done: bool = False, **said: Unpack[Sending]) -> Result:
        """The agent's answer. `done` closes the conversation: the answer comes without ids to go on with.

        Raises:
            Misuse: the conversation is closed.
        """
        async with self._turn:
            self._check_open()
            try:
                found = await self._client.send(content, **self._filled(said))
            except _OVER:
                self.task_id = ""
                raise
            except Refused:
                # Perhaps it asks something else by now; then the next word answers that.
                self._question = ""
                raise
            self._learn(found)
            self._closed = done
        return _without_ids(found) if done else found

    def stream(self, content: Content, **said: Unpack[Sending]) -> Stream:
        """The agent's answer as it is made; read it to its end before the next word."""
        self._check_open()
        found = self._client.stream(content, **self._filled(said))
        found.at_end(self._learn)
        return found

    def _filled(self, said: Sending) -> Sending:
        said.setdefault("context_id", self.context_id)
        # Who goes on with a task has chosen its skill already.
        task_id = said.setdefault("task_id", self.task_id)
        if not task_id:
            said.setdefault("skill", self._skill)
        elif task_id == self.task_id:
            # What is asked may change meanwhile, and this answers what was heard.
            said.setdefault("question", self._question)
        return said

    def _learn(self, found: Result) -> None:
        self.context_id = found.context_id or self.context_id
        self.task_id = "" if found.ended else found.task_id
        self._question = found.question.id

    def _check_open(self) -> None:
        if self._closed:
            raise Misuse("this chat is closed by done=True; begin another with client.chat()")


def _without_ids(found: Result) -> Result:
    if found.task is not None:
        return Result(replace(found.task, id="", context_id=""))
    return found if found.message is None else Result(None, replace(found.message, task_id="", context_id=""))
