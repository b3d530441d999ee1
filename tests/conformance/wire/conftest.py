"""One server per kind and worker, shared by the checks; each check makes tasks of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.conformance.wire.bindings import (
    BINDINGS,
    DIALECTS,
    EVERY,
    Alias03,
    Binding,
    Proto03,
    Rest,
    Rpc,
    Rpc03,
)
from tests.conftest import Shelf
from tests.harness import SECRET, ServerProcess

HERE = Path(__file__).parent
KEYS = ("first-key-of-two", "second-key-of-two")
Serve = Callable[..., ServerProcess]


@pytest.fixture(scope="session")
def http() -> Iterator[httpx2.Client]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    with httpx2.Client(timeout=30, limits=limits) as client:
        yield client


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[Serve]:
    """Start a server with these flags, or give the one already running with the same."""
    running: dict[tuple[str, ...], ServerProcess] = {}

    def start(target: str = "trunkline.demo:agent", *flags: str, store: str = "") -> ServerProcess:
        key = (target, *flags, store)
        if key not in running:
            store = store or shelf.store("memory:")
            directory = tmp_path_factory.mktemp("wire")
            env = {**SECRET, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
            running[key] = ServerProcess(directory, target, *flags, store=store, env=env).start()
        return running[key]

    yield start
    for server in running.values():
        server.kill()


@pytest.fixture
def base(demo_server: ServerProcess) -> str:
    return demo_server.base


@pytest.fixture
def keyed(serve: Serve) -> ServerProcess:
    """A server that two keys open."""
    return serve("trunkline.demo:agent", "--key", KEYS[0], "--key", KEYS[1], "--log-level", "debug")


@pytest.fixture
def rpc(base: str, http: httpx2.Client) -> Rpc:
    return Rpc(base, http)


@pytest.fixture
def rest(base: str, http: httpx2.Client) -> Rest:
    return Rest(base, http)


@pytest.fixture
def rpc03(base: str, http: httpx2.Client) -> Rpc03:
    return Rpc03(base, http)


@pytest.fixture
def proto03(base: str, http: httpx2.Client) -> Proto03:
    return Proto03(base, http)


@pytest.fixture
def alias03(base: str, http: httpx2.Client) -> Alias03:
    return Alias03(base, http)


@pytest.fixture(params=BINDINGS)
def v1(request: pytest.FixtureRequest, base: str, http: httpx2.Client) -> Binding:
    """Version 1.0 over JSON-RPC and over HTTP+JSON."""
    return BINDINGS[request.param](base, http)


@pytest.fixture(params=DIALECTS)
def v03(request: pytest.FixtureRequest, base: str, http: httpx2.Client) -> Binding:
    """Version 0.3 over JSON-RPC, under /v1 and by its short paths."""
    return DIALECTS[request.param](base, http)


@pytest.fixture(params=EVERY)
def speak(request: pytest.FixtureRequest, http: httpx2.Client) -> Callable[..., Binding]:
    """Any of the five ways, to any server, with any headers."""
    return lambda base, headers=None: EVERY[request.param](base, http, headers)


@pytest.fixture(params=BINDINGS)
def speak1(request: pytest.FixtureRequest, http: httpx2.Client) -> Callable[..., Binding]:
    """Both bindings of 1.0, to any server, with any headers."""
    return lambda base, headers=None: BINDINGS[request.param](base, http, headers)
