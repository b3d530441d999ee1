"""The tools of model agents, one for each capability: what a model is told of it, and what it does.

A tool answers with text, or raises `Misuse`, `CallFailed`, `Unreachable` or another refusal with words that a
model may read. What is asked of other agents and of the advisor is done by the run itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from mimetypes import guess_extension
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from trunkline.auth.principal import Principal, Scope
from trunkline.errors import Misuse
from trunkline.fleet.call import ApiCall, PageQuery
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.catalogue.model_entry import ModelEntry
from trunkline.fleet.ceremonies.api import CeremonyApi
from trunkline.fleet.ceremonies.ceremony import CeremonyForm
from trunkline.fleet.ceremonies.ceremony_store import TENANT_LIMIT
from trunkline.fleet.routing.a2a_tool import USAGE
from trunkline.gateway.model.folder import TenantFolder
from trunkline.gateway.model.notes import Note, NoteBook, listed, search
from trunkline.gateway.model.page_text import page_text
from trunkline.gateway.model.providers import ModelSource
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.run.spending import Meter
from trunkline.wire.decode import DECODE_ERRORS

MCP_S = 45.0
# Of a tool or an agent that there is not a model may say any name.
NAME_SHOWN = 80
_CEREMONIES = 20
_SEARCHED = 10
_ACCEPT = (("accept", "text/html, text/plain, application/json, */*;q=0.5"),)
_encode = msgspec.json.Encoder().encode


class McpServerTools(Protocol):
    """The tools of the operator's MCP servers."""

    async def call_tool(
        self, server: str, tool: str, arguments: dict[str, Any], timeout_s: float, *, tenant: str = ""
    ) -> dict[str, Any]:
        """The result of calling a tool of an MCP server."""
        ...

    async def list_tools(self, server: str, timeout_s: float, *, tenant: str = "") -> list[dict[str, Any]]:
        """The tools of a server as MCP describes them; without a name the servers that there are."""
        ...


class ToolPolicy(Protocol):
    """The tools of the operator that the agents of a tenant's own may use."""

    def allows_tool(self, tenant: str, tool: str) -> bool:
        """Return whether a tenant may use a tool, such as `mcp:files/read`."""
        ...

    def allows_server(self, tenant: str, server: str) -> bool:
        """Return whether a tenant may use a tool of an MCP server."""
        ...


class ModelParts(Struct, frozen=True, kw_only=True):
    """What the model agents of a hub work with; without `search_url` nobody searches."""

    models: ModelSource
    agents: Callable[[str], Sequence[Listed]]
    fetcher: Callable[[str], Fetcher]
    egress: Callable[[str], Egress]
    mcp: McpServerTools
    policy: ToolPolicy
    meter: Meter
    files: Path
    notes: NoteBook
    todos: NoteBook
    ceremonies: CeremonyApi
    now_ms: Callable[[], int]
    own: Fetcher
    search_url: str = ""


class ToolUse(Struct, frozen=True):
    """One use of a tool: by which agent, for whom; `id` is the same when the run is played again."""

    id: str
    tenant: str
    agent: str
    caller: str
    entry: ModelEntry
    parts: ModelParts


class MadeFile(Struct, frozen=True):
    """A file for the caller, as it is recorded: its content is base64."""

    name: str
    media_type: str
    raw: str

    @classmethod
    def of(cls, name: str, media_type: str, raw: str) -> MadeFile | None:
        """The file of these members; None if its content is no base64."""
        try:
            base64.b64decode(raw, validate=True)
        except (binascii.Error, ValueError):
            return None
        return cls(f"{name}{guess_extension(media_type) or ''}", media_type[:NAME_SHOWN], raw)


class ToolResult(Struct, frozen=True):
    """What a tool gives beside text for the model: files for the caller."""

    text: str
    files: tuple[MadeFile, ...] = ()


class Used(Struct, frozen=True):
    """What a use of a tool gave, as it is recorded: its text, and the tokens of an advisor.

    `label` is what callers are shown in the place of the tool's name; a text that is framed says itself what
    went wrong.
    """

    ok: bool
    text: str
    response: list[Any] = []
    label: str = ""
    is_framed: bool = False
    files: tuple[MadeFile, ...] = ()


