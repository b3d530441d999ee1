"""An agent inside a host application: Starlette and FastAPI, under a path, with cards at the origin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.harness import message
from trunkline import Agent, Turn

CARDS = ("agent-card.json", "agent.json")
PATH = "/agents/scribe"
# The Host allow-list knows loopback names; Starlette's default `testserver` is a stranger.
HOST = "http://localhost"


@pytest.fixture
def agent() -> Agent:
    agent = Agent("scribe", store="memory:", drain_limit=0)

    @agent.skill
    async def echo(turn: Turn) -> str:
        await turn.write("you said: ")
        await turn.write(turn.text)
        return turn.written

    return agent


def starlette(agent: Agent, **settings: Any) -> Starlette:
    return Starlette(routes=[Mount(PATH, app=agent.asgi(**settings))], lifespan=agent.lifespan)


def fastapi(agent: Agent, **settings: Any) -> FastAPI:
    host = FastAPI(lifespan=agent.lifespan)
    host.mount(PATH, agent.asgi(**settings))
    return host


HOSTS = [starlette, fastapi]


def rpc(client: TestClient, url: str, method: str, params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.post(url, json=body, headers={"A2A-Version": "1.0"})


def talk(client: TestClient, path: str = PATH) -> None:
    """Everything by every way, under a path."""
    sent = rpc(client, f"{path}/a2a", "SendMessage", {"message": message("hi")})
    task = sent.json()["result"]["task"]
    assert task["artifacts"][0]["parts"] == [{"text": "you said: hi"}]
    assert client.get(f"{path}/tasks/{task['id']}").json()["kind"] == "task"
    assert client.post(f"{path}/message:send", json={"message": message("hi", "0.3")}).status_code == 202
    with client.stream("POST", f"{path}/message:stream", json={"message": message("hi", "0.3")}) as streamed:
        frames = [line for line in streamed.iter_lines() if line.startswith("data:")]
    assert '"final":true' in frames[-1]
    assert rpc(client, f"{path}/a2a/", "GetTask", {"id": task["id"]}).json()["result"] == task


@pytest.mark.parametrize("host", HOSTS)
def test_under_a_path(agent: Agent, host: Any) -> None:
    with TestClient(host(agent), base_url=HOST) as client:
        talk(client)
        assert client.post("/a2a", json={}).status_code == 404
        for base in (PATH, f"{PATH}/"):
            assert "tasks" in rpc(client, base, "ListTasks", {}).json()["result"]


@pytest.mark.parametrize("host", HOSTS)
def test_the_card_contains_the_mount_path(agent: Agent, host: Any) -> None:
    with TestClient(host(agent), base_url=HOST) as client:
        cards = [client.get(f"{PATH}/.well-known/{name}").json() for name in CARDS]
        assert cards[0] == cards[1]
        card = cards[0]
        assert card["url"].endswith(f"{PATH}/a2a")
        assert all(
            PATH in one["url"] for one in (*card["supportedInterfaces"], *card["additionalInterfaces"])
        )
        assert rpc(client, card["url"], "SendMessage", {"message": message("by the card")}).status_code == 200


@pytest.mark.parametrize("host", HOSTS)
def test_settings_of_asgi_reach_lifespan_and_cards(agent: Agent, host: Any) -> None:
    made = host(agent, public_url="http://localhost/agents/scribe", keys=("a-key-for-the-mount",))
    made.mount("/.well-known", agent.card_routes(PATH))
    with TestClient(made, base_url=HOST) as client:
        assert rpc(client, f"{PATH}/a2a", "ListTasks", {}).status_code == 401
        assert "security" in client.get("/.well-known/agent-card.json").json()
        client.headers["X-API-Key"] = "a-key-for-the-mount"
        talk(client)


@pytest.mark.parametrize("host", HOSTS)
def test_cards_at_the_origin(agent: Agent, host: Any) -> None:
    made = host(agent)
    made.mount("/.well-known", agent.card_routes(PATH))
    with TestClient(made, base_url=HOST) as client:
        for name in CARDS:
            answer = client.get(f"/.well-known/{name}")
            assert answer.status_code == 200
            assert answer.json() == client.get(f"{PATH}/.well-known/{name}").json()
            assert answer.json()["url"].endswith(f"{PATH}/a2a")
        assert client.get("/.well-known/openid-configuration").status_code == 404
        assert client.get("/.well-known/a2a").status_code == 404


def test_cards_at_the_origin_with_a_public_url(agent: Agent) -> None:
    made = starlette(agent, public_url="https://agents.example/scribe")
    made.mount("/.well-known", agent.card_routes())
    with TestClient(made, base_url=HOST) as client:
        assert client.get("/.well-known/agent-card.json").json()["url"] == "https://agents.example/scribe/a2a"


@pytest.mark.parametrize("root", ["/api", "/a"])
@pytest.mark.parametrize("stripped", [True, False], ids=["proxy strips", "proxy keeps"])
def test_behind_a_proxy_with_a_prefix(agent: Agent, root: str, stripped: bool) -> None:
    made = fastapi(agent)
    made.root_path = root
    made.mount("/.well-known", agent.card_routes(PATH))
    seen = "" if stripped else root
    with TestClient(made, base_url=HOST) as client:
        talk(client, seen + PATH)
        card = client.get(f"{seen}{PATH}/.well-known/agent-card.json").json()
        assert card["url"].endswith(f"{root}{PATH}/a2a")
        assert client.get(f"{seen}/.well-known/agent-card.json").json()["url"] == card["url"]


def test_root_path_of_the_server(agent: Agent) -> None:
    with TestClient(agent.asgi(), base_url=HOST, root_path="/a") as client:
        # `/a2a` begins with `/a`, and yet is not below it.
        talk(client, "")
        assert client.get("/.well-known/agent-card.json").json()["url"].endswith("/a/a2a")
        talk(client, "/a")


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_forgets_the_lifespan_is_told(agent: Agent, host: Any) -> None:
    made = host(agent)
    client = TestClient(made, base_url=HOST)  # not entered, so no lifespan is run
    with pytest.raises(RuntimeError, match="lifespan=agent.lifespan"):
        rpc(client, f"{PATH}/a2a", "ListTasks", {})


def test_on_its_own_the_application_runs_its_lifespan(agent: Agent) -> None:
    with TestClient(agent.asgi(), base_url=HOST) as client:
        talk(client, "")


def test_started_again_it_streams_again(agent: Agent) -> None:
    for _ in range(2):
        with TestClient(starlette(agent), base_url=HOST) as client:
            talk(client)


def test_the_same_application_each_time(agent: Agent) -> None:
    assert agent.asgi() is agent.asgi()
    made = agent.asgi(reply="receipt")
    assert agent.asgi() is made
    agent.test_client()
    assert agent.asgi() is made


def test_two_agents_in_one_host(agent: Agent) -> None:
    other = Agent("other", store="memory:", drain_limit=0)

    @other.skill
    def shout(text: str) -> str:
        return text.upper()

    @asynccontextmanager
    async def both(app: object) -> AsyncIterator[None]:
        async with agent.lifespan(app), other.lifespan(app):
            yield

    inner = Starlette(routes=[Mount("/inner", app=other.asgi())])
    host = Starlette(routes=[Mount(PATH, app=agent.asgi()), Mount("/deep", app=inner)], lifespan=both)
    with TestClient(host, base_url=HOST) as client:
        talk(client)
        card = client.get("/deep/inner/.well-known/agent-card.json").json()
        assert card["url"].endswith("/deep/inner/a2a")
        sent = rpc(client, "/deep/inner/a2a", "SendMessage", {"message": message("hi")}).json()["result"][
            "task"
        ]
        assert sent["artifacts"][0]["parts"] == [{"text": "HI"}]
        # Each has its own tasks.
        assert rpc(client, f"{PATH}/a2a", "GetTask", {"id": sent["id"]}).json()["error"]["code"] == -32001
