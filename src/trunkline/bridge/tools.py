"""Skills of agents as tools of models: `toolbox = await tools(client)`.

The same tools work on agents far away and in this process. What a call comes to is always an outcome with
words for the model; what the code did wrong is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec
from msgspec import Struct

from trunkline.agent.agent import Agent
from trunkline.bridge.arguments import ToolArguments, decode_arguments, read_arguments
from trunkline.bridge.outcome import CallOptions, Handle, ToolClient, ToolOutcome, call_tool, failed
from trunkline.bridge.tool import SkillAddress, SkillFilter, Tool, make_tool, skill_filter, tool_names
from trunkline.client.client import Client
from trunkline.client.sync import SyncClient
from trunkline.errors import InvalidParams, Misuse, TrunklineError
from trunkline.net.egress import shown
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.types import Part

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool
    from pydantic_ai import Tool as PydanticTool

log = logging.getLogger("trunkline.bridge")
AgentSource = PeerCard | ToolClient | Agent | str
Source = AgentSource | Iterable[AgentSource] | Mapping[str, AgentSource]
_QUESTIONS = 1024
_KEPT = 1000
# Every call of a model has all tools before it: what a stranger's card may put there is bounded.
TOOLS_LIMIT = 512
ALL_SCHEMAS_LIMIT = 1 << 20


def tools(
    source: Source,
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    tags: Sequence[str] = (),
    prefix: str = "a2a",
) -> PendingToolbox:
    """The skills of a card, a client, an address, an agent in this process, or of many of them, as tools.

    Await it, or use it with `async with`, which also closes what it opened. A mapping gives agents names of
    your own. Of many agents those that cannot be reached are left out, logged and listed in `missing`.

    Raises:
        Misuse: a filter is no list, or the prefix does not fit; when awaited, the source has no skills.
        TrunklineError: when awaited: no agent could be reached.
    """
    return PendingToolbox(source, skill_filter(allow, deny, tags), prefix)


class PendingToolbox:
    """A toolbox that is about to be opened: await it, or enter it."""

    def __init__(self, source: Source, wanted: SkillFilter, prefix: str) -> None:
        self._source = source
        self._wanted = wanted
        self._prefix = prefix
        tool_names((), prefix)
        self._opened: Toolbox | None = None

    def __await__(self) -> Generator[Any, None, Toolbox]:
        return self._open().__await__()

    async def __aenter__(self) -> Toolbox:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _open(self) -> Toolbox:
        async with AsyncExitStack() as stack:
            found, missing = await find_agents(self._source, stack)
            offered = offered_tools(found, self._wanted, self._prefix)
            return Toolbox([(tool, one.peer) for tool, one in offered], missing, stack.pop_all())


def offered_tools(
    found: Iterable[FoundAgent], wanted: SkillFilter, prefix: str
) -> list[tuple[Tool, FoundAgent]]:
    """The tools of agents, each with whose it is; no more of them than one toolbox may have."""
    # Named before they are picked, so that a filter changes no name.
    rows = [(one, skill) for one in found for skill in one.skills]
    names = tool_names([SkillAddress(one.name, one.url, skill.id) for one, skill in rows], prefix)
    made = [
        (make_tool(name, one.name, skill, one.card), one)
        for name, (one, skill) in zip(names, rows, strict=True)
    ]
    wanted.warn([tool for tool, _ in made])
    for one in {id(one): one for _, one in made}.values():
        one.extra.skill_filter.warn([tool for tool, its in made if its is one])
    return _bounded(
        [(tool, one) for tool, one in made if wanted.takes(tool) and one.extra.skill_filter.takes(tool)]
    )


def _bounded(offered: list[tuple[Tool, FoundAgent]]) -> list[tuple[Tool, FoundAgent]]:
    """The tools that one toolbox may have, by number and by size of schemas; what is left out is logged."""
    kept: list[tuple[Tool, FoundAgent]] = []
    left_out: Counter[str] = Counter()
    size = 0
    for tool, one in offered:
        length = len(msgspec.json.encode(tool.input_schema))
        if len(kept) == TOOLS_LIMIT or size + length > ALL_SCHEMAS_LIMIT:
            left_out[tool.agent] += 1
        else:
            kept.append((tool, one))
            size += length
    for agent, count in left_out.items():
        log.warning(
            "tools.left_out agent=%a tools=%d limit=%d schema_bytes=%d fix=%a",
            agent, count, TOOLS_LIMIT, ALL_SCHEMAS_LIMIT, "name the tools that you need in allow=",
        )  # fmt: skip
    return kept


class Toolbox:
    """Tools and the agents behind them. Iterate over it, or ask for the shape that a model reads."""

    def __init__(
        self, tools: Iterable[tuple[Tool, ToolClient | None]], missing: dict[str, str], stack: AsyncExitStack
    ) -> None:
        self._tools = {tool.name: (tool, peer) for tool, peer in tools}
        # Agents that could not be reached, and why.
        self.missing = missing
        self._stack = stack
        # Some agents go on by the conversation and not by the task, so it is kept with the question.
        # By the agent too: another one may give its tasks the same ids.
        self._questions: OrderedDict[tuple[int, str], Handle] = OrderedDict()
        # What came of the latest calls, for whoever wants to know afterwards what a model did.
        self.outcomes: deque[ToolOutcome] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[Tool]:
        return iter([tool for tool, _ in self._tools.values()])

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name][0]

    def peer(self, name: str) -> ToolClient | None:
        """The client of the agent behind a tool; None if the tool was made of a card alone."""
        return self._tools[name][1]

    async def __aenter__(self) -> Toolbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what was opened for these tools; clients that you gave are yours."""
        await self._stack.aclose()

    def openai(self) -> list[dict[str, Any]]:
        """For `tools=` of chat completions."""
        return [tool.openai() for tool in self]

    def openai_responses(self) -> list[dict[str, Any]]:
        """For `tools=` of OpenAI's Responses API."""
        return [tool.openai_responses() for tool in self]

    def anthropic(self) -> list[dict[str, Any]]:
        """For `tools=` of Anthropic's Messages API."""
        return [tool.anthropic() for tool in self]

    def mcp(self) -> list[dict[str, Any]]:
        """For the answer to MCP's `tools/list`."""
        return [tool.mcp() for tool in self]

    def langchain(self) -> list[StructuredTool]:
        """The tools as LangChain's, which are called with `ainvoke`.

        Raises:
            Misuse: LangChain is not installed.
        """
        try:
            from trunkline.adapters.langchain import structured_tool
        except ModuleNotFoundError as error:
            raise Misuse(f"this needs {error.name}: pip install 'trunkline[langchain]'") from None
        return [structured_tool(tool, self.call) for tool in self]

    def pydantic_ai(self) -> list[PydanticTool[Any]]:
        """The tools as those of a Pydantic AI agent.

        Raises:
            Misuse: Pydantic AI is not installed.
        """
        try:
            from trunkline.adapters.pydantic_ai import pydantic_tool
        except ModuleNotFoundError as error:
            raise Misuse(f"this needs {error.name}: pip install 'trunkline[pydantic-ai]'") from None
        return [pydantic_tool(tool, self.call) for tool in self]

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | bytes, **options: Unpack[CallOptions]
    ) -> ToolOutcome:
        """Call a tool and wait for its outcome; the arguments are an object or its JSON text.

        `context_id` names the conversation that the call belongs to, `correlation_id` and `parent_id` the
        work that it is part of.

        Raises:
            Misuse: the tool was made of a card alone, so it has no agent to call.
        """
        try:
            asked = self._read(name, arguments)
        except InvalidParams as error:
            outcome = failed(name, error)
            self.outcomes.append(outcome)
            return outcome
        kept = self._questions.get((id(self._tools[name][1]), asked.task_id))
        context_id = options.get("context_id") or (kept.context_id if kept else "")
        return await self._ask(name, asked, {**options, "context_id": context_id})

    def _read(self, name: str, arguments: Mapping[str, Any] | str | bytes) -> ToolArguments:
        if name not in self._tools:
            known = ", ".join(self._tools) or "none"
            raise InvalidParams(f"there is no tool {name!r}; there are {known}", field="name")
        return read_arguments(decode_arguments(arguments), self[name].inputs)

    async def answer(self, question: ToolOutcome | Handle | Mapping[str, Any], text: str) -> ToolOutcome:
        """Answer a tool's question: by the outcome that asked it, its handle, or the handle read from JSON.

        Raises:
            Misuse: there is no question to answer, or its tool is not here.
        """
        handle = question.handle if isinstance(question, ToolOutcome) else question
        if handle is None:
            raise Misuse("this outcome asks no question; call the tool instead")
        if isinstance(handle, Mapping):
            try:
                handle = msgspec.convert(dict(handle), Handle)
            except msgspec.ValidationError as error:
                raise Misuse(f"this is no handle of a question: {error}") from None
        if handle.tool not in self._tools:
            raise Misuse(f"the tool {handle.tool!r} that asked is not in this toolbox")
        return await self._ask(
            handle.tool,
            ToolArguments((Part(text=text),), handle.task_id),
            {"context_id": handle.context_id},
        )

    async def _ask(self, name: str, asked: ToolArguments, options: CallOptions) -> ToolOutcome:
        tool, peer = self._tools[name]
        if peer is None:
            raise Misuse(f"{name} was made of a card alone; make tools of a Client of the agent to call it")
        outcome = await call_tool(tool, peer, asked, options)
        self.outcomes.append(outcome)
        self._questions.pop((id(peer), asked.task_id), None)
        if outcome.handle is not None:
            self._questions[id(peer), outcome.handle.task_id] = outcome.handle
            if len(self._questions) > _QUESTIONS:
                self._questions.popitem(last=False)
        return outcome


