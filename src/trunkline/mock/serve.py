"""Mocks over sockets: several under their names, on a server that can also drop a connection."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trunkline.errors import Misuse
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.mock.app import Mock
from trunkline.mock.exchange import ABORT, CLOSE, MockAnswer, MockExchange, serve_lifespan

App = Callable[[Any, Any, Any], Awaitable[None]]
_START_S = 10.0
_END_S = 5


class AbortableConnection(HttpToolsProtocol):
    """Uvicorn's connection, which lets the application break it off."""

    def on_message_begin(self) -> None:
        """Give the request that begins the functions that abort and close its connection."""
        super().on_message_begin()
        scope = cast("dict[str, Any]", self.scope)
        scope["extensions"] = {ABORT: self.transport.abort, CLOSE: self.transport.close}


class Mocks:
    """Mocks as one application, each under /NAME; a single mock is also served at the root."""

    def __init__(self, mocks: Sequence[Mock]) -> None:
        self.mocks = tuple(mocks)
        self._by_name = {mock.scenario.name: mock for mock in mocks}

    def paths(self) -> list[tuple[str, Mock]]:
        """Return the shortest path of each mock."""
        alone = len(self.mocks) == 1
        return [("" if alone else f"/{name}", mock) for name, mock in self._by_name.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send, self._close)
        elif scope["type"] == "http":
            name = scope["path"].split("/")[1]
            if name in self._by_name:
                await self._by_name[name]({**scope, "root_path": f"/{name}"}, receive, send)
                return
            if len(self.mocks) == 1:
                await self.mocks[0](scope, receive, send)
                return
            body = f"no such mock; there are {', '.join(self._by_name)}".encode()
            await MockExchange(scope, receive, send).deliver(MockAnswer(body, 404, "text/plain"), ())

    async def _close(self) -> None:
        for mock in self.mocks:
            await mock.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any that is free.

    Raises:
        Misuse: it cannot be had.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        fix = "--port 0" if error.errno == errno.EADDRINUSE else "--host 127.0.0.1"
        text = f"cannot listen on {host}:{port}: {why}; choose another --host or --port"
        raise Misuse(text, hint=fix) from None


class MockServer(uvicorn.Server):
    """Uvicorn, but a signal ends it and not the process: there is something to do afterwards."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End at a signal; a second one does not wait for requests."""
        del sig, frame
        self.force_exit = self.should_exit
        self.should_exit = True


def server_of(app: App) -> MockServer:
    """The server of an application, not yet running."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        http=AbortableConnection,
        lifespan="on",
        timeout_graceful_shutdown=1,
    )
    return MockServer(config)


class BackgroundServer:
    """An application on a port of this machine, served by a thread: `with BackgroundServer(mock) as url`."""

    def __init__(self, app: App, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._socket = bind(host, port)
        self._server = server_of(app)
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trunkline-mock", daemon=True)
        self.url = f"http://{host}:{self._socket.getsockname()[1]}"

    def _run(self) -> None:
        async def serve() -> None:
            asyncio.get_running_loop().call_soon(self._up.set)
            await self._server.serve([self._socket])

        asyncio.run(serve())

    def start(self) -> str:
        """Begin to serve; gives the URL. The socket listens already: whoever calls is served soon."""
        self._thread.start()
        self._up.wait(_START_S)
        return self.url

    def close(self) -> None:
        """End the server and its thread."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_END_S)
        self._socket.close()

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
