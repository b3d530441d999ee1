"""`trunkline serve`: find the agents, check what was asked for, and serve in one process or in several."""

from __future__ import annotations

import asyncio
import errno
import gc
import importlib
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

import msgspec
import typer
from msgspec import Struct

from trunkline.agent.agent import Agent
from trunkline.auth.key_store import has_keys
from trunkline.cli.admin_endpoint import own_name, remove_admin_endpoint, write_admin_endpoint
from trunkline.cli.console import escape_controls, print_notice
from trunkline.cli.failure import print_error
from trunkline.cli.parsing import Commands, Several
from trunkline.config import Settings, assignment, exposure, find_unknown_variables
from trunkline.errors import Misuse, StoreError, TrunklineError
from trunkline.host import Host
from trunkline.hosting import settings_of
from trunkline.http.host_check import is_loopback
from trunkline.http.server import FAILED, HttpServer, ServerLimits
from trunkline.http.workers import Workers, bind
from trunkline.server.router import AGENTS
from trunkline.server.streams import TICK_S
from trunkline.store.url import database_file, shown, store_from_url
from trunkline.telemetry.logs import set_up_logs

log = logging.getLogger("trunkline")
commands = Commands()
BindHost = Annotated[str | None, typer.Option(help="Address to bind. Default: 127.0.0.1.")]
AnySetting = Annotated[
    Several,
    typer.Option("--set", help="Setting as name=value; `config show --server` lists all; repeatable."),
]
# The writer thread needs the interpreter a few times per group; the default of 5 ms would be its latency.
SWITCH_S = 0.001
# By then the cards of agents elsewhere have been read.
SETTLED_S = 60.0
_LOOK_S = 0.5
_RELOAD = "--reload"
# The hint where no agent is known that may be meant.
_NEW = "trunkline new NAME"


class ServerFlags(TypedDict, total=False):
    """Options of all commands that serve agents; each is the setting of its name."""

    host: BindHost
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 selects a free port. Default: 8000.")]
    store: Annotated[
        str | None, typer.Option(help="URL of the store: sqlite:///FILE, postgresql://… or memory:")
    ]
    keys: Annotated[Several, typer.Option("--key", help="Key that callers must send; repeatable.")]
    public_url: Annotated[str | None, typer.Option(help="Public URL of the server, as the card states it.")]
    open: Annotated[
        bool | None, typer.Option("--open", help="Accept requests from other machines without a key.")
    ]
    dev: Annotated[
        bool | None,
        typer.Option(help="Return exception texts to callers, and allow webhooks to this machine."),
    ]
    log_level: Annotated[str | None, typer.Option(help="Log level: debug, info, warning or error.")]
    log_format: Annotated[str | None, typer.Option(help="Log format: text or json.")]
    metrics: Annotated[bool | None, typer.Option("--metrics", help="Serve Prometheus metrics at /metrics.")]


class AgentServerFlags(ServerFlags, total=False):
    """Options of `trunkline serve`."""

    workers: Annotated[
        int | None, typer.Option(help="Number of processes; more than one requires PostgreSQL.")
    ]
    announce: Annotated[
        str | None, typer.Option(metavar="HUB_URL", help="Announce the agents to the hub at this URL.")
    ]


class WorkerOrder(Struct, frozen=True):
    """What a worker is to serve, and the sockets it inherits."""

    targets: Sequence[str]
    given: Mapping[str, object]
    sockets: Sequence[int]


def find(target: str) -> Agent:
    """Return the agent named by module:attribute.

    Raises:
        Misuse: the module or the agent does not exist; the message names the closest one.
    """
    module_name, _, attribute = target.partition(":")
    _check_target(target, module_name, attribute)
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that is there but imports one that is not has a traceback of its own to show.
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise _missing_module(module_name, attribute) from None
        raise _broken(module_name, error) from error
    except (Exception, SystemExit) as error:  # noqa: BLE001 - told with the frames of the module
        raise _broken(module_name, error) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Agent):
        agents = [name for name, each in vars(module).items() if isinstance(each, Agent)]
        raise _with_suggestion(
            f"{module_name} has no Agent named {attribute!r}", f"{module_name}:{agents[0]}" if agents else ""
        )
    if not found.skills:
        raise Misuse(f"{target} has no skill; decorate a function with @{attribute}.skill", hint=_NEW)
    return found