class AgentExtras(Struct, frozen=True):
    """What a registry file says of an agent beside its address: skills to offer, skills that it has too."""

    skill_filter: SkillFilter = SkillFilter()
    skills: tuple[Skill, ...] = ()


class Agents(dict[str, Client]):
    """Clients by name, as a registry file lists them, with what it says beside their addresses.

    Whoever loaded them closes them: `async with load_agents(path) as agents`.
    """

    def __init__(self, clients: Mapping[str, Client], extras: Mapping[str, AgentExtras]) -> None:
        super().__init__(clients)
        self.extras = dict(extras)

    async def __aenter__(self) -> Agents:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all clients."""
        async with AsyncExitStack() as stack:
            for client in self.values():
                stack.push_async_callback(client.close)


class FoundAgent(Struct, frozen=True):
    """An agent that tools are made of: its name here, its card, and the client that reaches it, if any."""

    name: str
    url: str
    card: PeerCard
    peer: ToolClient | None
    extra: AgentExtras = AgentExtras()

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills of the card, each once, and those that only the operator knows of.

        A card may list none; then the agent as a whole is one, without an id.
        """
        known: dict[str, Skill] = {}
        for skill in (*self.card.skills, *self.extra.skills):
            known.setdefault(skill.id, skill)
        whole = Skill("", self.card.name, self.card.description, ())
        return tuple(known.values()) or (whole,)


