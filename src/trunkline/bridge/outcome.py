"""The outcome of a tool call: the work is waited for, and what comes of it has the shape that a model reads.

An error is an outcome too, with advice in words: a model that is shown an exception can only give up.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol, TypedDict
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trunkline.bridge.arguments import ToolArguments
from trunkline.bridge.tool import Tool
from trunkline.client.result import File, Result, is_file_part, result_parts, text_of
from trunkline.errors import (
    Forbidden,
    InvalidParams,
    Misuse,
    Refused,
    TaskNotFound,
    TimedOut,
    TooManyRequests,
    TrunklineError,
    Unauthenticated,
    Unavailable,
    Uncertain,
    Unreachable,
)
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import INTERRUPTED, TERMINAL, Part, TaskState

log = logging.getLogger("trunkline.bridge")
Block = dict[str, Any]
# What Anthropic's models look at.
_ANTHROPIC_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_FAILED = {
    TaskState.FAILED: "The agent failed",
    TaskState.REJECTED: "The agent declined the task",
    TaskState.CANCELED: "The task was canceled",
}
_NOT_LET_IN = "The agent does not let this caller in. Calling again does not help; tell the user."
# What a model can do about an error; the first class that fits counts.
_ADVICE: dict[type[TrunklineError], str] = {
    InvalidParams: "Correct the arguments and call again.",
    Unauthenticated: _NOT_LET_IN,
    Forbidden: _NOT_LET_IN,
    TooManyRequests: "The agent is busy. Call again in {error.retry_after_s:g} seconds at the earliest.",
    Unavailable: "The agent cannot take work now. Call again later, or go on without it.",
    TaskNotFound: "The agent does not know this task. Call again without the task id to start anew.",
    Refused: "The agent does not take this request as it is. Change it, or go on without this tool.",
    Uncertain: "The agent may be doing the work, but its answer was lost. "
    "Do not call again, as that may do it twice; tell the user.",
    TimedOut: "The agent took too long and may still be at work. Go on without it, or ask for less; "
    "the same call again may do the work twice.",
    Unreachable: "The agent was not reached. Call again later, or go on without it.",
    TrunklineError: "The agent's answer cannot be used. Go on without this tool.",
}


class Handle(Struct, frozen=True, forbid_unknown_fields=True):
    """A question that waits for its answer. Plain text fields, so that it can be kept as JSON."""

    tool: str
    task_id: str
    context_id: str = ""


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one call. `text` is the agent's words, or what went wrong."""

    tool: str
    text: str
    is_error: bool = False
    # What the agent answered, whole; None if it answered nothing.
    result: Result | None = None
    question: str = ""
    handle: Handle | None = None
    # How a model answers the question, or what it can do about the error.
    advice: str = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the answer as they came, with their names and metadata; without reports on the run."""
        return () if self.result is None else result_parts(self.result)

    @property
    def data(self) -> tuple[Any, ...]:
        """The data of the answer."""
        return () if self.result is None else self.result.all_data

    @property
    def files(self) -> tuple[File, ...]:
        """The files of the answer."""
        return () if self.result is None else self.result.files

    @property
    def state(self) -> TaskState | None:
        """Where the task stands; None if the agent answered nothing."""
        return None if self.result is None else self.result.state

    @property
    def task_id(self) -> str:
        """The task; empty without one."""
        return "" if self.result is None else self.result.task_id

    @property
    def context_id(self) -> str:
        """The conversation; empty without one."""
        return "" if self.result is None else self.result.context_id

    @property
    def words(self) -> str:
        """The whole outcome as text, for a model that reads only text: data as JSON, files by name."""
        lines = [self.text] if self.text else []
        lines += [msgspec.json.encode(one).decode() for one in self.data]
        lines += [_mention(part) for part in self.parts if is_file_part(part)]
        lines += [self.advice] if self.advice else []
        return "\n".join(lines) or "The agent has finished and gave no answer."

    @property
    def structured(self) -> Block:
        """The outcome as an object, by the tool's output schema."""
        found: Block = {"response": self.text}
        if self.state is not None:
            found["state"] = plain_state(self.state)
        known = {"task_id": self.task_id, "context_id": self.context_id, "question": self.question}
        found.update({name: value for name, value in known.items() if value})
        if self.data:
            found["data"] = list(self.data)
        files = [_about(part) for part in self.parts if is_file_part(part)]
        return {**found, "files": files} if files else found

    def openai(self, call_id: str) -> Block:
        """The message that answers a tool call of a chat completion."""
        return {"role": "tool", "tool_call_id": call_id, "content": self.words}

    def openai_responses(self, call_id: str) -> Block:
        """The item that answers a function call of OpenAI's Responses API."""
        return {"type": "function_call_output", "call_id": call_id, "output": self.words}

    def anthropic(self, call_id: str) -> Block:
        """The `tool_result` block that answers a `tool_use` block."""
        content: list[Block] = [{"type": "text", "text": self.words}]
        for part in self.parts:
            if part.raw is not None and part.media_type in _ANTHROPIC_IMAGES:
                image = {"media_type": part.media_type, "data": standard_base64(part.raw)}
                content.append({"type": "image", "source": {"type": "base64", **image}})
        return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": self.is_error}

    def mcp(self) -> Block:
        """The result of MCP's `tools/call`: content, structured content, and whether it is an error."""
        content = list(self._contents())
        structured = {} if self.is_error else {"structuredContent": self.structured}
        return {"content": content, **structured, "isError": self.is_error}

    def _contents(self) -> Iterator[Block]:
        yield {"type": "text", "text": self.words}
        for place, part in enumerate(self.parts):
            if part.raw is not None:
                yield _embedded(part, f"a2a:{self.task_id or 'message'}/{place}")
            elif part.url is not None:
                name = part.filename or part.url
                yield {"type": "resource_link", "uri": part.url, "name": name, **_media_type(part)}