class FetchForm(Struct, forbid_unknown_fields=True):
    """Get a page of the web as text."""

    url: Annotated[str, Meta(description="An http:// or https:// address.")]


class SearchForm(Struct, forbid_unknown_fields=True):
    """Search the web; gives titles, addresses and excerpts."""

    query: str


class ReadForm(Struct, forbid_unknown_fields=True):
    """Read a file of the workspace as text."""

    path: Annotated[str, Meta(description="Names with / between them.")]


class WriteForm(Struct, forbid_unknown_fields=True):
    """Write a whole file of the workspace; the caller is given it too."""

    path: Annotated[str, Meta(description="Names with / between them.")]
    text: str = ""
    base64: Annotated[str, Meta(description="In the place of text, for bytes that are no text.")] = ""

    def body(self) -> bytes:
        """The bytes of the file.

        Raises:
            Misuse: they are given twice, or are not base64.
        """
        if self.text and self.base64:
            raise Misuse("give text or base64, not both")
        try:
            return base64.b64decode(self.base64, validate=True) if self.base64 else self.text.encode()
        except (binascii.Error, ValueError):
            raise Misuse("base64 is not base64") from None


class FolderForm(Struct, forbid_unknown_fields=True):
    """List the files of the workspace with their sizes in bytes."""

    path: Annotated[str, Meta(description="A folder; empty for all.")] = ""


class MemoryForm(Struct, forbid_unknown_fields=True):
    """Keep notes that outlive the conversation: add one, search, list all, or delete one by its id."""

    action: Literal["add", "search", "list", "delete"]
    text: Annotated[str, Meta(description="The note, or the words to search for.")] = ""
    id: str = ""


class McpForm(Struct, forbid_unknown_fields=True):
    """Call a tool of an MCP server; without a tool list those of the server, without a server the servers."""

    server: str = ""
    tool: str = ""
    arguments: dict[str, Any] = {}


class AgentForm(Struct, forbid_unknown_fields=True):
    """Have another agent do something, and wait for its answer."""

    name: Annotated[str, Meta(description="The name of the agent.")]
    message: Annotated[str, Meta(description="All that it needs to know: it sees nothing else.")]
    skill: Annotated[str, Meta(description="One of its skills; empty for any.")] = ""


class A2aForm(Struct, forbid_unknown_fields=True):
    """Agents elsewhere: `list` them, read the `card` of one, or `call` one with a message."""

    line: Annotated[str, Meta(description=USAGE.partition(": ")[2])]


class AdviceForm(Struct, forbid_unknown_fields=True):
    """Ask an advisor, who sees nothing but the question."""

    question: str


class TodoForm(Struct, forbid_unknown_fields=True):
    """Keep a list of what is to be done: add, list, mark as done or delete by the id."""

    action: Literal["add", "list", "done", "delete"]
    text: str = ""
    id: str = ""


class ScheduleForm(Struct, forbid_unknown_fields=True):
    """Be asked again by schedule: create, list or delete what is planned."""

    action: Literal["create", "list", "delete"]
    id: Annotated[str, Meta(description="Letters, digits, dots, hyphens and underscores.")] = ""
    schedule: Annotated[str, Meta(description="Five fields of cron in UTC, or one ISO date and time.")] = ""
    message: Annotated[str, Meta(description="What you are told then.")] = ""


async def _fetch(use: ToolUse, form: FetchForm) -> str:
    response = await use.parts.fetcher(use.tenant).get(form.url, headers=_ACCEPT)
    # In a thread: a page of a megabyte of tags would keep all others waiting.
    text = await asyncio.to_thread(page_text, response.body, response.headers.get("content-type", ""))
    if response.status >= 400:
        raise Misuse(f"HTTP {response.status}")
    if text is None:
        raise Misuse(f"{response.headers.get('content-type', '')[:80]} is no text")
    return text


