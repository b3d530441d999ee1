"""One task of a model agent: the model is asked, uses its tools, and is asked again until it answers.

Every call of a model and every use of a tool is a step of the task: a run that is resumed repeats none.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from mimetypes import guess_type
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from trunkline.agent.turn import Turn
from trunkline.errors import (
    CallFailed,
    ContentTypeNotSupported,
    InvalidParams,
    Misuse,
    Refused,
    TooLarge,
    TooManyRequests,
    TrunklineError,
    Unreachable,
)
from trunkline.fleet.catalogue.model_entry import Advisor, ModelEntry
from trunkline.fleet.health.prices import price_of
from trunkline.gateway.model.conversation import content_of, conversation, instructions
from trunkline.gateway.model.delegation import Delegation
from trunkline.gateway.model.failures import code_of, reason_of
from trunkline.gateway.model.files import CallerFiles, FetchedFile, FileContent, is_file
from trunkline.gateway.model.gate import GATE, ShownArtifact, gate_question, told_in_gate, verdict_of
from trunkline.gateway.model.providers import entry_model
from trunkline.gateway.model.roster import told_of
from trunkline.gateway.model.tools import (
    NAME_SHOWN,
    TOOLS,
    A2aForm,
    AdviceForm,
    AgentForm,
    MadeFile,
    McpForm,
    ModelParts,
    ModelTool,
    ToolResult,
    ToolUse,
    Used,
    WriteForm,
    read_arguments,
)
from trunkline.run.spending import TOKEN_BYTES, ModelSpending
from trunkline.wire.types import Message

log = logging.getLogger("trunkline.gateway")
RESPONSE, TOOL_CALL = "response", "tool_call"
# What a model may say at once, in bytes of words and of arguments; and how many calls of tools.
ANSWER_LIMIT, CALLS_LIMIT = 4 << 20, 1000
_ADVICE = "You advise another agent. Answer its question briefly and plainly."
# Why a message is not read, as callers are told.
_REFUSALS: dict[type[Refused], str] = {
    ContentTypeNotSupported: "content_type_not_supported",
    InvalidParams: "invalid_request",
    TooLarge: "request_too_large",
}
_CUT = "\n[cut: the rest is left out]"


class _StreamedCall:
    """A call of the model that is under way: the bytes of its answer, and whether the provider charges it."""

    is_sent = False
    is_charged = False
    size = 0


class ModelRun:
    """One run of one task by the entry that it was begun with."""

    def __init__(self, turn: Turn, agent: str, entry: ModelEntry, parts: ModelParts) -> None:
        self._turn = turn
        self._agent = agent
        self._entry = entry
        self._parts = parts
        self._uses = 0
        self._delegation = Delegation(turn, agent, entry, parts, self._show)
        self._redirected = 0
        self._has_files = False
        advisor = entry.advisor or Advisor(model=entry.model)
        self._advisor = advisor
        # Of an answer that may be held back nothing goes out before, and nothing that comes with it.
        self._gate = advisor.mode == "gate"
        self._held: list[ShownArtifact] = []
        off = {"/advise"} if advisor.mode == "off" else set[str]()
        named = [one.removeprefix("/") for one in entry.capabilities if one not in off]
        self._offered = {name: TOOLS[name] for name in named}

    async def run(self, model: Model) -> None:
        """Answer the task; what was said is written to it."""
        turn, entry = self._turn, self._entry
        turn.answer_name = RESPONSE
        known = self._parts.agents(turn.tenant) if self._offered.keys() & {"agent", "a2a"} else ()
        told = instructions(self._agent, entry, told_of(known, self._agent, self._offered))
        files = CallerFiles(model, entry.limits.file_bytes)
        asked = await self._read(files)
        messages = conversation(self._before(), entry.memory, files, asked)
        cast("ModelRequest", messages[-1]).instructions = told
        for _ in range(entry.limits.model_calls):
            self._check_cost()
            response = await self._ask(model, messages)
            messages.append(response)
            if len(response.tool_calls) > CALLS_LIMIT:
                turn.fail(f"limit_reached: {len(response.tool_calls)} calls of tools at once.")
            parts: list[ModelRequestPart] = [await self._use(call) for call in response.tool_calls]
            if not parts:
                refused = await self._judged(_said(response)) if self._gate else ""
                if not refused:
                    return
                parts = [UserPromptPart(f"Your advisor does not let this out: {refused} Answer again.")]
            messages.append(ModelRequest(parts=parts, instructions=told))
        turn.fail(f"limit_reached: {entry.limits.model_calls} calls of the model have brought no end.")

    def _check_cost(self) -> None:
        left = self._turn.cost_left
        if left is not None and left <= 0:
            log.warning("chain.cost task=%s agent=%s left=%.6f", self._turn.task_id, self._agent, left)
            self._turn.fail("budget_spent: what the caller allows this task to cost is spent.")
        try:
            self._parts.meter.check_spent(self._turn.tenant, self._turn.caller)
        except TooManyRequests as met:
            self._turn.fail(f"quota_spent: {met.message}.")

    # What it was told.

    def _before(self) -> Sequence[Message]:
        """What was said before the message that opened the task.

        What is answered within the task is for whoever asked, and not there yet when a run begins.
        """
        said, opening = self._turn.history, self._turn.request.message_id
        at = max([n for n, one in enumerate(said) if one.message_id == opening], default=0)
        return said[:at]

    async def _read(self, files: CallerFiles) -> str | list[FileContent]:
        """The message that is to be answered; one with a file that cannot be told ends the task."""
        turn, found = self._turn, list[FileContent]()
        request = turn.request
        for n, part in enumerate(request.parts):
            place = f"message.parts[{n}]"
            if part.url is not None:
                fetched = await turn.step("file", self._fetched, part.url, files.left)
                if fetched.fault:
                    turn.reject(f"file_not_fetched: {place}: {fetched.fault}")
                part = replace(
                    part, url=None, raw=fetched.raw, media_type=part.media_type or fetched.media_type
                )
            if is_file(part):
                try:
                    found.append(files.read(part, place))
                    self._has_files = True
                except Refused as refused:
                    turn.reject(f"{_REFUSALS[type(refused)]}: {refused}")
        return content_of(request, found)

    async def _fetched(self, url: str, limit: int) -> FetchedFile:
        try:
            response = await self._parts.fetcher(self._turn.tenant).get(url, limit=max(limit, 1))
        except Unreachable as error:
            return FetchedFile(fault=str(error))
        if response.status != 200:
            return FetchedFile(fault=f"HTTP {response.status}")
        kind = response.headers.get("content-type", "")[:NAME_SHOWN]
        return FetchedFile(kind, base64.b64encode(response.body).decode())

    # The model.

    async def _ask(self, model: Model, messages: Sequence[ModelMessage]) -> ModelResponse:
        turn, call = self._turn, _StreamedCall()
        between = "\n\n" if turn.written else ""

        async def asked() -> list[Any]:
            call.is_sent = call.is_charged = True
            return await self._streamed(model, messages, between, call)

        try:
            recorded = await turn.step(f"model {self._entry.model}", asked)
        except BaseException:
            # Providers also charge for an answer that breaks off, and callers have read it.
            if call.is_charged:
                with suppress(TrunklineError):
                    await self._count(_estimated(model, messages, call.size))
            raise
        (response,) = ModelMessagesTypeAdapter.validate_python(recorded)
        answered = cast("ModelResponse", response)
        text = _said(answered)
        if not call.is_sent and text and not self._gate:
            # The words of a run that died stand in the log; said again they are compared, and not repeated.
            await turn.write(between + text)
        await self._count(answered)
        self._check_whole(answered)
        return answered

    def _check_whole(self, answered: ModelResponse) -> None:
        """End the task if this is no answer, or half of one: nobody is to take it for the whole."""
        if answered.finish_reason == "length":
            self._turn.fail(f"limit_reached: the answer has more than {self._entry.max_tokens} tokens.")
        if answered.finish_reason == "content_filter":
            self._turn.fail(reason_of("content_filtered"))
        is_empty = not answered.tool_calls and not _said(answered).strip()
        # After its tools a model may have nothing to add.
        if answered.finish_reason == "error" or (is_empty and not self._uses):
            self._turn.fail(reason_of("provider_error"))

    async def _streamed(
        self, model: Model, messages: Sequence[ModelMessage], between: str, call: _StreamedCall
    ) -> list[Any]:
        turn, entry = self._turn, self._entry
        parameters = ModelRequestParameters(
            function_tools=[
                ToolDefinition(name=name, description=tool.description, parameters_json_schema=tool.schema)
                for name, tool in self._offered.items()
            ],
        )
        try:
            async with (
                asyncio.timeout(entry.limits.seconds),
                model_request_stream(
                    model,
                    messages,
                    model_settings=self._settings(),
                    model_request_parameters=parameters,
                ) as stream,
            ):
                async for event in stream:
                    call.size += _size(event)
                    if call.size > ANSWER_LIMIT:
                        turn.fail(reason_of("limit_reached"))
                    if (text := _text(event)) and not self._gate:
                        await turn.write(between + text)
                        between = ""
                return _recorded(stream.get())
        except Unreachable as error:
            self._fail(error)
        except TrunklineError:
            # The task has moved or ended meanwhile, or the store is away.
            raise
        except Exception as error:  # noqa: BLE001 - whatever a provider's library raises, its call has failed
            call.is_charged = call.size > 0 or isinstance(error, TimeoutError)
            if not (self._has_files and isinstance(error, AssertionError | RuntimeError)):
                self._fail(error)
            # So the library says of a file that it cannot send to this provider.
            log.warning(
                "model.unread task=%s model=%s error=%a", turn.task_id, entry.model, str(error)[:1000]
            )
            turn.reject("content_type_not_supported: the model does not read a file of this message.")

    def _settings(self) -> ModelSettings:
        made = ModelSettings(max_tokens=self._entry.max_tokens)
        if self._entry.temperature is not None:
            made["temperature"] = self._entry.temperature
        return made

    def _fail(self, error: Exception) -> NoReturn:
        code = code_of(error)
        # What the provider said is for the operator; callers are told the code.
        log.warning(
            "model.failed task=%s model=%s code=%s error=%a",
            self._turn.task_id,
            self._entry.model,
            code,
            f"{type(error).__name__}: {error}"[:1000],
        )
        self._turn.fail(reason_of(code))

    async def _count(self, response: ModelResponse) -> None:
        used = response.usage
        cached = used.cache_read_tokens + used.cache_write_tokens
        price = price_of(response.model_name or "", used.input_tokens, used.output_tokens)
        self._turn.usage(
            input_tokens=max(used.input_tokens - cached, 0),
            output_tokens=used.output_tokens,
            cache_creation_input_tokens=used.cache_write_tokens,
            cache_read_input_tokens=used.cache_read_tokens,
            cost_usd=price,
        )
        call = ModelSpending(used.input_tokens, used.output_tokens, price)
        await self._turn.keep_spent(call, self._parts.meter)

    # Its tools.

    async def _use(self, call: ToolCallPart) -> ToolReturnPart:
        """Do what the model calls for; whatever comes of it, the model is told."""
        self._uses += 1
        is_beyond = self._uses > self._entry.limits.tool_calls
        used = _too_many(self._entry.limits.tool_calls) if is_beyond else await self._used(call)
        # Beyond the limit each of them would be one more event of the task.
        if self._entry.artifacts and not is_beyond:
            label = (used.label or call.tool_name)[:NAME_SHOWN]
            await self._show({"data": {"tool": label, "ok": used.ok}, "name": TOOL_CALL})
        text = used.text if used.ok or used.is_framed else f"ERR: {used.text}"
        return ToolReturnPart(
            tool_name=call.tool_name,
            content=_bounded(text, self._entry.limits.result_bytes),
            tool_call_id=call.tool_call_id,
        )

    async def _used(self, call: ToolCallPart) -> Used:
        name, tool = call.tool_name, self._offered.get(call.tool_name)
        if tool is None:
            log.warning(
                "capability.refused tenant=%s agent=%s task=%s capability=%a",
                self._turn.tenant,
                self._agent,
                self._turn.task_id,
                f"/{name}"[:NAME_SHOWN],
            )
            return Used(False, f"the capability /{name[:NAME_SHOWN]} is not granted to this agent")
        try:
            form = read_arguments(tool, call.args)
        except Misuse as error:
            return Used(False, str(error))
        if isinstance(form, AgentForm):
            return await self._delegation.ask(form, "agent")
        if isinstance(form, A2aForm):
            return await self._delegation.perform(form)
        if isinstance(form, AdviceForm):
            return await self._advised(form)
        used = await self._turn.step(f"tool {name}", self._act, tool, form)
        if used.ok and isinstance(form, WriteForm):
            await self._hand_over(form)
        await self._give(used.files)
        if isinstance(form, McpForm) and form.tool:
            return replace(used, label=f"mcp:{form.server}.{form.tool}")
        return used

    async def _hand_over(self, form: WriteForm) -> None:
        """Give the caller a file that was written, byte for byte."""
        filename = form.path.rpartition("/")[2]
        guessed = guess_type(filename)[0] or ("application/octet-stream" if form.base64 else "text/plain")
        await self._show(
            {"file": form.body(), "name": form.path, "filename": filename, "media_type": guessed}
        )

    async def _give(self, files: Iterable[MadeFile]) -> None:
        """Give the caller files that were made, byte for byte."""
        for one in files:
            body = base64.b64decode(one.raw)
            await self._show(
                {"file": body, "name": one.name, "filename": one.name, "media_type": one.media_type}
            )

    async def _show(self, artifact: ShownArtifact) -> None:
        """Give the caller something beside the answer, as soon as that may go out."""
        if self._gate:
            self._held.append(artifact)
        else:
            await self._turn.artifact(**artifact)

    async def _act(self, tool: ModelTool, form: Struct) -> Used:
        turn = self._turn
        use = ToolUse(
            f"{turn.task_id}-{self._uses}", turn.tenant, self._agent, turn.caller, self._entry, self._parts
        )
        try:
            given = await tool.act(use, form)
            made = ToolResult(given) if isinstance(given, str) else given
            return Used(True, _bounded(made.text, self._entry.limits.result_bytes), files=made.files)
        except (Misuse, CallFailed, Refused, Unreachable) as error:
            return Used(False, str(error))
        except OSError as error:
            log.error("tool.failed task=%s error=%a", turn.task_id, str(error))
            return Used(False, "it failed; the log of the server says why")

    # Its advisor.

    async def _judged(self, answer: str) -> str:
        """Let an answer out, or give why it must be written again."""
        turn, advisor = self._turn, self._advisor
        beside = [_bounded(told_in_gate(one), self._entry.limits.result_bytes) for one in self._held]
        asked = gate_question(turn.text, answer, beside)
        replied = await self._ask_advisor("gate", "\n".join([GATE, advisor.prompt]).strip(), asked)
        if not replied.ok:
            turn.fail(replied.text)
        verdict = verdict_of(replied.text, malformed_halts=advisor.malformed_halts)
        log.info("advisor.gate task=%s verdict=%s", turn.task_id, verdict.kind)
        if verdict.kind == "continue":
            for one in self._held:
                await turn.artifact(**one)
            await turn.write(answer)
            return ""
        self._redirected += 1
        if verdict.kind == "halt" or self._redirected > advisor.max_redirects:
            turn.fail(f"advisor_halted: {verdict.why or 'the advisor lets no answer out.'}")
        return verdict.why

    async def _advised(self, form: AdviceForm) -> Used:
        return await self._ask_advisor("tool advise", self._advisor.prompt or _ADVICE, form.question)

    async def _ask_advisor(self, step: str, told: str, question: str) -> Used:
        """Ask the advisor in a step of this name, unless a limit is spent, and count the call."""
        self._check_cost()
        used = await self._turn.step(step, self._advice, told, question)
        for one in ModelMessagesTypeAdapter.validate_python(used.response):
            await self._count(cast("ModelResponse", one))
        return used

    async def _advice(self, told: str, question: str) -> Used:
        entry, advisor = self._entry, self._advisor
        egress = self._parts.egress(self._turn.tenant) if entry.foreign else None
        try:
            model = entry_model(self._parts.models, entry, advisor.model, egress)
            async with asyncio.timeout(entry.limits.seconds):
                response = await model_request(
                    model,
                    [ModelRequest(parts=[UserPromptPart(question)], instructions=told)],
                    model_settings=self._settings(),
                )
            recorded = _recorded(response)
        except Exception as error:  # noqa: BLE001 - whatever a provider's library raises, it gave no advice
            code = "not_found" if isinstance(error, Misuse) else code_of(error)
            log.warning(
                "advisor.failed task=%s code=%s error=%a", self._turn.task_id, code, str(error)[:1000]
            )
            return Used(False, reason_of(code))
        return Used(True, response.text or "", recorded)


def _estimated(model: Model, messages: Sequence[ModelMessage], size: int) -> ModelResponse:
    """Return a response with an estimate of the tokens of a call whose answer broke off after some bytes."""
    sent = 0
    for part in [part for message in messages for part in message.parts]:
        content = getattr(part, "content", "")
        pieces = cast("list[object]", content) if isinstance(content, list) else [content]
        sent += sum([len(one.encode()) for one in pieces if isinstance(one, str)])
    usage = RequestUsage(input_tokens=sent // TOKEN_BYTES + 1, output_tokens=size // TOKEN_BYTES + 1)
    return ModelResponse(parts=[], usage=usage, model_name=model.model_name)


def _too_many(limit: int) -> Used:
    return Used(False, f"no more than {limit} tool calls in one task")


def _recorded(response: ModelResponse) -> list[Any]:
    """An answer as the log keeps it.

    Raises:
        ValueError: it has halves of characters, so that nobody could be told of it, or cannot be read back.
    """
    kept: list[Any] = msgspec.json.decode(ModelMessagesTypeAdapter.dump_json([response]))
    ModelMessagesTypeAdapter.validate_python(kept)
    return kept


def _size(event: ModelResponseStreamEvent) -> int:
    """How much has come with an event, of whatever kind.

    Raises:
        ValueError: as `_recorded`.
    """
    match event:
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return len(text.encode())
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(text))):
            return len(text.encode())
        case PartStartEvent(part=TextPart(content=text)):
            return len(text.encode())
        case PartStartEvent(part=ToolCallPart(args=str(text))):
            return len(text.encode())
        case _:
            # Also what says nothing is counted, so that there is an end of it.
            return 1


def _said(response: ModelResponse) -> str:
    """The text of an answer."""
    return "".join([part.content for part in response.parts if isinstance(part, TextPart)])


def _text(event: ModelResponseStreamEvent) -> str:
    """The piece of text that has come, if that is what has come."""
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            return text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


def _bounded(text: str, limit: int) -> str:
    if len(body := text.encode()) <= limit:
        return text
    return body[:limit].decode(errors="ignore") + _CUT