async def find_agents(given: Source, stack: AsyncExitStack) -> tuple[list[FoundAgent], dict[str, str]]:
    """The agents, in their order, and why others are missing. What is opened for them is the stack's.

    Raises:
        TrunklineError: none of them was found, or what is given is nothing that has skills.
    """
    extras: Mapping[str, AgentExtras] = given.extras if isinstance(given, Agents) else {}
    # Each opens what it needs on its own; all of them ask at the same time.
    rows = [(name, one, *await _opened(one, stack)) for name, one in _listed(given)]
    answers = await asyncio.gather(*(_card_of(one, peer) for _, one, _, peer in rows), return_exceptions=True)
    found: list[FoundAgent] = []
    missing: dict[str, str] = {}
    first: BaseException | None = None
    for (name, _, url, peer), card in zip(rows, answers, strict=True):
        extra = extras.get(name, AgentExtras())
        if isinstance(card, TrunklineError):
            first = first or card
            missing[name or url] = str(card)
            log.warning("tools.agent_missing agent=%s error=%r", name or shown(url), str(card))
            if not extra.skills:
                continue
            card = PeerCard(name=name)
        if isinstance(card, BaseException):
            raise card
        url = url or next((interface.url for interface in card.interfaces), "")
        found.append(FoundAgent(name or card.name, url, card, peer, extra))
    if first is not None and not found:
        raise first
    return found, missing


def _listed(given: Source) -> list[tuple[str, AgentSource]]:
    if isinstance(given, Mapping):
        return list(cast("Mapping[str, AgentSource]", given).items())
    if isinstance(given, str | PeerCard | Agent) or not isinstance(given, Iterable):
        return [("", given)]
    return [("", one) for one in given]


async def _opened(one: AgentSource, stack: AsyncExitStack) -> tuple[str, ToolClient | None]:
    """The address by which an agent is told from another of the same name, and the client that reaches it.

    Where the address is empty, that of its card counts.
    """
    if isinstance(one, PeerCard):
        return "", None
    if isinstance(one, Agent):
        return f"inside:{one.name}", await _in_process_client(one, stack)
    if isinstance(one, str):
        return one, await stack.enter_async_context(Client(one))
    if isinstance(one, SyncClient):
        raise Misuse("tools are called with await; make them of a Client, not of a SyncClient")
    if not callable(getattr(one, "card", None)) or not callable(getattr(one, "send", None)):
        raise Misuse(f"tools are made of cards, clients, agents and addresses, not of {type(one).__name__}")
    own = getattr(one, "url", "")
    return own if isinstance(own, str) else "", one


async def _in_process_client(agent: Agent, stack: AsyncExitStack) -> ToolClient:
    """A client of an agent in this process, which runs for as long as the tools do."""
    app = agent.asgi()
    await stack.enter_async_context(app.lifespan())
    keys = app.host.settings.keys
    http_client = InProcessHttpClient(app)
    stack.push_async_callback(http_client.close)
    return await stack.enter_async_context(
        Client("http://localhost/a2a", http_client=http_client, api_key=keys[0] if keys else "")
    )


async def _card_of(one: AgentSource, peer: ToolClient | None) -> PeerCard:
    if isinstance(one, PeerCard):
        return one
    assert peer is not None
    return await peer.card()
