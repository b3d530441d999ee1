"""Mocks over real sockets, where a broken connection is one."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.mock.talk import replying, said
from trunkline.errors import Misuse
from trunkline.mock import faults as f
from trunkline.mock.app import Mock
from trunkline.mock.scenario import Persona, Reply
from trunkline.mock.serve import BackgroundServer, Mocks


def posted(
    url: str, method: str = "SendMessage", connection: http.client.HTTPConnection | None = None
) -> bytes:
    at = urlsplit(url)
    own = connection or http.client.HTTPConnection(at.netloc, timeout=60)
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": said()})
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    try:
        own.request("POST", f"{at.path}/a2a", body, headers)
        return own.getresponse().read()
    finally:
        if connection is None:
            own.close()


def test_a_mock_on_a_socket_answers_and_breaks() -> None:
    mock = Mock(
        replying(
            Reply(stream=("a", "b")),
            f.drop(on=["send"], requests=[2]),
            f.lose(on=["send"], requests=[3]),
            f.truncate(on=["send"], requests=[4]),
            f.cut(2, requests=[1]),
        )
    )
    with BackgroundServer(mock) as url:
        assert b"TASK_STATE_COMPLETED" in posted(url)
        for _ in ("drop", "lose"):
            with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
                posted(url)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            posted(url)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            posted(url, "SendStreamingMessage")
        assert posted(url, "SendStreamingMessage").count(b"data: ") == 5
    assert mock.runs.total() == 5


def test_a_connection_is_closed_without_a_word() -> None:
    with BackgroundServer(Mock(replying("Hi", f.close(requests=[1])))) as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        assert b"Hi" in posted(url, connection=connection)
        connection.auto_open = 0
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            posted(url, connection=connection)
        connection.close()


def test_several_are_served_under_their_names() -> None:
    mocks = [
        Mock(replying(f"I am {name}", name=name, agent=Persona(name=name.title()))) for name in ("ann", "bob")
    ]
    with BackgroundServer(Mocks(mocks)) as url:
        assert b"I am ann" in posted(f"{url}/ann")
        assert b"I am bob" in posted(f"{url}/bob")
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.request("GET", "/bob/.well-known/agent-card.json")
        card = msgspec.json.decode(connection.getresponse().read())
        assert (card["name"], card["url"]) == ("Bob", f"{url}/bob/a2a")
        connection.request("GET", "/eve/.well-known/agent-card.json")
        missing = connection.getresponse()
        assert (missing.status, missing.read()) == (404, b"no such mock; there are ann, bob")
        connection.close()


def test_a_port_that_is_taken_is_named() -> None:
    with BackgroundServer(Mock(replying("Hi"))) as url, pytest.raises(Misuse) as refused:
        BackgroundServer(Mock(replying("Hi")), port=urlsplit(url).port or 0)
    address, text = url.removeprefix("http://"), str(refused.value)
    assert text == f"cannot listen on {address}: Address already in use; choose another --host or --port"
    assert refused.value.hint == "--port 0"


def test_a_single_mock_answers_at_the_root_and_under_its_name() -> None:
    mock = Mock(replying("Hi"))
    with BackgroundServer(Mocks([mock])) as url:
        assert all([b"Hi" in posted(f"{url}{path}") for path in ("", f"/{mock.scenario.name}")])