async def _search(use: ToolUse, form: SearchForm) -> str:
    # As SearXNG and those that speak like it answer; the address is the operator's word.
    asked = urlencode({"q": form.query, "format": "json"})
    response = await use.parts.own.get(f"{use.parts.search_url}?{asked}")
    if response.status != 200:
        raise Misuse(f"the search engine answers HTTP {response.status}")
    try:
        found = msgspec.json.decode(response.body, type=_SearchAnswer).results[:_SEARCHED]
    except DECODE_ERRORS:
        raise Misuse("the search engine does not answer with JSON results") from None
    pages = [f"{one.title or ''}\n{one.url or ''}\n{one.content or ''}" for one in found]
    return "\n\n".join(pages) or "Nothing was found."


class _FoundPage(Struct):
    # Of a page without a text some engines say null.
    title: str | None = None
    url: str | None = None
    content: str | None = None


class _SearchAnswer(Struct):
    results: list[_FoundPage]


async def _read(use: ToolUse, form: ReadForm) -> str:
    body = await asyncio.to_thread(_folder(use).read, form.path)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(body).decode()


async def _write(use: ToolUse, form: WriteForm) -> str:
    body = form.body()
    await asyncio.to_thread(_folder(use).write, form.path, body)
    return f"{form.path} has {len(body)} bytes."


async def _list(use: ToolUse, form: FolderForm) -> str:
    found = await asyncio.to_thread(_folder(use).list, form.path)
    return "\n".join([f"{name} {size}" for name, size in found]) or "There are no files."


def _folder(use: ToolUse) -> TenantFolder:
    return TenantFolder(use.parts.files, use.tenant)


async def _mem(use: ToolUse, form: MemoryForm) -> str:
    book, now = use.parts.notes, use.parts.now_ms()
    match form.action:
        case "add":
            await book.add(use.tenant, use.agent, Note(use.id, form.text, now))
            return f"Kept as {use.id}."
        case "delete":
            await book.delete(use.tenant, use.agent, form.id)
            return f"{form.id} is deleted."
        case "search":
            known = await book.read(use.tenant, use.agent)
            return listed(search(known, form.text, use.entry.memory, now))
        case "list":
            return listed(await book.read(use.tenant, use.agent))


async def _todo(use: ToolUse, form: TodoForm) -> str:
    book = use.parts.todos
    match form.action:
        case "add":
            await book.add(use.tenant, use.agent, Note(use.id, form.text, use.parts.now_ms()))
            return f"Kept as {use.id}."
        case "done":
            await book.finish(use.tenant, use.agent, form.id)
            return f"{form.id} is done."
        case "delete":
            await book.delete(use.tenant, use.agent, form.id)
            return f"{form.id} is deleted."
        case "list":
            return listed(await book.read(use.tenant, use.agent))


async def _mcp(use: ToolUse, form: McpForm) -> str | ToolResult:
    # An agent in a file has what the operator grants it; one that a tenant added, what the tenant may use.
    server, is_limited = form.server, use.entry.foreign
    for place, name in (("", server), (server, form.tool)):
        if is_limited and name and not _may_use(use, place, name):
            text = f"agents of this tenant may not use {name[:NAME_SHOWN]!r}"
            raise Misuse(f"{text}; an operator allows it by the setting tools of the tenant")
    if not form.tool:
        found = await use.parts.mcp.list_tools(server, MCP_S, tenant=use.tenant)
        shown = [one for one in found if not is_limited or _may_use(use, server, one["name"])]
        return _encode(shown).decode()
    given = await use.parts.mcp.call_tool(form.server, form.tool, form.arguments, MCP_S, tenant=use.tenant)
    only_text = given.get("text") if len(given) == 1 else None
    if isinstance(only_text, str):
        return only_text
    blocks = given.get("content") if len(given) == 1 else None
    files = _made(form.tool, blocks) if isinstance(blocks, list) else ()  # pyright: ignore[reportUnknownArgumentType]
    if files:
        # Of the bytes a model could make nothing.
        return ToolResult("\n".join([f"{one.name} was given to the caller." for one in files]), files)
    return _encode(given).decode()


def _may_use(use: ToolUse, server: str, name: str) -> bool:
    """Return whether a tenant may use a tool of an MCP server or, without a server, the server itself."""
    policy = use.parts.policy
    if not server:
        return policy.allows_server(use.tenant, name)
    return policy.allows_tool(use.tenant, f"mcp:{server}/{name}")


