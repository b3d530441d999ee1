"""`trunkline flow serve` and `trunkline flow mcp`: workflows over REST, and as tools over stdio."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Annotated

import typer

from trunkline.cli.flow_operations import McpConfig, local_flows, operator_of
from trunkline.cli.parsing import Commands, Several
from trunkline.cli.serve import AnySetting, BindHost, assigned, serve_alone
from trunkline.config import Settings, environment, load
from trunkline.errors import Misuse
from trunkline.flow.control import Control
from trunkline.flow.operator import PREFIX, OperatorConfig
from trunkline.flow.port import FlowCaller
from trunkline.hub.flow_host import FlowHost
from trunkline.store.url import shown

log = logging.getLogger("trunkline")
commands = Commands()
PORT = 8787
EngineStore = Annotated[
    str, typer.Option("--store", metavar="URL|memory|sqlite", help="Where runs are kept; memory unless told.")
]
StorePath = Annotated[str, typer.Option(metavar="FILE", help="The file of the store `sqlite`.")]


@commands.local("serve")
def serve(
    *,
    host: BindHost = None,
    port: Annotated[int | None, typer.Option(help="Port to bind to; 8787 unless told.")] = None,
    store: EngineStore = "",
    store_path: StorePath = "",
    mcp_config: McpConfig = "",
    key: Annotated[Several, typer.Option(help="A key that callers must send; repeatable.")] = None,
    settings: AnySetting = None,
) -> None:
    """Serve workflows over REST until interrupted, without any agents."""
    place = {"host": host, "port": _port() if port is None else port, "store": store_url(store, store_path)}
    given = {**place, "keys": key or None, **assigned(settings)}
    chosen = load({}, given)
    if chosen.workers != 1:
        raise Misuse("workflows are served by one process: leave workers at 1, and start another one beside")
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
    from mcp.server.stdio import stdio_server

    from trunkline.flow.mcp_server import FlowTools

    if config.tokens:
        log.warning("flow.tokens_unused reason=stdio: whoever starts this process may do everything")
    async with local_flows(settings.store, config) as flows:
        log.info("flow.mcp store=%s", shown(settings.store))
        served = FlowTools(Control(flows.port, FlowCaller(), config.signatures)).server()
        async with stdio_server() as (read, write):
            await served.run(read, write, served.create_initialization_options())


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
