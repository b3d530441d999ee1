"""Skills of agents as a server of MCP: its tools, its resources, and what clients of each revision can do.

A call waits for the task it begins. Where the client knows tasks of its own, it is given one instead; see
`protocol_tasks`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from trunkline.auth.principal import Principal
from trunkline.bridge.arguments import ToolArguments, read_arguments
from trunkline.bridge.outcome import failed
from trunkline.client.result import Result
from trunkline.errors import InvalidParams, Misuse, TrunklineError
from trunkline.mcp.contents import Block, canceled, file_of, result_of
from trunkline.mcp.elicitation import answer_parts, form_of, rejection_parts
from trunkline.mcp.handoff import (
    ANSWER,
    CANCEL,
    FILE_TEMPLATE,
    STATUS,
    HandOff,
    read_file_uri,
    read_hand_off,
    read_wait,
    tools_of_tasks,
)
from trunkline.mcp.task_agent import Offer, ToolSource
from trunkline.mcp.tool_call import HAND_OFF_S, FormAnswer, ToolCall
from trunkline.wire.question import Question
from trunkline.wire.service_parameters import read_correlation
from trunkline.wire.types import INTERRUPTED, Correlation, Part, TaskState

log = logging.getLogger("trunkline.mcp")
RequestContext = ServerRequestContext[Any, Any]
# The revision of which tasks are part.
AUGMENTED = "2025-11-25"
# The one question of a call at a time.
QUESTION = "answer"
_INSTRUCTIONS = (
    "Each tool is a skill of an agent and begins a task. A task that takes long is handed over with an id: "
    f"{STATUS} tells its result later, {ANSWER} answers its question, {CANCEL} stops it."
)
TASK_TOOLS = {STATUS: ("task_id", "wait"), ANSWER: ("task_id", "answer"), CANCEL: ("task_id",)}


class SkillServer:
    """A server of MCP over what a source offers; `server` is the library's, for whichever transport."""

    def __init__(
        self,
        source: ToolSource,
        *,
        name: str = "trunkline",
        hand_off_s: float = HAND_OFF_S,
        kind: type[Server[Any]] = Server,
    ) -> None:
        self._source = source
        self.hand_off_s = hand_off_s
        self.server: Server[Any] = kind(
            name,
            version=version("trunkline"),
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=_list_resources,
            on_list_resource_templates=_list_templates,
            on_read_resource=self._read_resource,
        )

    async def offers(self, context: RequestContext) -> Mapping[str, Offer]:
        """The tools of whoever asks."""
        return await self._source.offers(caller_of(context), correlation_of(context))

    async def offer(self, context: RequestContext, task: HandOff) -> Offer:
        """The tool by which a task was begun.

        Raises:
            InvalidParams: there is no such tool any more.
        """
        found = (await self.offers(context)).get(task.tool)
        if found is None:
            raise InvalidParams(
                f"there is no tool {task.tool!r} here, whose task this would be", field="task_id"
            )
        return found

    # Tools.

    async def _list_tools(
        self, context: RequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del params
        listed = [offer.tool.mcp() for offer in (await self.offers(context)).values()]
        if context.protocol_version == AUGMENTED:
            listed = [{**one, "execution": {"taskSupport": "optional"}} for one in listed]
        return types.ListToolsResult(
            tools=[types.Tool.model_validate(one) for one in [*listed, *tools_of_tasks()]]
        )

    async def _call_tool(
        self, context: RequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        arguments = params.arguments or {}
        try:
            if params.name in TASK_TOOLS:
                return _answered(await self._serve_task(context, params.name, arguments))
            offer, result = await self._work(context, params, arguments)
        except Misuse:
            raise
        except TrunklineError as error:
            return _answered(failed(params.name, error).mcp())
        if result.state is TaskState.INPUT_REQUIRED and asks_by_result(context) and not _is_closed(params):
            return _asking(HandOff(offer.tool.name, result.task_id), result.question)
        return _answered(result_of(offer.tool, result))

    async def _work(
        self, context: RequestContext, params: types.CallToolRequestParams, arguments: Mapping[str, Any]
    ) -> tuple[Offer, Result]:
        offer = await self.named(context, params.name)
        call = ToolCall(offer, McpClient(context), limit_s=self.hand_off_s)
        if params.request_state is not None:
            return offer, await self._go_on(offer, call, params)
        return offer, await call.run(asked_of(offer, arguments))

    async def named(self, context: RequestContext, name: str) -> Offer:
        """The tool of this name.

        Raises:
            MCPError: there is none.
        """
        offers = await self.offers(context)
        if name not in offers:
            raise MCPError(
                types.INVALID_PARAMS,
                f"there is no tool {name[:100]!r} here; tools/list names those there are",
            )
        return offers[name]

    async def _go_on(self, offer: Offer, call: ToolCall, params: types.CallToolRequestParams) -> Result:
        """Go on with a call that has asked: the client brings back its state and the answer."""
        state, _, question = (params.request_state or "").partition("\n")
        task = read_hand_off(state, "requestState")
        if task.tool != offer.tool.name:
            raise InvalidParams("this is the state of another tool's call", field="requestState")
        result = await offer.agent.get(task.task_id)
        given = (params.input_responses or {}).get(QUESTION)
        if result.state is not TaskState.INPUT_REQUIRED or not isinstance(given, types.ElicitResult):
            return await call.follow(result)
        return await answer_by(call, result, given, question)

    async def _serve_task(self, context: RequestContext, name: str, arguments: Mapping[str, Any]) -> Block:
        """Tell of a task that was handed over, answer it or stop it."""
        for argument in arguments:
            if argument not in TASK_TOOLS[name]:
                raise InvalidParams(
                    f"there is no argument {argument!r}; there are {', '.join(TASK_TOOLS[name])}",
                    field=argument,
                )
        task = read_hand_off(arguments.get("task_id"))
        offer = await self.offer(context, task)
        if name == CANCEL:
            return canceled(task, await offer.agent.cancel(task.task_id))
        if name == ANSWER:
            if arguments.get("answer") is None:
                raise InvalidParams("the argument 'answer' is required", field="answer")
            call = ToolCall(offer, McpClient(context), limit_s=self.hand_off_s)
            said = arguments["answer"]
            parts = (Part(text=said),) if isinstance(said, str) else (Part(data=said),)
            return result_of(offer.tool, await call.answer(parts, task.task_id))
        wait_s = min(read_wait(arguments.get("wait")), self.hand_off_s)
        found = await offer.agent.get(task.task_id)
        if wait_s and found.state not in INTERRUPTED:
            found = await ToolCall(offer, McpClient(context, silent=True), limit_s=wait_s).follow(found)
        return result_of(offer.tool, found)

    # Files.

    async def _read_resource(
        self, context: RequestContext, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        try:
            task, place = read_file_uri(params.uri)
            offer = await self.offer(context, task)
            found = file_of(offer.tool, await offer.agent.get(task.task_id), place, params.uri)
        except TrunklineError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        return types.ReadResourceResult(contents=[types.BlobResourceContents.model_validate(found)])


class McpClient:
    """The client of MCP that waits for a call, as its connection lets it be spoken to."""

    def __init__(self, context: RequestContext, *, silent: bool = False) -> None:
        self._context = context
        self.can_ask = not silent and can_elicit(context) and context.session.can_send_request

    async def ask(self, question: Question) -> FormAnswer:
        """Have it show a form."""
        words, schema = form_of(question)
        said = await self._context.session.elicit_form(words, schema, self._context.request_id)
        return FormAnswer(said.action, said.content)

    async def tell(self, count: int, words: str) -> None:
        """Send it progress, if it wants that."""
        await self._context.session.report_progress(count, None, words)

    def has_cancelled(self) -> bool:
        """Whether it cancelled: by a notification, or where there is none by letting go of its request."""
        # The library hands the channel to sessions alone.
        channel: Any = getattr(self._context.session, "_request_outbound", None)
        if channel is None:
            return False
        return channel.transport.kind != "jsonrpc" or channel.cancel_requested.is_set()


def caller_of(context: RequestContext) -> Principal | None:
    """The principal of a request that an HTTP server has let in."""
    request = context.request
    return None if request is None else request.scope.get("trunkline.principal")


def correlation_of(context: RequestContext) -> Correlation | None:
    """Return the work that the headers of an HTTP request name."""
    request = context.request
    return None if request is None else read_correlation(dict(request.scope["headers"]))


def can_elicit(context: RequestContext) -> bool:
    """Whether the client can show forms to its user."""
    known = context.session.client_capabilities
    elicitation = None if known is None else known.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def asks_by_result(context: RequestContext) -> bool:
    """Whether a question to the user is a result, after which the client calls again with the answer."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS and can_elicit(context)


def asked_of(offer: Offer, arguments: Mapping[str, Any]) -> ToolArguments:
    """The arguments of a call as an agent takes them; the id of a task may be ours.

    Raises:
        InvalidParams: one is missing, unknown or does not fit.
    """
    asked = read_arguments(arguments, offer.tool.inputs)
    tool, colon, task_id = asked.task_id.partition(":")
    return ToolArguments(asked.parts, task_id) if colon and tool == offer.tool.name else asked


async def answer_by(call: ToolCall, asking: Result, given: types.ElicitResult, question: str = "") -> Result:
    """Give a task the answer of a user, and follow it; a form that was closed leaves it as it is.

    Raises:
        TrunklineError: the agent refuses the answer.
    """
    asked = asking.question
    if given.action == "cancel":
        return asking
    parts = answer_parts(asked, given.content) if given.action == "accept" else rejection_parts(asked)
    return await call.answer(parts, asking.task_id, question or asked.id)


def form_request(question: Question) -> types.ElicitRequest:
    """A question as the request for a form."""
    words, schema = form_of(question)
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=words, requested_schema=schema))


def _is_closed(params: types.CallToolRequestParams) -> bool:
    """Whether the user has closed the form of this call, and wants no other."""
    given = (params.input_responses or {}).get(QUESTION)
    return isinstance(given, types.ElicitResult) and given.action == "cancel"


def _asking(task: HandOff, question: Question) -> types.InputRequiredResult:
    return types.InputRequiredResult(
        input_requests={QUESTION: form_request(question)}, request_state=f"{task.id}\n{question.id}"
    )


def _answered(block: Block) -> types.CallToolResult:
    return types.CallToolResult.model_validate(block)


async def _list_resources(
    context: RequestContext, params: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    """Files of tasks are named by the results that have them; none is listed."""
    del context, params
    return types.ListResourcesResult(resources=[])


async def _list_templates(
    context: RequestContext, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    del context, params
    template = types.ResourceTemplate(
        name="file",
        title="File of a task",
        uri_template=FILE_TEMPLATE,
        description="A file that a result names.",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])
