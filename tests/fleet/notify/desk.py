"""A local server in place of Discord and of webhook receivers, and an office whose channels use it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, cast

import httpx2
import pytest

from tests.fleet.office import Office, office
from trunkline.clock import now_ms
from trunkline.fleet.inbox import inbox_of
from trunkline.fleet.notify.channel import ChannelSettings
from trunkline.fleet.notify.channel_requests import ChannelRequests, channel_mounts
from trunkline.fleet.notify.links import AnswerLinks
from trunkline.fleet.notify.notifications import Notifications
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.routing.choose import Standing
from trunkline.fleet.routing.dispatcher import Dispatcher, Policy
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher


class Desk(ThreadingHTTPServer):
    """A server that keeps what is posted to it, and answers with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Posted)
        self.status = 204
        # What is answered to a method, a path and a body.
        self.answer: Callable[[str, str, bytes], bytes] = lambda method, path, body: b""
        self.heard: list[tuple[str, dict[str, str], bytes]] = []

    def bodies(self) -> list[Any]:
        """What was posted, as JSON."""
        return [json.loads(body) for _, _, body in self.heard]

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Posted(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Desk)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.heard.append((self.path, dict(self.headers), body))
        answer = self.server.answer(self.command, self.path, body)
        self.send_response(self.server.status)
        if answer:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_PATCH(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def desk() -> Iterator[Desk]:
    server = Desk()
    serving = Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


def settings_of(receiver: NoticeReceiver, http: Fetcher, **members: Any) -> ChannelSettings:
    """Return what the channel of a receiver is made from; its variables hold `canary`."""
    known: dict[str, Any] = {
        "name": receiver.name,
        "options": receiver.channel_options,
        "accepts_calls": receiver.calls,
        "http": http,
        "variable": lambda _name: "canary",
        "sign": lambda _id, _moment, _body: "",
        "now_ms": now_ms,
        **members,
    }
    return ChannelSettings(**known)


class DeskFleet:
    """The fleet of an office: one agent."""

    is_sound = True

    def find(self, tenant: str, name: str, skill: str) -> Standing | None:
        return Standing(agent="desk", skills=None) if name == "desk" else None

    def with_skill(self, tenant: str, skill: str) -> list[Standing]:
        return [Standing(agent="desk", skills=None)]

    def tell_try(self, tenant: str, name: str) -> None:
        pass


class ChannelOffice:
    """An office with receivers, whose channels send to a desk and can be called over HTTP."""

    def __init__(
        self, at: Office, receivers: list[NoticeReceiver], variables: dict[str, str], http: Fetcher
    ) -> None:
        host = at.application.host
        self.at, self.later_ms = at, 0
        self.told = Notifications(
            host.store,
            inbox_of(host.runner),
            receivers,
            fetcher=http,
            sign=lambda: None,
            links=AnswerLinks(None, lambda: "", now_ms),
            variable=variables.get,
            now_ms=lambda: now_ms() + self.later_ms,
            dispatcher=Dispatcher(host.runner, cast("Any", DeskFleet()), Policy(helm="desk")),
        )
        for mount in channel_mounts(ChannelRequests(self.told)):
            host.mounts.add(mount)
        transport = httpx2.ASGITransport(at.application)
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://localhost")

    async def look(self) -> None:
        """Read the log, and send what is due."""
        if self.told.sender is None:
            await self.told.start()
        assert self.told.sender is not None
        await self.told.reader.catch_up()
        await self.told.sender.tell_due()

    async def settled(self, task_id: str, state: str) -> Any:
        """Return the task once it is in a state of which the receivers have been sent everything."""
        found = await self.at.until(task_id, state)
        await self.look()
        return found


def channel_office(
    work: Callable[[ChannelOffice], Awaitable[Any]], receivers: list[NoticeReceiver], **variables: str
) -> None:
    """Do something with an office that has receivers."""

    async def main(at: Office) -> None:
        http = Fetcher(Egress(hosts=["127.0.0.1"]))
        made = ChannelOffice(at, receivers, variables, http)
        await made.told.start()
        await work(made)
        await made.client.aclose()
        await http.close()

    office(main)
