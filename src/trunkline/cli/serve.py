"""`trunkline serve`: find the agents, check what was asked for, and serve in one process or in several."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from trunkline.agent.agent import Agent
from trunkline.auth.key_store import has_keys
from trunkline.cli.admin_endpoint import remove_admin_endpoint, write_admin_endpoint
from trunkline.cli.console import escape_controls
from trunkline.config import Settings, assignment, exposure, strangers
from trunkline.errors import Misuse, StoreError
from trunkline.host import Host
from trunkline.http.host_check import is_loopback
from trunkline.http.server import FAILED, HttpServer, ServerLimits
from trunkline.http.workers import WorkerPlan, Workers, bind
from trunkline.server.router import AGENTS
from trunkline.server.streams import TICK_S
from trunkline.store.url import database_file, shown, store_from_url
from trunkline.telemetry.logs import set_up_logs

log = logging.getLogger("trunkline")
# The writer thread needs the interpreter a few times per group; the default of 5 ms would be its latency.
SWITCH_S = 0.001


class WorkerOrder(Struct, frozen=True):
    """What a worker is to serve, and the sockets it inherits."""

    targets: Sequence[str]
    flags: Mapping[str, object]
    settings: Sequence[str]
    sockets: Sequence[int] = ()


def find(target: str) -> Agent:
    """The agent named by module:attribute.

    Raises:
        Misuse: there is none; the message says what was looked for.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or module_name.startswith(".") or not attribute:
        raise Misuse(f"{target!r} should be module:agent, for example scribe:agent")
    if module_name.endswith(".py"):
        meant = ".".join(Path(module_name).with_suffix("").parts)
        raise Misuse(f"{target!r} names a file; did you mean {meant}:{attribute}?")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that is there but imports one that is not has a traceback of its own to show.
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise Misuse(f"there is no module {module_name!r} here or among the installed ones") from None
        raise _broken(module_name, error) from error
    except Exception as error:  # noqa: BLE001 - told with the frames of the module
        raise _broken(module_name, error) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Agent):
        agents = [name for name, each in vars(module).items() if isinstance(each, Agent)]
        meant = f"; did you mean {module_name}:{agents[0]}?" if agents else ""
        raise Misuse(f"{module_name} has no Agent named {attribute!r}{meant}")
    if not found.skills:
        raise Misuse(f"{target} has no skill; decorate a function with @{attribute}.skill")
    return found


def _broken(module_name: str, error: Exception) -> Misuse:
    """The error of a module that does not import, once its own frames are on standard error."""
    # Those of the import itself, and ours, say nothing to its author.
    inner = (str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen importlib")
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(inner)]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    print(escape_controls("".join(lines)), end="", file=sys.stderr)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return Misuse(f"{module_name} does not import{where}: {type(error).__name__}: {error}")


def run(targets: Sequence[str], flags: Mapping[str, object], settings: list[str]) -> None:
    """Serve until a signal, in this process or in as many as are asked for.

    Raises:
        Misuse: the agent or a setting is wrong, or it would be open to the network without a key.
    """
    host = prepare(targets, flags, settings)
    chosen = host.settings
    if host.exposed and is_guarded(chosen) is False:
        # Before the port is bound. Where it cannot be told, the start itself will tell.
        raise exposure(chosen)
    if chosen.workers == 1:
        sockets, token = bound(chosen), host.admin.token
        try:
            serve(host, sockets, started=partial(_started, host))
        finally:
            remove_admin_endpoint(chosen, token)
        return
    _check_shared(host)
    set_up_logs(chosen.log_level, chosen.log_format)
    guarded = is_guarded(chosen) is not False
    plan = WorkerPlan(
        "trunkline.cli.worker",
        lambda sockets: msgspec.json.encode(WorkerOrder(targets, flags, settings, sockets)),
        chosen.host,
        chosen.port,
        chosen.workers,
        server_limits(chosen).end_s,
    )
    workers = Workers(plan, partial(announce, chosen, host.agents, guarded=guarded))
    raise SystemExit(asyncio.run(workers.run()))


def prepare(targets: Sequence[str], flags: Mapping[str, object], settings: list[str]) -> Host:
    """The host of the agents that are named."""
    given = {**flags, **dict(assignment(one) for one in settings)}
    host = Host([(find(target), given) for target in targets])
    chosen = host.settings
    host.exposed = not chosen.open and not is_loopback(chosen.host)
    return host


