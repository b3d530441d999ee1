"""Tasks of MCP itself, for clients that know them: a call gives a task at once, and its result is asked for.

Of the revision 2025-11-25 they are part, and the client asks for one with its call. After it they are an
extension: a client names it with each request, and a call that takes long becomes a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp import types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from trunkline.client.result import Result, text_of
from trunkline.errors import TrunklineError
from trunkline.mcp.contents import Block, result_of
from trunkline.mcp.handoff import HandOff, read_hand_off
from trunkline.mcp.skill_server import (
    AUGMENTED,
    QUESTION,
    TASK_TOOLS,
    McpClient,
    RequestContext,
    SkillServer,
    answer_by,
    asked_of,
    form_request,
)
from trunkline.mcp.task_agent import Offer, ToolSource
from trunkline.mcp.tool_call import HAND_OFF_S, ToolCall
from trunkline.wire.types import TaskState

EXTENSION = "io.modelcontextprotocol/tasks"
_RELATED = "io.modelcontextprotocol/related-task"
# How long a call of a client that has the extension waits before it is a task.
QUICK_S = 2.0
RESULT_S = 3600.0
_POLL_MS = 1000
_FAILED = (TaskState.FAILED, TaskState.REJECTED)


class TaskParams(types.RequestParams):
    """Which task is meant."""

    task_id: str


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`: the answer to a task that asks."""

    input_responses: dict[str, Any] = {}


class TaskServer(Server[Any]):
    """A server of the library that says of itself that calls can be tasks."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """The server's capabilities, in the words of a revision."""
        found = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        if protocol_version not in MODERN_PROTOCOL_VERSIONS:
            calls = types.TasksToolsCapability(call=types.TasksCallCapability())
            requests = types.ServerTasksRequestsCapability(tools=calls)
            found.tasks = types.ServerTasksCapability(cancel=types.TasksCancelCapability(), requests=requests)
        return found


def serve_skills(source: ToolSource, *, hand_off_s: float = HAND_OFF_S) -> SkillServer:
    """A server of what a source offers, whose calls can be tasks."""
    skills = SkillServer(source, hand_off_s=hand_off_s, kind=TaskServer)
    ProtocolTasks(skills)
    return skills


class ProtocolTasks:
    """Middleware of a server that makes tasks of calls, and what answers the requests for them."""

    def __init__(self, skills: SkillServer) -> None:
        self._skills = skills
        server = skills.server
        server.extensions[EXTENSION] = {}
        server.middleware.append(self)
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/result", TaskParams, self._result)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Make a task of a call where its client wants that."""
        given = ctx.params or {}
        augmented = ctx.protocol_version == AUGMENTED and isinstance(given.get("task"), Mapping)
        if ctx.method != "tools/call" or not (augmented or _has_extension(ctx)):
            return await call_next(ctx)
        params = types.CallToolRequestParams.model_validate(given, by_name=False)
        if params.name in TASK_TOOLS or params.request_state is not None:
            return await call_next(ctx)
        offer = await self._skills.named(ctx, params.name)
        try:
            call = ToolCall(offer, McpClient(ctx, silent=True), limit_s=QUICK_S)
            found = await call.begin(asked_of(offer, params.arguments or {}))
            if not augmented:
                found = await call.follow(found)
        except TrunklineError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        if found.task is None or (not augmented and found.ended):
            return _dumped(result_of(offer.tool, found))
        if augmented:
            return {"task": _fields(HandOff(offer.tool.name, found.task_id), found, modern=False)}
        return {"resultType": "task", **_fields(HandOff(offer.tool.name, found.task_id), found, modern=True)}

    async def _get(self, context: RequestContext, params: TaskParams) -> Block:
        offer, task, found = await self._found(context, params)
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        told = _fields(task, found, modern=modern)
        if modern and told["status"] == "completed":
            told["result"] = _dumped(result_of(offer.tool, found))
        if modern and told["status"] == "input_required":
            form = form_request(found.question).model_dump(by_alias=True, mode="json", exclude_none=True)
            told["inputRequests"] = {QUESTION: form}
        return told

    async def _result(self, context: RequestContext, params: TaskParams) -> Block:
        """Wait for the end of a task; what it asks meanwhile is asked of the user."""
        if context.protocol_version != AUGMENTED:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
        offer, task, found = await self._found(context, params)
        call = ToolCall(offer, McpClient(context), limit_s=RESULT_S)
        try:
            found = await call.follow(found)
        except TrunklineError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        return {**_dumped(result_of(offer.tool, found)), "_meta": {_RELATED: {"taskId": task.id}}}

    async def _update(self, context: RequestContext, params: UpdateParams) -> Block:
        """Give a task the answer of a user."""
        offer, _, found = await self._found(context, params)
        given = params.input_responses.get(QUESTION)
        if found.state is TaskState.INPUT_REQUIRED and given is not None:
            said = types.ElicitResult.model_validate(given)
            call = ToolCall(offer, McpClient(context, silent=True), limit_s=0)
            try:
                await answer_by(call, found, said)
            except TrunklineError as error:
                raise MCPError(types.INVALID_PARAMS, str(error)) from None
        return {}

    async def _cancel(self, context: RequestContext, params: TaskParams) -> Block:
        offer, task, _ = await self._found(context, params)
        try:
            found = await offer.agent.cancel(task.task_id)
        except TrunklineError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return {} if modern else _fields(task, found, modern=False)

    async def _found(self, context: RequestContext, params: TaskParams) -> tuple[Offer, HandOff, Result]:
        try:
            task = read_hand_off(params.task_id, "taskId")
            offer = await self._skills.offer(context, task)
            return offer, task, await offer.agent.get(task.task_id)
        except TrunklineError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None


def _has_extension(context: RequestContext) -> bool:
    known = context.session.client_capabilities
    named = None if known is None else known.extensions
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in (named or {})


def _fields(task: HandOff, found: Result, *, modern: bool) -> Block:
    """A task as MCP has it; after 2025-11-25 times have units, and a tool that failed has completed too."""
    assert found.task is not None
    status = found.task.status
    told: Block = {"taskId": task.id, "status": _status(status.state, modern=modern)}
    if words := text_of(status.message):
        told["statusMessage"] = words[:1000]
    # Agents tell when a task moved last, and not when it began.
    told |= {"createdAt": status.timestamp, "lastUpdatedAt": status.timestamp}
    unit = "Ms" if modern else ""
    return {**told, f"ttl{unit}": None, f"pollInterval{unit}": _POLL_MS}


def _status(state: TaskState, *, modern: bool) -> str:
    if state is TaskState.INPUT_REQUIRED:
        return "input_required"
    if state is TaskState.CANCELED:
        return "cancelled"
    if state in _FAILED:
        return "completed" if modern else "failed"
    return "completed" if state is TaskState.COMPLETED else "working"


def _dumped(block: Block) -> Block:
    found = types.CallToolResult.model_validate(block)
    return found.model_dump(by_alias=True, mode="json", exclude_none=True)