def _check_target(target: str, module_name: str, attribute: str) -> None:
    """Raise Misuse unless a target has the form MODULE:AGENT."""
    path = Path(module_name)
    if path.suffix == ".py":
        is_outside = path.is_absolute() or ".." in path.parts
        folder, path = (path.parent, Path(path.name)) if is_outside else (None, path)
        meant = f"{'.'.join(path.with_suffix('').parts)}:{attribute or 'AGENT'}"
        move = f"cd {shlex.quote(str(folder))} && " if folder else ""
        hint = f"{move}trunkline serve {meant}"
        raise Misuse(f"{target!r} names a file; did you mean {meant}?", hint=hint)
    if module_name and attribute and not module_name.startswith("."):
        return
    dotted, dot, last = module_name.strip(".").rpartition(".")
    if dot and not attribute and not Path(*dotted.split("."), f"{last}.py").is_file():
        module_name, attribute = dotted, last
    meant = f"{module_name.strip('.') or 'MODULE'}:{attribute or 'AGENT'}"
    text = f"{target!r} should be MODULE:AGENT, for example scribe:agent"
    raise Misuse(text, hint=shlex.join(["trunkline", "serve", meant]))


def _missing_module(name: str, attribute: str) -> Misuse:
    """Return the error of a module that does not exist; it names the closest one of this folder."""
    near = get_close_matches(name, [path.stem for path in Path().glob("*.py")], 1)
    text = f"there is no module {name!r} here or among the installed ones"
    return _with_suggestion(text, f"{near[0]}:{attribute}" if near else "")


def _with_suggestion(text: str, target: str) -> Misuse:
    if not target:
        return Misuse(text, hint=_NEW)
    return Misuse(f"{text}; did you mean {target}?", hint=f"trunkline serve {target}")


def _broken(module_name: str, error: BaseException) -> Misuse:
    """Print the module's own frames of an error at import, and return the error to raise."""
    # The frames of the import itself and of this package do not help the author of the module.
    inner = (str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen importlib")
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(inner)]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    print(escape_controls("".join(lines)), end="", file=sys.stderr)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    text = f"{module_name} does not import{where}: {type(error).__name__}: {error}"
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    # To install a package whose name is a typing mistake would run the code of a stranger.
    known = [*[path.stem for path in Path().glob("*.py")], "trunkline", *sys.stdlib_module_names]
    if frames and (near := get_close_matches(missing, known, 1, 0.8)):
        line = shlex.join(["sed", "-n", f"{frames[-1].lineno}p", frames[-1].filename])
        return Misuse(f"{text}; did you mean {near[0]!r}?", hint=line)
    return Misuse(text, hint=f"pip install {missing}" if missing else f"python -m {module_name}")


@commands.local("serve")
def serve(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:AGENT...",
            help="Agents to serve, such as scribe:agent; the first one is served at /.",
        ),
    ],
    *,
    settings: AnySetting = None,
    reload: Annotated[
        bool,
        typer.Option(_RELOAD, help="Restart when a Python file in this folder changes; for development."),
    ] = False,
    **flags: Unpack[AgentServerFlags],
) -> None:
    """Serve agents over HTTP until interrupted."""
    if reload:
        raise typer.Exit(run_reloading(sys.argv[1:]))
    _run(targets, {**flags, **assigned(settings)})


def _run(targets: Sequence[str], given: Mapping[str, object]) -> None:
    host = _host(targets, given)
    chosen = host.settings
    if chosen.workers == 1:
        serve_alone(host)
        return
    refuse_exposure(host)
    _check_shared(host)
    guarded = is_guarded(chosen) is not False
    workers = Workers(
        "trunkline.cli.serve",
        lambda sockets: msgspec.json.encode(WorkerOrder(targets, given, sockets)),
        chosen.host,
        chosen.port,
        chosen.workers,
        server_limits(chosen).end_s,
        partial(log_addresses, chosen, host.agents, guarded=guarded),
    )
    raise SystemExit(asyncio.run(workers.run()))