def serve(
    host: Host,
    sockets: list[socket.socket],
    *,
    started: Callable[[int], None],
    lifeline: socket.socket | None = None,
) -> None:
    """Serve in this process until a signal, or until the other end of the lifeline is gone."""
    chosen = host.settings
    set_up_logs(chosen.log_level, chosen.log_format)
    sys.setswitchinterval(SWITCH_S)
    # What is loaded by now stays; a young generation of 700 would be collected every few requests.
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)

    def listening(port: int) -> None:
        host.callbacks.own = own_address(chosen.host, port)
        host.announcement.listening(host.callbacks.own)
        started(port)

    server = HttpServer(
        host,
        server_limits(chosen),
        started=listening,
        lifeline=lifeline,
    )
    server.run(sockets)
    if not server.started:
        raise SystemExit(FAILED)


def server_limits(settings: Settings) -> ServerLimits:
    """The limits of the HTTP server that the settings ask for."""
    # A stream notices by itself first, and says after which event it was cut.
    write_s = settings.write_limit + 2 * TICK_S
    end_s = settings.drain_limit + settings.cancel_limit
    return ServerLimits(settings.connection_limit, write_s, end_s, settings.unread_limit)


def own_address(bound: str, port: int) -> str:
    """The address by which others on this machine reach a server that is bound so."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(bound, bound)
    return f"http://[{name}]:{port}" if ":" in name and "[" not in name else f"http://{name}:{port}"


def _started(host: Host, port: int) -> None:
    settings = host.settings
    write_admin_endpoint(settings, port, host.admin.token)
    announce(settings, host.agents, port, guarded=host.identity.enforced)


def is_guarded(settings: Settings) -> bool | None:
    """Whether callers must say who they are: by a setting, or because the store holds keys.

    None if the store cannot be read before it is opened to serve.
    """
    if settings.keys or settings.issuers:
        return True
    file = database_file(settings.store)
    if settings.store == "memory:" or (file is not None and not Path(file).exists()):
        return False
    return asyncio.run(_holds_keys(settings))


async def _holds_keys(settings: Settings) -> bool | None:
    store = store_from_url(settings.store, read_only=True)
    try:
        await store.open()
        return await has_keys(store.docs)
    except StoreError:
        return None
    finally:
        await store.close()


def bound(settings: Settings) -> list[socket.socket]:
    """The sockets that are served.

    Raises:
        Misuse: the address cannot be had.
    """
    # Before the store is opened: who cannot serve must not take over what others left.
    try:
        return bind(settings.host, settings.port)
    except OSError as error:
        place, why = f"{settings.host}:{settings.port}", error.strerror or error
        raise Misuse(f"cannot listen on {place}: {why}; choose another --host or --port") from None


def _check_shared(host: Host) -> None:
    if host.store.shared:
        return
    settings = host.settings
    why = "ends with its process" if settings.store == "memory:" else "is a file for one process"
    raise Misuse(
        f"--workers {settings.workers} needs a store that processes share, and {settings.store} {why}: "
        "use --store postgresql://USER@HOST/DATABASE, or --workers 1"
    )


def announce(settings: Settings, agents: Sequence[str], port: int, *, guarded: bool) -> None:
    """Say where each agent is served; the first one is at the origin."""
    base = settings.public_url.rstrip("/") or f"http://{settings.host}:{port}"
    log.info("serving %s/a2a card=%s/.well-known/agent-card.json store=%s", base, base, shown(settings.store))
    for agent in agents[1:]:
        place = f"{base}{AGENTS}{agent}"
        log.info("serving %s/a2a card=%s/.well-known/agent-card.json", place, place)
    if not guarded:
        who = "only this machine can reach it" if is_loopback(settings.host) else "anybody can use it"
        log.info("no key is set: %s", who)
    if not (settings.public_url or settings.allowed_hosts or is_loopback(settings.host)):
        log.info(
            "no public URL is set: the card names the address that a caller connects to; "
            "where callers use a name, give it by --public-url"
        )
    for name in strangers():
        log.warning("setting.unknown variable=%s", name)
    if settings.dev:
        log.warning("dev: callers see exception texts, and webhooks may go to this machine")
