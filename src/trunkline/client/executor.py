"""Runs a skill of a remote agent and gives its result flat: text, state, cost and confidence.

What a remote agent or the network does wrong is a result that says so, never an exception.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.client.assembler import Update
from trunkline.client.client import Client
from trunkline.client.result import Result, artifact_text
from trunkline.client.stream import Stream
from trunkline.errors import Misuse, TimedOut, TrunklineError
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import TERMINAL, ArtifactUpdate, Metadata, TaskState

log = logging.getLogger("trunkline.client")
# What a payload may hold for whoever brings it and not for the agent.
_PRIVATE = frozenset({"skill", "replyTopic", "correlationId", "parentId", "content", "prompt"})
_ERRORS = TERMINAL - {TaskState.COMPLETED}

StreamUpdate = dict[str, str]
Listener = Callable[[StreamUpdate], Awaitable[None] | None]


class SkillResult(Struct, frozen=True, kw_only=True):
    """The result of one call of a skill. `state` is None where the agent was not reached or refused."""

    text: str
    is_error: bool = False
    task_id: str = ""
    context_id: str = ""
    state: TaskState | None = None
    usage: Metadata | None = None
    cost_usd: float | None = None
    confidence: float | None = None
    confidence_explanation: str = ""
    duration_ms: int = 0
    result: Result | None = None


class A2AExecutor:
    """Runs the skills of one remote agent.

    `streaming` is as the card says when None. `on_stream_update` hears `{type, text, state}` of what comes
    while the agent works; types are `status`, `artifact_chunk`, `artifact` and `artifact_complete`.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        api_key_env: str = "",
        timeout: float = 300.0,
        streaming: bool | None = None,
        on_stream_update: Listener | None = None,
        client: Client | None = None,
    ) -> None:
        self.name = name
        self._client = client or Client(url, api_key_env=api_key_env, timeout_s=timeout)
        self._is_own = client is None
        self._timeout_s = timeout
        self._streaming = streaming
        self._listener = on_stream_update

    async def __aenter__(self) -> A2AExecutor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections, unless the client was given."""
        if self._is_own:
            await self._client.close()

    async def execute(
        self,
        *,
        content: str = "",
        skill: str = "",
        payload: Mapping[str, Any] | None = None,
        context_id: str = "",
        task_id: str = "",
        correlation_id: str = "",
        parent_id: str = "",
    ) -> SkillResult:
        """Run a skill: on `content`, else the payload's `content` or `prompt`, else the payload in lines.

        With `context_id` and `task_id` of the result before, a conversation goes on.
        """
        named = {"skillHint": skill, "correlationId": correlation_id, "parentId": parent_id}
        began = time.monotonic()
        try:
            stream = self._client.stream(
                request_text(content, skill, payload or {}),
                context_id=context_id,
                task_id=task_id,
                metadata={name: value for name, value in named.items() if value} or None,
                correlation_id=correlation_id,
                parent_id=parent_id,
                timeout_s=self._timeout_s,
            )
            if self._streaming is False:
                stream.send_whole()
            found = await self._read(stream)
        except Misuse:
            raise
        except TrunklineError as error:
            return self._failed(error, skill, _milliseconds(began))
        return _flat(found, skill or self.name, _milliseconds(began))

    async def _read(self, stream: Stream) -> Result:
        async with stream:
            if self._listener is not None:
                async for update in stream:
                    for told in stream_updates(update, stream.result):
                        await self._tell(self._listener, told)
            return await stream.finish()

    async def _tell(self, listener: Listener, told: StreamUpdate) -> None:
        try:
            waits = listener(told)
            if inspect.isawaitable(waits):
                await waits
        except Exception:
            # Who watches must not be able to stop what is watched.
            log.exception("client.listener.failed executor=%a type=%s", self.name, told["type"])

    def _failed(self, error: TrunklineError, skill: str, duration_ms: int) -> SkillResult:
        log.warning("client.skill.failed executor=%a skill=%a why=%a", self.name, skill, str(error))
        kind = "timed out" if isinstance(error, TimedOut) else "failed"
        return SkillResult(
            text=f"{skill or self.name} {kind}: {error}", is_error=True, duration_ms=duration_ms
        )


def request_text(content: str, skill: str, payload: Mapping[str, Any]) -> str:
    """The text of the message to the agent."""
    for given in (content, payload.get("content"), payload.get("prompt")):
        if isinstance(given, str) and given:
            return given
    lines = [f"Run the skill {skill}." if skill else "Run your default skill."]
    lines += [f"{name}: {_plain(value)}" for name, value in payload.items() if name not in _PRIVATE]
    return "\n".join(lines)


def stream_updates(update: Update, so_far: Result | None) -> list[StreamUpdate]:
    """The events that a listener gets for an update."""
    if update.kind == "status":
        return [{"type": "status", "text": update.text, "state": _word(update.state)}]
    answer = update.notice.answer
    if not isinstance(answer, ArtifactUpdate):
        return (
            [{"type": "artifact", "text": update.text, "state": _word(update.state)}] if update.text else []
        )
    state = "" if so_far is None else _word(so_far.state)
    told: list[StreamUpdate] = []
    if update.text:
        kind = "artifact_chunk" if answer.append else "artifact"
        told.append({"type": kind, "text": update.text, "state": state})
    if answer.last_chunk:
        known = () if so_far is None else so_far.artifacts
        whole = [artifact_text(one) for one in known if one.artifact_id == answer.artifact.artifact_id]
        told.append({"type": "artifact_complete", "text": "".join(whole), "state": state})
    return told


def _flat(found: Result, name: str, duration_ms: int) -> SkillResult:
    state = found.state
    return SkillResult(
        text=found.text or f"{name} ended as {_word(state)} without a text.",
        is_error=state in _ERRORS,
        task_id=found.task_id,
        context_id=found.context_id,
        state=state,
        usage=found.usage,
        cost_usd=found.cost_usd,
        confidence=found.confidence,
        confidence_explanation=found.confidence_explanation,
        duration_ms=duration_ms,
        result=found,
    )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _word(state: TaskState | None) -> str:
    return "" if state is None else plain_state(state)


def _milliseconds(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
