"""Rooms import downward only, at the top of the file, and without cycles."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter

from tests.architecture.source import imports, modules

# Top to bottom. The package itself is the author's front door, so it ranks with `agent`.
LAYERS = (
    {"cli"},
    {"hub"},
    {"host"},
    {"hosting"},
    {"gateway", "dash"},
    {"server", "agent", "fleet", "flow", "mcp", "bridge", "adapters", "mock", "doctor", "demo", ""},
    {"webhook", "http", "peer"},
    {"run", "client"},
    {"auth"},
    {"store", "net"},
    {"log"},
    {"wire"},
    {"errors", "clock", "config", "telemetry", "yaml_reader"},
)
RANK = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}

# (importing module, imported module): why it may look up.
EXCEPTIONS = {
    ("trunkline.mock.pytest_plugin", "trunkline.mock.in_process"): "loaded in every run of a host's tests",
    ("trunkline.agent.agent", "trunkline.host"): "Agent.asgi, the one seam to the composition root",
    (
        "trunkline.peer.executor",
        "trunkline.peer.clients",
    ): "an agent that calls nobody starts without a client",
    (
        "trunkline.peer.executor",
        "trunkline.peer.remote_run",
    ): "an agent that calls nobody starts without a client",
    ("trunkline.fleet.mount", "trunkline.fleet.api"): "a host starts without what nobody asks for",
    ("trunkline.agent.turn", "trunkline.peer.call"): "an agent that calls nobody starts without it",
    (
        "trunkline.flow",
        "trunkline.flow.local",
    ): "its front door, loaded when first asked for: the extra `flow`",
    ("trunkline", "trunkline.host"): "trunkline.lifespan, loaded when first asked for",
    ("trunkline.http.server", "trunkline.http.websocket"): "its library is the extra `websocket`",
    ("trunkline.store.url", "trunkline.store.postgres.store"): "its driver is the extra `postgres`",
    ("trunkline.mcp.servers", "trunkline.mcp.session"): "its library is the extra `mcp`",
    ("trunkline.mcp.mount", "trunkline.mcp.http_server"): "its library is the extra `mcp`",
    ("trunkline.fleet.notify.apprise_channel", "apprise"): "the extra `notify`",
    ("trunkline.hub.hub", "trunkline.hub.models"): "the extra `model`, which takes a second to load",
    ("trunkline.bridge.tools", "trunkline.adapters.langchain"): "the extra `langchain`",
    ("trunkline.bridge.tools", "trunkline.adapters.pydantic_ai"): "the extra `pydantic-ai`",
}
# Third-party modules that only one room may import.
DOORS = {
    "sqlite3": "store",
    "asyncpg": "store",
    "opentelemetry": "telemetry",
    "prometheus_client": "telemetry",
}


def test_every_room_has_a_layer() -> None:
    assert {m.room for m in modules()} <= RANK.keys(), "a new room: give it a place in LAYERS and pyproject"


def test_imports_go_down() -> None:
    upward = [
        f"{m.where}:{i.line} imports {i.target}"
        for m in modules()
        for i in imports(m)
        if i.target.split(".")[0] == "trunkline" and (m.name, i.target) not in EXCEPTIONS
        if RANK[m.room] > RANK[room_of(i.target)]
    ]
    assert upward == []


def test_each_door_has_one_room() -> None:
    strays = [
        f"{m.where}:{i.line} imports {i.target}"
        for m in modules()
        for i in imports(m)
        if DOORS.get(i.target.split(".")[0], m.room) != m.room
    ]
    assert strays == []


def test_only_net_dials() -> None:
    """A connection over a socket that is already there, as to a worker process, is none to the outside."""
    dialling = {"open_connection", "create_connection", "open_unix_connection", "connect", "connect_ex"}
    strays = [
        m.at(call)
        for m in modules()
        if m.room not in {"net", "store"}
        for call in m.walk(ast.Call)
        if isinstance(call, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in dialling
        if isinstance(call.func.value, ast.Name)
        and call.func.value.id in {"asyncio", "loop", "socket", "sock"}
        if not any(keyword.arg == "sock" for keyword in call.keywords)
    ]
    assert strays == []
    engines = {
        "http.client",
        "urllib.request",
        "httpx2",
        "httpcore2",
        "httpx",
        "aiohttp",
        "requests",
        "urllib3",
    }
    others = [
        f"{m.where}:{i.line} imports {i.target}"
        for m in modules()
        for i in imports(m)
        if any(i.target == engine or i.target.startswith(f"{engine}.") for engine in engines)
        # It gives libraries that dial by httpx2 our client in its place.
        if (m.name, i.target.partition(".")[0]) != ("trunkline.net.httpx_transport", "httpx2")
    ]
    assert others == []


def test_pure_rooms_have_no_json_clock_or_io() -> None:
    banned = {"json", "time", "asyncio", "os", "socket", "threading", "random", "secrets", "logging"}
    strays = [
        f"{m.where}:{i.line} imports {i.target}"
        for m in modules()
        for i in imports(m)
        if m.room in {"wire", "log"} and i.target.split(".")[0] in banned
    ]
    assert strays == []


def test_imports_stand_at_the_top() -> None:
    lazy = [
        f"{m.where}:{i.line} imports {i.target} inside {i.function}()"
        for m in modules()
        for i in imports(m)
        if i.function and m.room not in {"cli", "host"} and (m.name, i.target) not in EXCEPTIONS
    ]
    assert lazy == []


def test_no_relative_imports() -> None:
    relative = [m.at(n) for m in modules() for n in m.walk(ast.ImportFrom) if getattr(n, "level", 0)]
    assert relative == []


def test_no_import_cycles() -> None:
    graph = {
        m.name: {i.target for i in imports(m) if not i.typing_only and not i.function and i.target != m.name}
        for m in modules()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("import cycle: " + " → ".join(error.args[1])) from None


def test_private_names_stay_in_their_room() -> None:
    strays = [
        f"{m.where}:{i.line} imports {name} from {i.target}"
        for m in modules()
        for i in imports(m)
        for name in i.names
        if name.startswith("_") and not name.startswith("__")
        if i.target.startswith("trunkline") and room_of(i.target) != m.room
    ]
    assert strays == []


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""
