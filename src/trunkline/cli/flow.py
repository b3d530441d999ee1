"""`trunkline flow validate|sign|serve|mcp`: definitions before anything runs them, and servers of runs."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.cli.console import one_line, print_json, print_notice
from trunkline.cli.parsing import Commands, Several
from trunkline.cli.serve import AnySetting, BindHost, assigned, serve_alone
from trunkline.config import Settings, environment, load
from trunkline.errors import FlowInvalid, Misuse
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.files import LIST, CatalogueFiles
from trunkline.flow.control import Control
from trunkline.flow.definition.diagnostics import Diagnostic, told
from trunkline.flow.definition.document import Definition
from trunkline.flow.definition.graph import find_unknown_nodes
from trunkline.flow.definition.read import read_definition
from trunkline.flow.definition.signing import private_key, sign, written_public_key
from trunkline.flow.definition.source import describe_invalid, line_of, positions, read_source
from trunkline.flow.definition.warnings import warnings
from trunkline.flow.local import LocalFlows
from trunkline.flow.operator import PREFIX, FlowExecutors, OperatorConfig
from trunkline.flow.port import FlowCaller
from trunkline.hub.flow_host import FlowHost
from trunkline.hub.flows import EVERYWHERE, operator_config
from trunkline.hub.provision import Provision, find_uncompilable, find_unprovided, workspace_provision
from trunkline.hub.workspace import HUB
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient
from trunkline.run.node import Limits
from trunkline.store.url import shown
from trunkline.telemetry.logs import set_up_logs
from trunkline.yaml_reader import FILE_LIMIT, YamlPosition, read_text

log = logging.getLogger("trunkline")
commands = Commands()
DefinitionFile = Annotated[
    str, typer.Argument(metavar="FILE|-", help="Definition in JSON or YAML, or - for standard input.")
]
PORT = 8787
EngineStore = Annotated[
    str, typer.Option("--store", metavar="URL|memory|sqlite", help="Store of the runs. Default: memory.")
]
StorePath = Annotated[str, typer.Option(metavar="FILE", help="File of the store `sqlite`.")]
McpConfig = Annotated[str, typer.Option(metavar="FILE", help="Manifest of MCP servers. Default: mcp.json.")]
# What waits for somebody is let go of soon: the command is over then.
_STDIN = "standard input"
_LIMITS = Limits(park_after_s=0.05)


class Written:
    """A definition in a file or on standard input."""

    def __init__(self, file: str) -> None:
        """Read it.

        Raises:
            Misuse: there is none, or it is neither JSON nor YAML.
        """
        self.name = _STDIN if file == "-" else file
        self._text = _standard_input() if file == "-" else _file(file)
        self.document = read_source(self._text, self.name)

    def definition(self) -> Definition:
        """Return the definition.

        Raises:
            Misuse: it breaks a rule; the message names the file and the line.
        """
        try:
            return read_definition(self.document)
        except FlowInvalid as error:
            hint = shlex.join(["trunkline", "flow", "validate", self.name])
            text = describe_invalid(self._text, self.name, self.document, error)
            raise Misuse(text, hint="" if self.name == _STDIN else hint) from None

    def line(self, one: Diagnostic) -> str:
        """A diagnostic with the line where it applies."""
        at = self._positions
        place = self.name if at is None else f"{self.name}, line {line_of(at, one)}"
        params = msgspec.json.encode(one.params).decode() if one.params else ""
        return f"{place}: {one} [{' '.join(word for word in (one.keyword, one.schema_path, params) if word)}]"

    @cached_property
    def _positions(self) -> YamlPosition | None:
        return positions(self._text, self.name)


@commands.local("validate")
def validate(
    file: DefinitionFile,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    hub: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of the hub that runs it. Default: this folder.")
    ] = "",
    as_json: bool,
) -> None:
    """Report what is wrong with a definition and what it needs that is not set up here.

    Exit code 1 if anything is wrong, 2 if the definition cannot be read.
    """
    written = Written(file)
    definition: Definition | None = None
    doubts: list[Diagnostic] = []
    try:
        definition = read_definition(written.document)
        wrong = find_unknown_nodes(definition.document) + asyncio.run(find_uncompilable(definition))
        unprovided = find_unprovided(definition.document, _provision(hub))
        wrong += unprovided.errors
        doubts = [*warnings(definition.document), *unprovided.warnings, *unprovided.doubts]
    except FlowInvalid as error:
        wrong = list(cast("list[Diagnostic]", error.diagnostics))
    failed = bool(wrong or (strict and doubts))
    if as_json:
        said: dict[str, Any] = {"valid": not failed, "errors": wrong, "warnings": doubts}
        if definition is not None:
            said |= {"name": definition.name, "version": definition.version, "hash": definition.hash}
        print_json(said)
        raise typer.Exit(int(failed))
    for one in told(written.document, wrong) or wrong:
        print_notice("Error", written.line(one))
    for one in doubts:
        print_notice("Error" if strict else "Warning", written.line(one))
    if definition is not None and not failed:
        print(f"OK: {one_line(definition.name)} {one_line(definition.version)}, {definition.hash}")
    raise typer.Exit(int(failed))


@commands.local("sign")
def sign_definition(
    file: DefinitionFile,
    *,
    key: Annotated[str, typer.Option(metavar="FILE", help="Ed25519 private key in PEM format.")],
    key_id: Annotated[str, typer.Option(help="ID of the key on servers.")],
) -> None:
    """Sign a definition and print it; the public key is written to standard error."""
    written = Written(file)
    written.definition()
    private = private_key(_file(key), key)
    print_json(sign(cast("dict[str, Any]", written.document), private, key_id))
    print_notice("Public key", msgspec.json.encode({key_id: written_public_key(private)}).decode())


def _provision(hub: str) -> Provision:
    """Return what can execute workflows here: the environment, and the files of a hub in this folder."""
    workspace = Path(hub or ".")
    if hub and not any([(workspace / name).is_file() for name in (HUB, LIST)]):
        raise Misuse(f"{hub} is not the folder of a hub; it has neither {HUB} nor {LIST}")
    # Only a folder that was named may lack hub.yaml: a file agents.yaml can belong to any program.
    if hub or (workspace / HUB).is_file():
        catalogue = Catalogue()
        CatalogueFiles(workspace, _variable, catalogue.take_files).check()
        names = [one.name for one in catalogue.entries().values() if one.serves(DEFAULT_TENANT)]
        return workspace_provision(workspace, names)
    return Provision(operator_of(load({}), ""), (str(Path.cwd()),))


def _variable(name: str) -> str | None:
    return environment(name).get(name) or None


def _file(path: str) -> str:
    try:
        return read_text(Path(path))
    except FileNotFoundError:
        # A registered workflow of a hub is named by its file without the ending.
        meant = next((str(one) for one in Path("workflows").glob("*.*") if one.stem == path), "")
        folder = shlex.quote(str(Path(meant or path).parent))
        text = f"{path}: no such file or directory" + (f"; did you mean {meant}?" if meant else "")
        raise Misuse(text, hint=f"ls -l {folder}") from None


def _standard_input() -> str:
    try:
        found = sys.stdin.buffer.read(FILE_LIMIT + 1)
        if len(found) > FILE_LIMIT:
            raise Misuse(f"standard input has more than {FILE_LIMIT >> 20} MiB")
        return found.decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"standard input: {error}") from None


@commands.local("serve")
def serve(
    *,
    host: BindHost = None,
    port: Annotated[int | None, typer.Option(help="Port to bind. Default: 8787.")] = None,
    store: EngineStore = "",
    store_path: StorePath = "",
    mcp_config: McpConfig = "",
    key: Annotated[Several, typer.Option(help="Key that callers must send; repeatable.")] = None,
    settings: AnySetting = None,
) -> None:
    """Serve workflows over REST until interrupted, without any agents."""
    place = {"host": host, "port": _port() if port is None else port, "store": store_url(store, store_path)}
    given = {**place, "keys": key or None, **assigned(settings)}
    chosen = load({}, given)
    if chosen.workers != 1:
        raise Misuse("workflows are served by one process: leave workers at 1, and start another one beside")
    set_up_logs(chosen.log_level, chosen.log_format)
    config = operator_of(chosen, mcp_config)
    serve_alone(FlowHost(config, given).host, has_keys=bool(config.tokens))


@commands.local("mcp")
def serve_mcp(*, store: EngineStore = "", store_path: StorePath = "", mcp_config: McpConfig = "") -> None:
    """Serve workflows to an MCP client over standard input and output, as seven tools."""
    # Standard output is the protocol's.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s", force=True)
    chosen = load({}, {"store": store_url(store, store_path)})
    config = operator_of(chosen, mcp_config)
    try:
        asyncio.run(_serve_tools(chosen, config))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


async def _serve_tools(settings: Settings, config: OperatorConfig) -> None:
    try:
        from mcp.server.stdio import stdio_server

        from trunkline.flow.mcp_server import FlowTools
    except ModuleNotFoundError as error:
        hint = "pip install 'trunkline[mcp]'"
        raise Misuse(f"this needs {error.name}: {hint}", hint=hint) from None
    if config.tokens:
        log.warning("flow.tokens_unused reason=%a", "the client of a stdio server has every right")
    async with local_flows(settings.store, config) as flows:
        log.info("flow.mcp store=%s", shown(settings.store))
        served = FlowTools(Control(flows.port, FlowCaller(), config.signatures)).server()
        async with stdio_server() as (read, write):
            await served.run(read, write, served.create_initialization_options())


def operator_of(settings: Settings, manifest: str) -> OperatorConfig:
    """Return what the operator has set up; a manifest that is named wins over the one of the settings."""
    # Modules of steps stand in the current folder, or are installed.
    sys.path.insert(0, str(Path.cwd()))
    place = manifest or settings.mcp_manifest
    return operator_config(place, settings.flow_steps, settings.flow_delegates, named=bool(manifest))


@asynccontextmanager
async def local_flows(store: str, config: OperatorConfig) -> AsyncGenerator[LocalFlows]:
    """An engine of this process on a store, with what the operator has set up."""
    http_client = SocketHttpClient(Egress(networks=EVERYWHERE))
    executors = FlowExecutors(config, http_client)
    try:
        flows = LocalFlows(
            store,
            limits=_LIMITS,
            signatures=config.signatures,
            activities=executors.activities,
            delegates=executors.delegates,
        )
        async with flows:
            yield flows
    finally:
        await executors.close()
        await http_client.close()


def store_url(store: str, path: str) -> str:
    """The store that is meant: by a URL, or by the words that other engines know.

    Raises:
        Misuse: `sqlite` is named without a file.
    """
    known = environment(PREFIX)
    store = store or known.get(f"{PREFIX}STORE", "").strip() or "memory"
    path = path or known.get(f"{PREFIX}STORE_PATH", "").strip()
    if store == "memory":
        return "memory:"
    if store != "sqlite":
        return store
    if not path:
        raise Misuse(f"the store sqlite needs a file: give --store-path or {PREFIX}STORE_PATH")
    return "memory:" if path == ":memory:" else f"sqlite:///{path}"


def _port() -> int:
    text = environment(PREFIX).get(f"{PREFIX}REST_PORT", "").strip()
    if not text:
        return PORT
    if not text.isdigit() or not 0 <= int(text) < 65536:
        raise Misuse(f"{PREFIX}REST_PORT is a port, not {text!r}")
    return int(text)