# Calls a tool by its name: what an adapter needs of a toolbox.
CallTool = Callable[[str, dict[str, Any]], Awaitable[ToolOutcome]]


def _mention(part: Part) -> str:
    about = " ".join(word for word in (part.filename, part.media_type, part.url) if word)
    return f"[file: {about or 'without a name'}]"


def _about(part: Part) -> Block:
    found = {"name": part.filename, "media_type": part.media_type, "url": part.url}
    return {name: value for name, value in found.items() if value}


def _media_type(part: Part) -> Block:
    return {"mimeType": part.media_type} if part.media_type else {}


def _embedded(part: Part, uri: str) -> Block:
    """A file's bytes in MCP, in the base64 in which they came."""
    family, data = part.media_type.partition("/")[0], standard_base64(part.raw or "")
    if family in ("image", "audio"):
        return {"type": family, "data": data, "mimeType": part.media_type}
    name = f"/{quote(part.filename)}" if part.filename else ""
    return {"type": "resource", "resource": {"uri": f"{uri}{name}", "blob": data, **_media_type(part)}}


def standard_base64(raw: str) -> str:
    """Base64 in the alphabet and with the padding that strict readers want; others leave them out."""
    plain = raw.replace("-", "+").replace("_", "/")
    return plain + "=" * (-len(plain) % 4)


class ToolClient(Protocol):
    """What a tool needs of a client; `trunkline.Client` is one."""

    async def card(self, *, refresh: bool = False) -> PeerCard:
        """The card of the agent."""
        ...

    async def send(
        self,
        content: Sequence[str | Part],
        *,
        skill: str = "",
        task_id: str = "",
        context_id: str = "",
        correlation_id: str = "",
        parent_id: str = "",
    ) -> Result:
        """Send a message and wait until the task rests."""
        ...

    async def wait(self, task_id: str) -> Result:
        """Wait until a task rests."""
        ...


class CallOptions(TypedDict, total=False):
    """The options of a tool call: the conversation and the work that it belongs to."""

    context_id: str
    correlation_id: str
    parent_id: str


async def call_tool(
    tool: Tool, peer: ToolClient, asked: ToolArguments, options: CallOptions | None = None
) -> ToolOutcome:
    """Send the arguments to the agent and wait for the outcome.

    Raises:
        Misuse: the caller's code is wrong; every other error is an outcome.
    """
    try:
        if asked.task_id and not asked.parts:
            result = await peer.wait(asked.task_id)
        else:
            result = await peer.send(asked.parts, skill=tool.skill, task_id=asked.task_id, **(options or {}))
    except Misuse:
        raise
    except TrunklineError as error:
        return failed(tool.name, error)
    return outcome_of(tool, result)


def outcome_of(tool: Tool, result: Result) -> ToolOutcome:
    """The outcome of a tool call by the agent's answer."""
    state = result.state
    if state in _FAILED:
        said = text_of(result.task.status.message) if result.task is not None else ""
        text = f"{_FAILED[state]}: {said or result.text or 'it gives no reason'}"
        log.info("tool.failed tool=%s task=%a state=%s", tool.name, result.task_id, state.value)
        return ToolOutcome(tool=tool.name, text=text, is_error=True, result=result)
    if state in INTERRUPTED:
        return _asking(tool, result)
    advice = ""
    if state not in TERMINAL:
        advice = (
            f"The agent has not finished. To wait for it, call {tool.name} again with "
            f'{tool.inputs.task_id}="{result.task_id}" and nothing else.'
        )
    return ToolOutcome(tool=tool.name, text=result.text, result=result, advice=advice)


def _asking(tool: Tool, result: Result) -> ToolOutcome:
    login = result.state is TaskState.AUTH_REQUIRED
    asked = result.question
    question = asked.text or ("It wants a login." if login else "It wants more input.")
    if asked.choices:
        question += f" (one of: {', '.join(asked.choices)})"
    elif asked.schema is not None:
        question += f" (JSON that fits the schema {msgspec.json.encode(asked.schema).decode()})"
    inputs = tool.inputs
    advice = (
        f"The agent waits for an answer. Call {tool.name} with "
        f'{inputs.task_id}="{result.task_id}" and the answer as {inputs.answer}; '
        "ask the user if you do not know it."
    )
    if login:
        advice = f"Only the user can do this. When it is done: {advice}"
    return ToolOutcome(
        tool=tool.name,
        text=question,
        result=result,
        question=question,
        handle=Handle(tool.name, result.task_id, result.context_id),
        advice=advice,
    )


def failed(tool: str, error: TrunklineError) -> ToolOutcome:
    """An error as an outcome: what happened, and what a model can do about it."""
    log.warning("tool.error tool=%s error=%s", tool, type(error).__name__)
    advice = next(text for kind, text in _ADVICE.items() if isinstance(error, kind))
    return ToolOutcome(tool=tool, text=str(error), is_error=True, advice=advice.format(error=error))
