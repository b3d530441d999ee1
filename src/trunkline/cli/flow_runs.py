"""`trunkline flow graph|run|status|resume|submit|signal|cancel|list|events`: runs of workflows."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.tree import Tree

from trunkline.cli.admin import Operator, opened_store, server_beside, server_of, start_command
from trunkline.cli.admin_endpoint import AdminEndpoint
from trunkline.cli.console import (
    escape_controls,
    field_lines,
    one_line,
    print_json,
)
from trunkline.cli.flow import DefinitionFile, McpConfig, Written, local_flows, operator_of
from trunkline.cli.json_input import read_json
from trunkline.cli.next_command import JSON_REPLY, REPLY, command_line, print_next
from trunkline.cli.parsing import Commands
from trunkline.clock import Ids
from trunkline.config import Settings
from trunkline.errors import FlowRefused, Misuse, StoreInUse
from trunkline.flow.assembly import FlowEngine
from trunkline.flow.client import FlowClient
from trunkline.flow.control import Control
from trunkline.flow.definition.document import Definition
from trunkline.flow.definition.drawing import Branch, edges, mermaid, tree
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.port import FlowCaller, FlowPort
from trunkline.flow.rest import shown_row
from trunkline.hub.workspace import HUB
from trunkline.net.egress import Egress, target
from trunkline.net.http_client import SocketHttpClient
from trunkline.run.runner import Runner
from trunkline.store.url import database_file
from trunkline.store.url import shown as shown_store

_LOOK_S = 0.1
_MARKS = {"done": "✓", "failed": "✗", "running": "●", "waiting": "…", "cancelled": "-"}
_COLOURS = {"done": "green", "failed": "red", "running": "cyan", "waiting": "yellow", "cancelled": "dim"}
# How a node stands once there is a row of this name.
_STATES = {
    "ScheduleNode": "running",
    "CompleteNode": "done",
    "FailNode": "failed",
    "InterruptRaised": "waiting",
    "SignalWaitStarted": "waiting",
    "TimerStarted": "waiting",
    "ExecutionCancelled": "cancelled",
}


class StoreOperations:
    """Operations on workflow runs right on a store, as `FlowClient` has a server perform them."""

    def __init__(self, port: FlowPort, signatures: SignaturePolicy) -> None:
        self._port = port
        self._control = Control(port, FlowCaller(), signatures)

    async def call(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """Perform one of the seven operations of `Control` by its name; gives its answer."""
        return await self._control.call(operation, given)

    async def events(self, execution_id: str, from_seq: int = 1, limit: int = 100) -> dict[str, Any]:
        """A page of the rows of a run."""
        rows = await self._port.rows(FlowCaller(), execution_id, from_seq=from_seq, limit=limit + 1)
        told: dict[str, Any] = {"events": [shown_row(row) for row in rows[:limit]]}
        return {**told, "next_cursor": str(rows[limit].seq)} if len(rows) > limit else told


FlowOperations = StoreOperations | FlowClient


@asynccontextmanager
async def opened(operator: Operator, *, reads: bool, manifest: str = "") -> AsyncGenerator[FlowOperations]:
    """Open the runs of a store, in this process or through the server that has the store open.

    With `reads`, no run proceeds.

    Raises:
        Misuse: the store is in memory, or it belongs to a hub that does not run.
        StoreInUse: another process has the store open and cannot be reached.
    """
    settings = operator.settings
    async with AsyncExitStack() as stack:
        beside = server_beside(settings)
        if beside is not None:
            yield await _remote(stack, beside)
            return
        try:
            operations = await (_reading(stack, settings) if reads else _acting(stack, operator, manifest))
        except StoreInUse as busy:
            operations = await _remote(stack, server_of(settings, busy))
        yield operations


async def _reading(stack: AsyncExitStack, settings: Settings) -> FlowOperations:
    store = await stack.enter_async_context(opened_store(settings, read_only=True))
    engine = FlowEngine(store.docs)
    stack.push_async_callback(engine.close)
    return StoreOperations(engine.port(Runner(store, [engine.hosted()], Ids())), SignaturePolicy())


async def _acting(stack: AsyncExitStack, operator: Operator, manifest: str) -> FlowOperations:
    settings = operator.settings
    if (Path(operator.store or ".") / HUB).is_file():
        # Only the hub has the agents that its runs delegate to.
        raise await _missing_hub(operator)
    config = operator_of(settings, manifest)
    flows = await stack.enter_async_context(local_flows(settings.store, config))
    return StoreOperations(flows.port, config.signatures)


async def _missing_hub(operator: Operator) -> Misuse:
    """Return the error for a hub that does not run.

    Raises:
        StoreInUse: the hub runs and has its SQLite store open.
    """
    if _has_database(operator.settings):
        async with opened_store(operator.settings):
            pass
    place = shown_store(operator.store) if operator.store else "this folder"
    start = start_command(operator.store or ".")
    return Misuse(f"the hub of {place} does not run; start it: {start}", hint=start)


def _has_database(settings: Settings) -> bool:
    database = database_file(settings.store)
    return database is not None and Path(database).exists()


async def _remote(stack: AsyncExitStack, endpoint: AdminEndpoint) -> FlowOperations:
    http_client = SocketHttpClient(Egress(hosts=[target(endpoint.url).host]))
    stack.push_async_callback(http_client.close)
    return FlowClient(endpoint.url, http_client, (("host", endpoint.host), ("x-api-key", endpoint.token)))


def states_of(rows: Iterable[dict[str, Any]], known: dict[str, str] | None = None) -> dict[str, str]:
    """How each node of a run stands by its rows, beginning with what was known."""
    states = dict(known or {})
    for row in rows:
        node = row["payload"].get("nodeId")
        state = _STATES.get(row["name"])
        if node and state:
            states[node] = state
        elif node and row["name"] == "ActivityFailed" and not row["payload"].get("willRetry"):
            states[node] = "failed"
    return states


def drawn(definition: Definition, states: dict[str, str] | None = None) -> Tree:
    """The nodes of a definition in the order of a walk; of a run, each with how it stands."""
    root = Tree(escape_controls(f"{definition.name} {definition.version}"))
    _hang(root, tree(definition), states)
    return root


def _hang(on: Tree, branches: tuple[Branch, ...], states: dict[str, str] | None) -> None:
    for one in branches:
        state = (states or {}).get(one.node, "") if one.node else ""
        text = f"{_MARKS[state]} {one.text}  {state}" if state else one.text
        if one.node and not state and states is not None:
            # In line with those that have a mark.
            text = f"  {text}"
        _hang(on.add(escape_controls(text), style=_COLOURS.get(state, "")), one.below, states)


async def show_tree(
    work: asyncio.Task[dict[str, Any]], operations: FlowOperations, definition: Definition, execution_id: str
) -> dict[str, Any]:
    """The result of the work on a run; while it goes on its tree is drawn on the terminal as rows come."""
    states: dict[str, str] = {}
    seen = 0
    console = Console(stderr=True, highlight=False, markup=False)
    with Live(drawn(definition, states), console=console, auto_refresh=False) as live:
        while not work.done():
            await asyncio.wait([work], timeout=_LOOK_S)
            # It may not be there yet; what is wrong is told by the work itself.
            with contextlib.suppress(Exception):
                rows = (await operations.events(execution_id, seen + 1, 1000))["events"]
                states = states_of(rows, states)
                seen = rows[-1]["seq"] if rows else seen
            live.update(drawn(definition, states), refresh=True)
    return await work


commands = Commands()
FlowWork = Callable[[FlowOperations], Awaitable[dict[str, Any]]]
RunId = Annotated[str, typer.Argument(metavar="ID", help="ID of the run.")]
RunMode = Annotated[
    str,
    typer.Option(
        metavar="in_process|host_mediated", help="Executor of the activities: the engine or the host."
    ),
]
_READS = frozenset({"status", "list"})
# Refusals because of the ID of the run.
_UNKNOWN_OR_TAKEN = ("EXECUTION_NOT_FOUND", "DUPLICATE_EXECUTION_ID")
_LABELS = {
    "execution_id": "Run", "status": "Status", "phase": "Status", "node_id": "Node",
    "current_node_id": "Node",
    "activity_id": "Activity",
    "question_text": "Question", "question_choices": "Choices", "question_schema": "Schema",
    "question_deadline": "Deadline",
    "signal_name": "Signal", "agent_id": "Agent", "delegate_input": "Input",
    "delegate_correlation_id": "Correlation",
    "child_execution_id": "Child", "parent_execution_id": "Parent", "error": "Error", "code": "Code",
    "last_error": "Error", "reason": "Reason", "result": "Result",
}  # fmt: skip


def _perform(
    operator: Operator, work: FlowWork, *, execution_id: str = "", reads: bool = False, manifest: str = ""
) -> dict[str, Any]:
    async def within() -> dict[str, Any]:
        async with opened(operator, reads=reads, manifest=manifest) as operations:
            return await work(operations)

    try:
        return asyncio.run(within())
    except FlowRefused as refused:
        run = refused.details.get("execution_id")
        if run is None:
            hint = _hint_for(refused.code, execution_id, operator.store or "")
            raise Misuse(f"{refused.message} [{refused.code}]", hint=hint) from None
        # A run of a server that failed.
        return {"execution_id": run, "status": "failed", "error": refused.message, "code": refused.code}


def _hint_for(code: str, execution_id: str, store: str) -> str:
    """Return the command that shows why an operation on a run was refused."""
    if code in _UNKNOWN_OR_TAKEN:
        return command_line("flow list", options={"--store": store})
    # The status names what the run waits for, and the command that provides it.
    return execution_id and command_line("flow status", execution_id, options={"--store": store})


def _call(operator: Operator, operation: str, given: dict[str, Any], manifest: str = "") -> dict[str, Any]:
    def work(operations: FlowOperations) -> Awaitable[dict[str, Any]]:
        return operations.call(operation, given)

    run = given.get("execution_id", "")
    return _perform(operator, work, execution_id=run, reads=operation in _READS, manifest=manifest)


def _leave(operator: Operator, found: dict[str, Any], mode: str = "", manifest: str = "") -> NoReturn:
    """Print the status of a run and how to continue it; exit with code 1 if it failed.

    Args:
        mode: how the run executes activities now, if the command knows.
        manifest: the manifest of MCP servers that the command was given.
    """
    if operator.as_json:
        print_json(found)
    else:
        shown = {**found, **{f"question_{name}": one for name, one in found.get("question", {}).items()}}
        print(*field_lines(shown, _LABELS), sep="\n")
        _show_next(found, operator.store or "", mode, manifest)
    raise typer.Exit(int(found.get("status") == "failed"))


@commands.local("graph")
def graph(
    file: DefinitionFile,
    *,
    form: Annotated[
        str, typer.Option("--format", metavar="tree|mermaid", help="Format of the drawing.")
    ] = "tree",
    run: Annotated[
        str, typer.Option("--run", metavar="ID", help="ID of a run whose node states are drawn.")
    ] = "",
    operator: Operator,
) -> None:
    """Draw a definition or a run of it: a tree in the terminal, or a Mermaid chart for a page."""
    if form not in {"tree", "mermaid"}:
        raise Misuse(f"--format is tree or mermaid, not {form!r}", hint="--format tree")
    definition = Written(file).definition()
    states = states_of(_history(operator, run, 1, None)) if run else None
    if operator.as_json and states is not None:
        print_json(states)
    elif operator.as_json:
        nodes = [{"id": node.id, "type": node.type} for node in definition.nodes.values()]
        print_json({"nodes": nodes, "edges": list(edges(definition))})
    elif form == "mermaid":
        print(mermaid(definition, states), end="")
    else:
        plain = Console(highlight=False, markup=False, color_system=None)
        plain.print(drawn(definition, states), soft_wrap=True)


@commands.local("run")
def run(
    file: DefinitionFile,
    *,
    given: Annotated[str, typer.Option("--input", metavar="JSON|@FILE", help="Input: a JSON object.")] = "{}",
    run: Annotated[str, typer.Option("--id", help="ID of the run. Default: a new one.")] = "",
    mode: RunMode = "in_process",
    mcp_config: McpConfig = "",
    operator: Operator,
) -> None:
    """Start a run and wait until it ends or waits for input; exit code 1 if it fails."""
    written, execution_id = Written(file), run or Ids().new()
    definition = written.definition()
    order = {
        "definition": written.document,
        "input": _object(given, "--input"),
        "execution_id": execution_id,
        "activity_execution_mode": mode,
    }

    async def work(operations: FlowOperations) -> dict[str, Any]:
        starting = asyncio.ensure_future(_rested(operations, order))
        if operator.as_json or not sys.stderr.isatty():
            return await starting
        return await show_tree(starting, operations, definition, execution_id)

    _leave(operator, _perform(operator, work, manifest=mcp_config), mode, mcp_config)


@commands.local("status")
def status(run: RunId, *, operator: Operator) -> None:
    """Show the status of a run."""
    _leave(operator, _call(operator, "status", {"execution_id": run}))


@commands.local("resume")
def resume(
    run: RunId,
    *,
    payload: Annotated[str, typer.Option(metavar="JSON|@FILE", help="Answer: a JSON object.")],
    mode: RunMode = "in_process",
    mcp_config: McpConfig = "",
    operator: Operator,
) -> None:
    """Answer the interrupt for which a run waits."""
    given = {"resume_payload": _object(payload, "--payload"), "activity_execution_mode": mode}
    found = _call(operator, "resume", {"execution_id": run, **given}, mcp_config)
    _leave(operator, found, mode, mcp_config)


@commands.local("submit")
def submit(
    run: RunId,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Node of the activity.")],
    *,
    result: Annotated[str, typer.Option(metavar="JSON|@FILE", help="Result: a JSON object.")] = "{}",
    error: Annotated[str, typer.Option(help="Error message, instead of a result.")] = "",
    code: Annotated[str, typer.Option(help="Code of the error.")] = "",
    activity: Annotated[
        str, typer.Option(help="ID of the activity. Required from the second visit to a delegation on.")
    ] = "",
    correlation: Annotated[str, typer.Option(help="Correlation ID of a delegation.")] = "",
    task: Annotated[str, typer.Option(help="ID of the remote task of a delegation.")] = "",
    span: Annotated[
        str, typer.Option(metavar="JSON|@FILE", help="Value of parallel_span of the activity, if it has one.")
    ] = "",
    mode: RunMode = "host_mediated",
    mcp_config: McpConfig = "",
    operator: Operator,
) -> None:
    """Submit the result of the activity for which a run waits."""
    outcome: dict[str, Any] = {"ok": False, "error": error, "code": code}
    if not error:
        outcome = {"ok": True, "result": _object(result, "--result")}
        outcome |= {"delegate_correlation_id": correlation, "external_task_id": task}
    given = {"execution_id": run, "node_id": node, "outcome": outcome, "activity_execution_mode": mode}
    if activity:
        given["activity_id"] = activity
    if span:
        given["parallel_span"] = _object(span, "--span")
    _leave(operator, _call(operator, "submit_activity", given, mcp_config), mode, mcp_config)


@commands.local("signal")
def signal(
    run: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal.")],
    *,
    payload: Annotated[
        str, typer.Option(metavar="JSON|@FILE", help="Payload of the signal: a JSON object.")
    ] = "{}",
    mode: RunMode = "in_process",
    mcp_config: McpConfig = "",
    operator: Operator,
) -> None:
    """Deliver the signal for which a run waits."""
    given = {"signal_name": name, "payload": _object(payload, "--payload"), "activity_execution_mode": mode}
    found = _call(operator, "signal", {"execution_id": run, **given}, mcp_config)
    _leave(operator, found, mode, mcp_config)


@commands.local("cancel")
def cancel(
    run: RunId,
    *,
    reason: Annotated[str, typer.Option(help="Reason, for the history.")] = "",
    operator: Operator,
) -> None:
    """Cancel a run and its open activities."""
    given = {"execution_id": run, **({"reason": reason} if reason else {})}
    _leave(operator, _call(operator, "cancel", given))


@commands.local("list")
def list_(
    *,
    phase: Annotated[str, typer.Option(help="Show only runs in this phase, such as interrupted.")] = "",
    name: Annotated[str, typer.Option(help="Show only runs of the definition with this name.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100, help="Maximum number of results.")] = 50,
    cursor: Annotated[str, typer.Option(help="Cursor of the next page.")] = "",
    operator: Operator,
) -> None:
    """List runs, the most recently changed first."""
    query: dict[str, Any] = {"phase": phase, "definition_name": name, "cursor": cursor, "limit": limit}
    found = _call(operator, "list", {key: value for key, value in query.items() if value})
    if operator.as_json:
        print_json(found)
        return
    for one in found["executions"]:
        told = [one.get(name, "") for name in ("updated_at", "phase", "execution_id", "definition_name")]
        print("  ".join([one_line(word) for word in told]).rstrip())
    if not found["executions"]:
        print("no runs")
    if "next_cursor" in found:
        given = {"--phase": phase, "--name": name, "--limit": str(limit), "--store": operator.store or ""}
        print_next(command_line("flow list", options={**given, "--cursor": found["next_cursor"]}))


@commands.local("events")
def events(
    run: RunId,
    *,
    from_seq: Annotated[int, typer.Option("--from", min=1, help="Sequence number of the first event.")] = 1,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events.")] = 1000,
    operator: Operator,
) -> None:
    """Print the history of a run, one event per line."""
    for row in _history(operator, run, from_seq, limit):
        payload = {name: one for name, one in row["payload"].items() if name != "executionId"}
        text = one_line(msgspec.json.encode(payload).decode())
        line = f"{row['seq']:>5}  {row['created_at']}  {row['kind']:<7}  {row['name']}  {text}"
        operator.print(row, line)


def _history(operator: Operator, execution_id: str, from_seq: int, limit: int | None) -> list[dict[str, Any]]:
    async def work(operations: FlowOperations) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        cursor: str | int | None = from_seq
        while cursor is not None and (limit is None or len(found) < limit):
            wanted = 1000 if limit is None else min(limit - len(found), 1000)
            page = await operations.events(execution_id, int(cursor), wanted)
            found += page["events"]
            cursor = page.get("next_cursor")
        return {"events": found}

    return _perform(operator, work, execution_id=execution_id, reads=True)["events"]


async def _rested(operations: FlowOperations, order: dict[str, Any]) -> dict[str, Any]:
    """A run that is started, once it rests, however long that takes."""
    found = await operations.call("start", order)
    while found["status"] == "running":
        found = await operations.call("start", {**order, "allow_existing_execution_id": True})
    return found


def _show_next(found: dict[str, Any], store: str, mode: str, manifest: str) -> None:
    """Print the command that continues a run, with the store, the mode and the manifest of this one."""
    run = found.get("execution_id", "")
    # A submission keeps the run in the mode of the host; the others return it to the engine.
    mediated = {"--mode": mode} if mode == "host_mediated" else {}
    place = {"--mcp-config": manifest, "--store": store}
    match found.get("status") or found.get("phase"):
        case "interrupted":
            is_text = "agent_id" in found and "schema" not in found.get("question", {})
            payload = f'{{"text": "{REPLY}"}}' if is_text else JSON_REPLY
            options = {"--payload": payload, **mediated, **place}
            print_next(command_line("flow resume", run, options=options))
        case "awaiting_signal":
            name = found["signal_name"]
            print_next(command_line("flow signal", run, name, options={**mediated, **place}))
        case "awaiting_activity":
            node = found.get("node_id") or found["current_node_id"]
            options = {"--result": JSON_REPLY, **_activity_options(found), **place}
            print_next(command_line("flow submit", run, node, options=options))
        case "running":
            print_next(command_line("flow status", run, options={"--store": store}))
        case _:
            pass


def _activity_options(found: dict[str, Any]) -> dict[str, str]:
    """Return the options of a submission that name the activity which a run awaits."""
    span = found.get("parallel_span")
    return {
        "--activity": found["activity_id"],
        # Of a run that had a delegation before, the status has its ID too.
        "--correlation": found["delegate_correlation_id"] if found.get("agent_id") else "",
        "--span": msgspec.json.encode(span).decode() if span else "",
    }


def _object(text: str, flag: str) -> dict[str, Any]:
    """Return the JSON object that an option names: JSON itself, a file behind @, or standard input."""
    found = read_json(text, flag)
    if not isinstance(found, dict):
        raise Misuse(f"{flag} requires a JSON object", hint=f"""{flag} '{{"name": "value"}}'""")
    return cast("dict[str, Any]", found)