def assigned(settings: Sequence[str] | None) -> dict[str, object]:
    """Settings by name, as `--set` gives them.

    Raises:
        Misuse: one is no assignment.
    """
    return dict(assignment(one) for one in settings or ())


def _host(targets: Sequence[str], given: Mapping[str, object]) -> Host:
    agents = [(find(target), given) for target in targets]
    # Before the host is built, which logs the settings that it ignores.
    first = settings_of(agents)[0]
    set_up_logs(first.log_level, first.log_format)
    return Host(agents)


def _is_exposed(settings: Settings) -> bool:
    """Whether other machines reach a server that nobody has declared to be open."""
    return not settings.open and not is_loopback(settings.host)


def refuse_exposure(host: Host) -> None:
    """Let nobody serve other machines without a key.

    Raises:
        Misuse: it would.
    """
    # Where it cannot be told before the store is opened, the start itself will tell.
    if _is_exposed(host.settings) and is_guarded(host.settings) is False:
        raise exposure(host.settings)


def serve_alone(host: Host, *, has_keys: bool = False, then: Callable[[], None] = lambda: None) -> None:
    """Serve in this process until a signal, with a file by which commands of operators find it.

    `has_keys` says that keys are kept elsewhere than in the settings and the store.

    Raises:
        Misuse: it would be open to the network without a key, or the address cannot be had.
    """
    settings, token = host.settings, host.admin.token
    if not has_keys:
        refuse_exposure(host)
    # Before the store is opened: who cannot serve must not take over what others left.
    try:
        sockets = bind(settings.host, settings.port)
    except OSError as error:
        place, why = f"{settings.host}:{settings.port}", error.strerror or error
        fix = "--port 0" if error.errno == errno.EADDRINUSE else "--host 127.0.0.1"
        raise Misuse(f"cannot listen on {place}: {why}; choose another --host or --port", hint=fix) from None

    def started(port: int) -> None:
        write_admin_endpoint(settings, port, token)
        log_addresses(settings, host.agents, port, guarded=host.identity.enforced)
        then()

    try:
        serve_host(host, sockets, started=started)
    finally:
        remove_admin_endpoint(settings, token)


def collect_garbage_rarely() -> None:
    """Have garbage collected as seldom as a process can bear that serves many requests."""
    # What is loaded by now stays; a young generation of 700 would be collected every few requests. Everybody
    # waits while the next one is looked through, so it is kept small where thousands of agents come in.
    gc.freeze()
    gc.set_threshold(10_000, 5, 200)


def spare_what_stays() -> None:
    """Have what is alive now not looked through again: of thousands of agents that takes half a second."""
    gc.collect(1)
    gc.freeze()


def serve_host(
    host: Host,
    sockets: list[socket.socket],
    *,
    started: Callable[[int], None],
    lifeline: socket.socket | None = None,
) -> None:
    """Serve in this process until a signal, or until the other end of the lifeline is closed."""
    chosen = host.settings
    host.exposed = _is_exposed(chosen)
    sys.setswitchinterval(SWITCH_S)
    collect_garbage_rarely()

    def listening(port: int) -> None:
        host.callbacks.own = f"http://{own_name(chosen.host)}:{port}"
        host.announcement.listening(host.callbacks.own)
        asyncio.get_running_loop().call_later(SETTLED_S, spare_what_stays)
        started(port)

    server = HttpServer(host, server_limits(chosen), started=listening, lifeline=lifeline)
    server.run(sockets)
    # All of it goes with the process.
    gc.freeze()
    if isinstance(server.failure, TrunklineError):
        print_error(server.failure, sys.argv[1:])
    if not server.started:
        raise SystemExit(FAILED)


def server_limits(settings: Settings) -> ServerLimits:
    """The limits of the HTTP server that the settings ask for."""
    # A stream notices by itself first, and says after which event it was cut.
    write_s = settings.write_limit + 2 * TICK_S
    end_s = settings.drain_limit + settings.cancel_limit
    return ServerLimits(settings.connection_limit, write_s, end_s, settings.unread_limit)


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


