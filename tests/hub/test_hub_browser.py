"""A hub from a browser, by the cookie of its sign-in page, and from a script, by a key: topics over both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.harness import NO_TLS, Agent, free_port
from tests.hub.chromium import Chromium, find_chromium
from tests.hub.test_hub import HubProcess, until
from trunkline.hub.template import write_workspace
from trunkline.mock.serve import BackgroundServer

# The server of these tests needs the extra `websocket`.
pytest.importorskip("trunkline.http.websocket", exc_type=ImportError)

KEY = "key-of-ada-at-her-desk"
KEYS = "keys: {ada: {env: T_ADA, scopes: [admin]}}"
FIRST_TOPIC = "agent.skill.request"
LISTEN = """new Promise((heard, failed) => {
  const topics = {socket: [], stream: []};
  const take = (way, text) => {
    // A message with its place alone is a sign of life.
    const told = JSON.parse(text);
    if (told.topic) topics[way].push(told.topic);
    if (topics.socket.length && topics.stream.length) heard(topics);
  };
  const socket = new WebSocket(location.origin.replace('http', 'ws') + '/api/bus/subscribe?topic=agent.skill.*');
  socket.onmessage = (event) => take('socket', event.data);
  socket.onclose = (event) => { window.closed = event.code; failed(new Error('closed ' + event.code)); };
  const stream = new EventSource('/api/bus/subscribe?topic=agent.skill.*');
  stream.onmessage = (event) => take('stream', event.data);
  stream.onerror = () => failed(new Error('stream'));
  const both = Promise.all([new Promise((open) => { socket.onopen = open; }),
                            new Promise((open) => { stream.onopen = open; })]);
  both.then(() => fetch('/api/dispatch', {
    method: 'POST', headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({skill: 'draft', message: 'Write'}),
  })).then((answer) => { if (!answer.ok) failed(new Error('dispatch ' + answer.status)); });
})"""
# What a page of somebody else can do: how its socket ends, and what a form or a fetch of it is answered.
TRY = """(async () => {
  const hub = %s;
  const socket = await new Promise((ended) => {
    const made = new WebSocket(hub.replace('http', 'ws') + '/api/bus/subscribe');
    made.onopen = () => ended('open');
    made.onerror = () => ended('refused');
  });
  const read = await fetch(hub + '/api/tasks', {credentials: 'include'}).then(() => 'read', () => 'refused');
  await fetch(hub + '/api/dispatch', {method: 'POST', credentials: 'include', mode: 'no-cors', body: '{}'});
  await fetch(hub + '/ui/sign-out', {method: 'POST', credentials: 'include', mode: 'no-cors'});
  return [socket, read];
})()"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    workspace = tmp_path_factory.mktemp("browser") / "demo"
    write_workspace(workspace)
    (workspace / "keys.yaml").write_text(KEYS)
    with HubProcess(workspace, env={"T_ADA": KEY}) as running:
        assert isinstance(running, HubProcess)
        agent = Agent(running.base, headers={"X-API-Key": KEY})
        until(lambda: agent.http.get(f"{running.base}/api/agents/writer").json()["state"] == "ready")
        agent.close()
        yield running


def _dispatch(hub: HubProcess, headers: dict[str, str]) -> httpx2.Response:
    body = {"skill": "draft", "message": "Write"}
    return httpx2.post(f"{hub.base}/api/dispatch", json=body, headers=headers, verify=NO_TLS)


def _socket(hub: HubProcess, **headers: str) -> ClientConnection:
    origin: Any = headers.pop("Origin", None)
    url = f"ws://127.0.0.1:{hub.port}/api/bus/subscribe?topic=agent.skill.*"
    return connect(url, origin=origin, additional_headers=headers)


def _first_topic(socket: ClientConnection) -> str:
    """The first topic that is told; a message with its place alone is a sign of life."""
    while "topic" not in (told := json.loads(socket.recv(timeout=30))):
        continue
    return told["topic"]


def test_topics_come_over_a_websocket_by_cookie_and_origin_or_by_key(hub: HubProcess) -> None:
    own = {"Origin": hub.base}
    with httpx2.Client(base_url=hub.base, verify=NO_TLS) as browser:
        signed = browser.post("/ui/sign-in", data={"key": KEY}, headers=own)
        assert signed.status_code == 303, signed.text
        cookie = {"Cookie": signed.headers["set-cookie"].partition(";")[0]}
        with _socket(hub, **own, **cookie) as by_cookie, _socket(hub, **{"X-API-Key": KEY}) as by_key:
            assert _dispatch(hub, {**own, **cookie}).status_code == 200
            for socket in (by_cookie, by_key):
                assert _first_topic(socket) == FIRST_TOPIC
            for headers, status in (
                (cookie, 403),
                ({**cookie, "Origin": "http://127.0.0.1:3000"}, 403),
                ({**cookie, "Origin": "https://page.example"}, 403),
                (own, 401),
                ({**own, "Cookie": f"{cookie['Cookie'].partition('=')[0]}=made-up"}, 401),
                ({**own, "X-API-Key": "nobody has this"}, 401),
            ):
                with pytest.raises(InvalidStatus) as refused:
                    _socket(hub, **headers)
                assert refused.value.response.status_code == status, headers
                assert json.loads(refused.value.response.body or b"")["status"] == status
            assert _dispatch(hub, cookie).status_code == 403
            assert browser.post("/ui/sign-out", headers=own).status_code == 303
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    by_cookie.recv(timeout=30)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
            assert _dispatch(hub, {**own, **cookie}).status_code == 401
            assert _dispatch(hub, {"X-API-Key": KEY}).status_code == 200


def test_a_browser_signs_in_hears_topics_and_keeps_them_from_other_pages(hub: HubProcess) -> None:
    program = find_chromium()
    with Chromium(program) as page, _elsewhere() as foreign:
        page.go(f"{hub.base}/ui/sign-in")
        page.run(f"document.querySelector('[name=key]').value = {KEY!r}")
        page.click("button")
        page.wait("document.body !== null && document.body.innerText.includes('signed in as ada of default')")
        assert page.run("document.cookie") == ""
        # The sign-in page itself may call nobody; any other page of the hub may.
        page.go(f"{hub.base}/api/tasks")
        heard = page.run(LISTEN)
        assert heard["socket"][0] == heard["stream"][0] == FIRST_TOPIC
        # A page at another port of this machine is of the same site, and the cookie goes with its requests.
        page.go(foreign)
        assert page.run(TRY % json.dumps(hub.base)) == ["refused", "refused"]
        page.go(f"{hub.base}/ui/sign-in")
        page.wait("document.body.innerText.includes('signed in as ada of default')")
        page.click("button")
        page.wait("document.querySelector('[name=key]') !== null")
        page.go(f"{hub.base}/api/tasks")
        assert json.loads(page.run("document.body.innerText"))["status"] == 401


def _elsewhere() -> BackgroundServer:
    """Another server of this machine, with a page."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        await receive()
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"<title>Elsewhere</title>"})

    return BackgroundServer(app, port=free_port())
