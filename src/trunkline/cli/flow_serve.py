"""`trunkline flow serve` and `trunkline flow mcp`: workflows over REST, and as tools over stdio."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping

from trunkline.cli.admin_endpoint import remove_admin_endpoint, write_admin_endpoint
from trunkline.cli.flow_operations import local_flows
from trunkline.cli.serve import announce, bound, is_guarded, serve
from trunkline.config import Settings, assignment, environment, exposure, load
from trunkline.errors import Misuse
from trunkline.flow.control import Control
from trunkline.flow.operator import PREFIX, OperatorConfig
from trunkline.flow.port import FlowCaller
from trunkline.http.host_check import is_loopback
from trunkline.hub.flow_host import FlowHost
from trunkline.hub.flows import operator_config
from trunkline.store.url import shown

log = logging.getLogger("trunkline")
PORT = 8787


def serve_rest(
    flags: Mapping[str, object], settings: list[str], store: str, store_path: str, manifest: str
) -> None:
    """Serve workflows until a signal.

    Raises:
        Misuse: something that was set up is wrong, or it would be open to the network without a key.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    given = {"store": store_url(store, store_path), "port": _port(), **given}
    given |= dict(assignment(one) for one in settings)
    chosen = load({}, given)
    if chosen.workers != 1:
        raise Misuse("workflows are served by one process: leave workers at 1, and start another one beside")
    config = _operator(chosen, manifest)
    host = FlowHost(config, given).host
    host.exposed = not chosen.open and not is_loopback(chosen.host)
    if host.exposed and is_guarded(chosen) is False and not config.tokens:
        raise exposure(chosen)
    sockets, token = bound(chosen), host.admin.token

    def started(port: int) -> None:
        write_admin_endpoint(chosen, port, token)
        announce(chosen, host.agents, port, guarded=host.identity.enforced)

    try:
        serve(host, sockets, started=started)
    finally:
        remove_admin_endpoint(chosen, token)


def serve_mcp(store: str, store_path: str, manifest: str) -> None:
    """Serve the seven tools until standard input ends.

    Raises:
        Misuse: something that was set up is wrong.
    """
    # Standard output is the protocol's.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s", force=True)
    chosen = load({}, {"store": store_url(store, store_path)})
    config = _operator(chosen, manifest)
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


def _operator(settings: Settings, manifest: str) -> OperatorConfig:
    return operator_config(manifest or settings.mcp_manifest, settings.flow_steps, named=bool(manifest))


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