def _check_shared(host: Host) -> None:
    if host.store.shared:
        return
    settings = host.settings
    why = "ends with its process" if settings.store == "memory:" else "is a file for one process"
    raise Misuse(
        f"--workers {settings.workers} needs a store that processes share, and {settings.store} {why}: "
        "use --store postgresql://USER@HOST/DATABASE, or --workers 1",
        hint="--workers 1",
    )


def log_addresses(settings: Settings, agents: Sequence[str], port: int, *, guarded: bool) -> None:
    """Log the URL of each agent, and settings that an operator may want to change."""
    base = settings.public_url.rstrip("/") or f"http://{settings.host}:{port}"
    log.info(
        "server.ready url=%s/a2a card=%s/.well-known/agent-card.json store=%s",
        base,
        base,
        shown(settings.store),
    )
    for agent in agents[1:]:
        place = f"{base}{AGENTS}{agent}"
        log.info("agent.ready url=%s/a2a card=%s/.well-known/agent-card.json", place, place)
    if not guarded:
        if is_loopback(settings.host):
            log.info("auth.off access=%s", "this_machine")
        else:
            log.warning("auth.off access=%s fix=%s", "everyone", "--keys")
    if not (settings.public_url or settings.allowed_hosts or is_loopback(settings.host)):
        log.info(
            "card.url_unset advertised=%a fix=%s", "the address that a caller connects to", "--public-url"
        )
    for name, near in find_unknown_variables().items():
        log.warning("setting.unknown variable=%s did_you_mean=%s", name, near or "-")
    if settings.dev:
        log.warning("dev.on effect=%a", "callers see exception texts, and webhooks may call this machine")


def _work() -> None:
    """Be one worker of several: the parent says what to serve, on sockets that it has bound."""
    # A skill that reads its standard input must not read the parent's words.
    lifeline = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with lifeline.makefile("rb") as reader:
        line = reader.readline()
    if not line:
        return
    order = msgspec.json.decode(line, type=WorkerOrder)
    sockets = [socket.socket(fileno=each) for each in order.sockets]
    for each in sockets:
        each.set_inheritable(False)
    try:
        host = _host(order.targets, order.given)
    except TrunklineError as error:
        print_error(error, ["serve"])
        raise SystemExit(2) from None
    serve_host(host, sockets, started=lambda _: lifeline.sendall(b"."), lifeline=lifeline)


def run_reloading(typed: Sequence[str]) -> int:
    """Serve what was typed until a signal, beginning anew at every change; gives the exit code."""
    command = [sys.executable, "-m", "trunkline.cli", *(word for word in typed if word != _RELOAD)]
    # As Ctrl-C does, so that the child is ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pause = threading.Event()
    return supervise(
        lambda: subprocess.Popen(command), lambda: changed_at(Path.cwd()), lambda: pause.wait(_LOOK_S)
    )


def supervise(
    start: Callable[[], subprocess.Popen[bytes]],
    look: Callable[[], Mapping[str, int]],
    pause: Callable[[], object],
) -> int:
    """Keep a child running on what is seen; one that fails is begun anew at the next change.

    The exit code is that of a child that ended well by itself, or at a signal.
    """
    seen = look()
    child = start()
    try:
        while child.poll() != 0:
            pause()
            now = look()
            if now != seen:
                changed = sorted({name for name, _ in seen.items() ^ now.items()})
                print_notice("Reloading", ", ".join(changed[:3]))
                seen = now
                _end(child)
                child = start()
    except KeyboardInterrupt:
        return _end(child)
    return 0


def changed_at(folder: Path) -> dict[str, int]:
    """When each file of Python below a folder was changed; what is hidden or installed is left out."""
    found: dict[str, int] = {}
    for place, folders, files in os.walk(folder):
        hidden = [name for name in folders if name.startswith((".", "__")) or name == "node_modules"]
        folders[:] = [
            name for name in folders if name not in hidden and not Path(place, name, "pyvenv.cfg").exists()
        ]
        for path in (Path(place, name) for name in files if name.endswith(".py")):
            # It may have gone meanwhile, as editors replace files.
            if path.exists():
                found[str(path.relative_to(folder))] = path.stat().st_mtime_ns
    return found


def _end(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        child.terminate()
    return child.wait()


if __name__ == "__main__":
    _work()
