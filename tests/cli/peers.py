"""Agents for the command line to call: our own in this process, and one that answers what a test tells it."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

READY_S = 60.0


@contextmanager
def served(app: Any, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The base URL of an ASGI application, served on loopback by a thread of this process."""
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="auto", ws="none", loop="asyncio")
    server = uvicorn.Server(config)
    if tls is not None:
        config.load()
        config.ssl = tls
    ready = threading.Event()
    began = server.startup

    async def startup(sockets: Any = None) -> None:
        await began(sockets)
        ready.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    assert ready.wait(READY_S), "the agent did not start"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(READY_S)


def no_task(_: Any) -> Any:
    """What an agent says of a task that it does not know."""
    raise RuntimeError((-32001, "there is no such task"))


class Scripted:
    """An agent that answers each JSON-RPC method by a function of the test, and remembers what it was asked.

    A function gives the result; a list is a stream of results; an `Exception` whose first argument is a pair
    is an error's code and message. `routes` answer other paths with a status and a JSON value.
    """

    def __init__(self, **card: Any) -> None:
        self.card = card
        self.methods: dict[str, Callable[[Any], Any]] = {"GetTask": no_task}
        self.routes: dict[str, Callable[[dict[str, str], bytes], tuple[int, Any]]] = {}
        self.asked: list[tuple[str, Any, dict[str, str]]] = []
        self.url = ""

    def params(self, method: str) -> list[Any]:
        """What a method was asked with, each time."""
        return [params for name, params, _ in self.asked if name == method]

    def document(self) -> dict[str, Any]:
        """Its card."""
        plain = {
            "name": "scripted",
            "description": "does as the test says",
            "version": "1",
            "supportedInterfaces": [
                {"url": f"{self.url}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "capabilities": {},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "S", "description": "does", "tags": []}],
        }
        return {**plain, **self.card}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{word}.complete"})
            return
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event["body"]
            if not event.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path = scope["path"]
        if path in self.routes:
            self.asked.append((path, body.decode(), headers))
            status, value = self.routes[path](headers, body)
            await _reply(send, status, value)
        elif path.startswith("/.well-known/"):
            self.asked.append((path, None, headers))
            await _reply(send, 200, self.document())
        else:
            await self._rpc(json.loads(body), headers, send)

    async def _rpc(self, request: Any, headers: dict[str, str], send: Any) -> None:
        self.asked.append((request["method"], request.get("params"), headers))
        envelope = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            found = self.methods[request["method"]](request.get("params"))
        except KeyError:
            await _reply(send, 200, {**envelope, "error": {"code": -32601, "message": "no such method"}})
        except RuntimeError as error:
            code, message = error.args[0]
            await _reply(send, 200, {**envelope, "error": {"code": code, "message": message}})
        else:
            if isinstance(found, list):
                await _stream(send, [{**envelope, "result": each} for each in found])
            else:
                await _reply(send, 200, {**envelope, "result": found})


async def _reply(send: Any, status: int, value: Any) -> None:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(send: Any, values: list[Any]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for value in values:
        frame = b"data: %b\n\n" % json.dumps(value).encode()
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def task(state: str, *, id: str = "t1", **more: Any) -> dict[str, Any]:
    """A task as an agent of 1.0 writes it."""
    return {"id": id, "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, **more}
