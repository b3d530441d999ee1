"""What a workflow needs and nobody provides: steps, models, tools and agents that are not set up here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct

from trunkline.config import load
from trunkline.errors import Misuse
from trunkline.flow.definition.diagnostics import Diagnostic, broken
from trunkline.flow.definition.document import Definition
from trunkline.flow.definition.programs import program_rules
from trunkline.flow.engine.parts import is_address
from trunkline.flow.jq.filters import Filters
from trunkline.flow.jq.pool import FilterLimits, WorkerPool
from trunkline.flow.jq.schemas import SchemaChecker
from trunkline.flow.operator import OperatorConfig, setting_of
from trunkline.hub.flows import operator_config
from trunkline.hub.module_source import find_module
from trunkline.hub.workflow_files import WorkflowFiles
from trunkline.hub.workspace import read_hub
from trunkline.mcp.manifest import FILE as MCP_FILE


class Provision(Struct, frozen=True):
    """What can execute the nodes of workflows: the operator's configuration, and the agents of a hub.

    `workflows` are the hashes of the files of a hub by name, empty for a file that is invalid. Outside the
    folder of a hub, they and `agents` are None. `folders` are searched for modules first.
    """

    config: OperatorConfig
    folders: tuple[str, ...] = ()
    agents: frozenset[str] | None = None
    workflows: Mapping[str, str] | None = None


def workspace_provision(workspace: Path, agents: Iterable[str]) -> Provision:
    """Return what can execute the workflows of a hub.

    Raises:
        Misuse: `hub.yaml` or the operator's configuration is wrong.
    """
    settings = load({"mcp_manifest": str(workspace / MCP_FILE), **read_hub(workspace).settings})
    config = operator_config(settings.mcp_manifest, settings.flow_steps, settings.flow_delegates)
    files = WorkflowFiles(workspace)
    workflows = {Path(path).stem: _hash_of(files, path) for path in files.paths()}
    return Provision(config, (str(workspace.resolve()),), frozenset(agents), workflows)


def _hash_of(files: WorkflowFiles, path: str) -> str:
    try:
        return files.load(path).definition.hash
    except Misuse:
        # Reported where the file is checked itself.
        return ""


class Unprovided(Struct, frozen=True):
    """The nodes of a definition that fail if a run executes them here.

    Attributes:
        errors: the names that a configuration, which is there, does not have.
        warnings: the nodes of a kind for which nothing is configured; another server may execute them.
        doubts: the names of workflows that no file has; they may be registered before a run needs them.
    """

    errors: list[Diagnostic]
    warnings: list[Diagnostic]
    doubts: list[Diagnostic]


def find_unprovided(document: dict[str, Any], provision: Provision) -> Unprovided:
    """Return the nodes that nothing here can execute, each with the member of the definition that says so."""
    found = Unprovided([], [], [])
    for place, node in enumerate(document["nodes"]):
        if node["type"] == "subworkflow":
            for member, text, is_certain in _subworkflow(node["config"], provision.workflows):
                one = broken(("nodes", place, "config", member), "provider", "known", text)
                (found.errors if is_certain else found.doubts).append(one)
        check = _CHECKS.get(node["type"])
        if check is None:
            continue
        for member, text, is_configured in check(node.get("config", {}), provision):
            one = broken(("nodes", place, "config", member), "provider", "known", text)
            (found.errors if is_configured else found.warnings).append(one)
    return found


# The member, what is wrong, and whether anything is configured for such nodes.
_Finding = tuple[str, str, bool]
_Check = Callable[[dict[str, Any], Provision], Iterator[_Finding]]


def _step(config: dict[str, Any], provision: Provision) -> Iterator[_Finding]:
    member = "handler" if config.get("handler") else "code_ref"
    name = config.get(member)
    if not isinstance(name, str) or not name.strip():
        yield "handler", "a step names its function in handler", True
        return
    steps = provision.config.steps
    if steps is None:
        if not provision.config.demo:
            yield member, f"no steps are configured; set {setting_of('step')}", False
        return
    if steps.has(name.strip()):
        return
    module, colon, attribute = name.strip().partition(":")
    if not colon or not steps.allows(module):
        yield member, f"no function is registered as {name!r}; {setting_of('step')} names them", True
        return
    source = find_module(module, provision.folders)
    if source is None:
        yield member, f"module {module!r} not found", True
    elif source.names is not None and attribute not in source.names:
        yield member, f"module {module!r} has no {attribute!r}", True


def _model_call(config: dict[str, Any], provision: Provision) -> Iterator[_Finding]:
    models = provision.config.models
    if models is None:
        if not provision.config.demo:
            yield "model", f"no models are configured; set {setting_of('llm_call')}", False
    elif not (config.get("model") or models.model):
        yield "model", f"name a model here or in {setting_of('llm_call')}", True


def _tool_call(config: dict[str, Any], provision: Provision) -> Iterator[_Finding]:
    manifest = provision.config.manifest
    if manifest is None:
        if not provision.config.demo:
            yield "server", f"no MCP servers are configured; set {setting_of('tool_call')}", False
    elif config["server"] not in manifest.servers:
        names = ", ".join(manifest.servers)
        yield "server", f"MCP server {config['server']!r} not found; the manifest has {names}", True


def _delegate(config: dict[str, Any], provision: Provision) -> Iterator[_Finding]:
    agent, protocol, agents = config["agent_id"], config["protocol"], provision.agents
    if agents is not None and agent in agents:
        return
    settings = provision.config
    if protocol in [one.protocol for one in settings.delegates]:
        return
    if protocol == "a2a" and settings.tasks is not None:
        return
    if protocol == "mcp" and settings.manifest is not None and settings.manifest.delegates:
        if agent not in settings.manifest.delegates:
            yield "agent_id", f"agent {agent!r} not found among the delegateAgents of the manifest", True
    elif settings.demo:
        return
    elif agents is not None:
        near = get_close_matches(str(agent), agents, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        yield "agent_id", f"agent {agent!r} not found in the files of this hub{meant}", True
    else:
        text = f"nothing is configured for delegations by {protocol!r}; set {setting_of(protocol)}"
        yield "protocol", text, False


def _subworkflow(config: dict[str, Any], workflows: Mapping[str, str] | None) -> Iterator[_Finding]:
    """Yield what is wrong with a reference; the last member says whether that is certain."""
    ref, pinned = str(config["workflow_ref"]), config.get("version_pin")
    if workflows is None or is_address(ref):
        return
    known = workflows.get(ref)
    if known is None:
        near = get_close_matches(ref, [*workflows], 1)
        text = f"workflow {ref!r} not found in the files of this hub; register it before a run needs it"
        yield "workflow_ref", text + (f", or did you mean {near[0]!r}?" if near else ""), False
    elif pinned and known and pinned != known:
        yield "version_pin", f"workflow {ref!r} has the hash {known}", True


_CHECKS: dict[str, _Check] = {
    "step": _step,
    "llm_call": _model_call,
    "tool_call": _tool_call,
    "agent_delegate": _delegate,
}


async def find_uncompilable(definition: Definition) -> list[Diagnostic]:
    """Return the errors of the filters, and of the first schema that does not compile."""
    pool = WorkerPool(FilterLimits())
    try:
        refused = await SchemaChecker(pool).find_refused(definition.document)
        faults = [] if refused is None else [refused]
        return faults + [one async for one in program_rules(definition.document, Filters(pool))]
    finally:
        await pool.close()
