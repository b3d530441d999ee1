"""Commands on runs of workflows and on servers of them: `flow run`, `flow serve`, `flow mcp` and others."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from trunkline.cli.commands.parsing import UsageCommand, prints_json
from trunkline.cli.commands.serve import StoreUrl
from trunkline.errors import Misuse

DefinitionFile = Annotated[
    str, typer.Argument(metavar="FILE|-", help="The definition, in JSON or YAML; - is standard input.")
]
RunId = Annotated[str, typer.Argument(metavar="ID", help="The id of the run.")]
RunMode = Annotated[
    str,
    typer.Option(
        metavar="in_process|host_mediated", help="Who does the activities: the engine, or who drives the run."
    ),
]
McpConfig = Annotated[
    str, typer.Option(metavar="FILE", help="The manifest of MCP servers; mcp.json unless told.")
]
EngineStore = Annotated[
    str, typer.Option("--store", metavar="URL|memory|sqlite", help="Where runs are kept; memory unless told.")
]
StorePath = Annotated[str, typer.Option(metavar="FILE", help="The file of the store `sqlite`.")]


def loaded(name: str) -> Any:
    """The module with the work of these commands; its libraries are the extras `flow` and `mcp`."""
    try:
        return import_module(f"trunkline.cli.{name}")
    except ModuleNotFoundError as error:
        raise Misuse(f"workflows need {error.name}: pip install 'trunkline[flow]'") from None


def runs(store: str | None, *, manifest: str = "", as_json: bool) -> Any:
    """The commands on the runs of a store."""
    return loaded("flow_runs").FlowRuns(store, manifest=manifest, as_json=as_json)


def _object(text: str, flag: str) -> dict[str, Any]:
    return loaded("flow_runs").read_object(text, flag)


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)


@prints_json
def flow_run(
    file: DefinitionFile,
    *,
    given: Annotated[str, typer.Option("--input", metavar="JSON|@FILE", help="The input, an object.")] = "{}",
    run: Annotated[str, typer.Option("--id", help="The id of the run; a new one unless told.")] = "",
    mode: RunMode = "in_process",
    mcp_config: McpConfig = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Start a run and wait until it rests; exit code 1 if it failed. A terminal shows it node by node."""
    _leave(runs(store, manifest=mcp_config, as_json=as_json).run(file, given, run, mode))


@prints_json
def flow_status(run: RunId, *, store: StoreUrl = None, as_json: bool) -> None:
    """Say where a run stands."""
    runs(store, as_json=as_json).call("status", {"execution_id": run})


@prints_json
def flow_resume(
    run: RunId,
    *,
    payload: Annotated[str, typer.Option(metavar="JSON|@FILE", help="The answer, an object.")],
    mode: RunMode = "in_process",
    mcp_config: McpConfig = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Answer the interrupt at which a run waits."""
    answer = {"resume_payload": _object(payload, "--payload"), "activity_execution_mode": mode}
    operations = runs(store, manifest=mcp_config, as_json=as_json)
    _leave(operations.call("resume", {"execution_id": run, **answer}))


@prints_json
def flow_submit(
    run: RunId,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node whose activity was done.")],
    *,
    result: Annotated[str, typer.Option(metavar="JSON|@FILE", help="What it gave, an object.")] = "{}",
    error: Annotated[str, typer.Option(help="Why it failed, in the place of a result.")] = "",
    code: Annotated[str, typer.Option(help="The code of the failure.")] = "",
    correlation: Annotated[str, typer.Option(help="The correlation id of a delegation.")] = "",
    task: Annotated[str, typer.Option(help="The id of the task at the agent that did a delegation.")] = "",
    span: Annotated[
        str, typer.Option(metavar="JSON|@FILE", help="The parallel_span of the activity, if it has one.")
    ] = "",
    mode: RunMode = "host_mediated",
    mcp_config: McpConfig = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Hand in the outcome of the activity for which a run waits."""
    outcome: dict[str, Any] = {"ok": False, "error": error, "code": code}
    if not error:
        outcome = {"ok": True, "result": _object(result, "--result")}
        outcome |= {"delegate_correlation_id": correlation, "external_task_id": task}
    given = {"execution_id": run, "node_id": node, "outcome": outcome, "activity_execution_mode": mode}
    if span:
        given["parallel_span"] = _object(span, "--span")
    _leave(runs(store, manifest=mcp_config, as_json=as_json).call("submit_activity", given))


@prints_json
def flow_signal(
    run: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal.")],
    *,
    payload: Annotated[str, typer.Option(metavar="JSON|@FILE", help="What comes with it, an object.")] = "{}",
    mode: RunMode = "in_process",
    mcp_config: McpConfig = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Deliver the signal for which a run waits."""
    given = {"signal_name": name, "payload": _object(payload, "--payload"), "activity_execution_mode": mode}
    operations = runs(store, manifest=mcp_config, as_json=as_json)
    _leave(operations.call("signal", {"execution_id": run, **given}))


@prints_json
def flow_cancel(
    run: RunId,
    *,
    reason: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Stop a run, and whatever it has others do."""
    given = {"execution_id": run, **({"reason": reason} if reason else {})}
    runs(store, as_json=as_json).call("cancel", given)


@prints_json
def flow_list(
    *,
    phase: Annotated[str, typer.Option(help="Only those of this phase, such as interrupted.")] = "",
    name: Annotated[str, typer.Option(help="Only runs of the definition of this name.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 50,
    cursor: Annotated[str, typer.Option(help="Go on behind a former page.")] = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """List runs, the one that moved last first."""
    query: dict[str, Any] = {"phase": phase, "definition_name": name, "cursor": cursor, "limit": limit}
    runs(store, as_json=as_json).list({key: value for key, value in query.items() if value})


@prints_json
def flow_events(
    run: RunId,
    *,
    from_seq: Annotated[int, typer.Option("--from", min=1, help="The first row.")] = 1,
    limit: Annotated[int, typer.Option(min=1, help="How many rows at most.")] = 1000,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Print the history of a run, a row on each line."""
    runs(store, as_json=as_json).events(run, from_seq, limit)


def flow_serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to bind to; loopback unless told.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind to; 8787 unless told.")] = None,
    store: EngineStore = "",
    store_path: StorePath = "",
    mcp_config: McpConfig = "",
    key: Annotated[list[str] | None, typer.Option(help="A key that callers must send; repeatable.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as name=value.")] = None,
) -> None:
    """Serve workflows over REST until interrupted, without any agents."""
    flags: dict[str, object] = {"host": host, "port": port, "keys": tuple(key) if key else None}
    loaded("flow_serve").serve_rest(flags, settings or [], store, store_path, mcp_config)


def flow_mcp(*, store: EngineStore = "", store_path: StorePath = "", mcp_config: McpConfig = "") -> None:
    """Serve workflows to an MCP client over standard input and output, as seven tools."""
    loaded("flow_serve").serve_mcp(store, store_path, mcp_config)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    for name, command in {
        "run": flow_run,
        "status": flow_status,
        "resume": flow_resume,
        "submit": flow_submit,
        "signal": flow_signal,
        "cancel": flow_cancel,
        "list": flow_list,
        "events": flow_events,
        "serve": flow_serve,
        "mcp": flow_mcp,
    }.items():
        app.command(name, cls=UsageCommand)(command)