def _made(tool: str, blocks: list[Any]) -> tuple[MadeFile, ...]:
    """The pictures and sounds among the blocks of an MCP result."""
    found: list[MadeFile] = []
    for block in blocks:
        match block:
            case {"type": "image" | "audio", "data": str(data), "mimeType": str(kind)}:
                made = MadeFile.of(f"{tool}-{len(found) + 1}", kind, data)
                found += [] if made is None else [made]
            case _:
                pass
    return tuple(found)


async def _schedule(use: ToolUse, form: ScheduleForm) -> str:
    principal = Principal(use.tenant, use.caller, frozenset({Scope.READ, Scope.WRITE}))
    api, own = use.parts.ceremonies, f"{use.agent}."
    # All that begin with its name, however many others the caller has.
    page = await api.list(ApiCall(principal, use.tenant), PageQuery(after=own, limit=TENANT_LIMIT))
    known = [one for one in page.items if one.targets == (use.agent,) and one.id.startswith(own)]
    if form.action == "list":
        rows = [f"{one.id.removeprefix(own)}: {one.schedule}: {one.message}" for one in known]
        return "\n".join(rows) or "Nothing is planned."
    if not form.id:
        raise Misuse("give an id")
    called = ApiCall(principal, use.tenant, f"{own}{form.id}")
    if form.action == "delete":
        if all(one.id != called.id for one in known):
            raise Misuse(f"nothing is planned as {form.id[:80]!r}")
        await api.delete(called)
        return f"{form.id} is deleted."
    if any((one.id, one.schedule, one.message) == (called.id, form.schedule, form.message) for one in known):
        # Made by a run of this task that died before it could say so.
        return f"{form.id} is planned."
    if len(known) >= _CEREMONIES:
        raise Misuse(f"at most {_CEREMONIES} are planned at a time; delete one first")
    made = CeremonyForm(
        id=called.id,
        name=f"{use.agent}: {form.id}"[:200],
        schedule=form.schedule,
        skill="chat",
        targets=(use.agent,),
        message=form.message,
    )
    item = await api.create(called, made)
    return f"{form.id} is planned" + (f", next at {item.next_fires[0]}." if item.next_fires else ".")


async def _of_the_run(use: ToolUse, form: Any) -> str:
    raise Misuse("this is done by the run itself")


class ModelTool(Struct, frozen=True):
    """A tool as models are told of it: its arguments are the members of its form."""

    form: type[Struct]
    act: Callable[[ToolUse, Any], Awaitable[str | ToolResult]] = _of_the_run

    @property
    def description(self) -> str:
        """The sentence by which a model knows what the tool does."""
        return (self.form.__doc__ or "").strip()

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of its arguments."""
        (made,) = msgspec.json.schema_components([self.form])[1].values()
        # Some providers want the type of a choice said too.
        members = {
            name: {"type": "string", **about} if "enum" in about else about
            for name, about in made["properties"].items()
        }
        return {
            "type": "object",
            "properties": members,
            "required": made["required"],
            "additionalProperties": False,
        }


# By capability without its slash, which is what models call.
TOOLS: dict[str, ModelTool] = {
    "fetch": ModelTool(FetchForm, _fetch),
    "search": ModelTool(SearchForm, _search),
    "read": ModelTool(ReadForm, _read),
    "write": ModelTool(WriteForm, _write),
    "list": ModelTool(FolderForm, _list),
    "mem": ModelTool(MemoryForm, _mem),
    "mcp": ModelTool(McpForm, _mcp),
    "agent": ModelTool(AgentForm),
    "a2a": ModelTool(A2aForm),
    "advise": ModelTool(AdviceForm),
    "todo": ModelTool(TodoForm, _todo),
    "schedule": ModelTool(ScheduleForm, _schedule),
}


def read_arguments(tool: ModelTool, given: str | dict[str, Any] | None) -> Any:
    """The arguments of a call as the tool's form.

    Raises:
        Misuse: they do not fit; the text names the member.
    """
    try:
        # Also of a provider that gives them as values, only what is JSON is an argument.
        raw = given if isinstance(given, str) else msgspec.json.encode(given or {})
        return msgspec.json.decode(raw or "{}", type=tool.form)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        raise Misuse(f"these are no arguments of the tool: {error}") from None
