"""Several agents on one host: their paths, their tasks, their settings, and how they start together."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient as Browser

import trunkline
from tests.harness import SECRET, V1, ServerProcess
from tests.harness import Agent as Caller
from trunkline import Agent, Misuse
from trunkline.host import Host
from trunkline.wire.read import read_send


def author(name: str, **more: Any) -> Agent:
    agent = Agent(name, **more)

    @agent.skill
    async def say(text: str) -> str:
        """Say who answers."""
        return f"{name}: {text}"

    return agent


MODULE = """
from trunkline import Agent, Turn
one = Agent("One", description="The first.")
two = Agent("Two", description="The second & last.", id="second", reply="receipt")
other = Agent("Two")

@one.skill
async def say(text: str) -> str:
    return "one: " + text

@two.skill
async def answer(turn: Turn) -> str:
    return "two: " + turn.text

@other.skill
async def nothing(text: str) -> str:
    return text
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("hosted")
    (directory / "several.py").write_text(MODULE)
    with ServerProcess(directory, "several:one", "several:two", env=SECRET) as started:
        yield started


@pytest.fixture
def at(server: ServerProcess) -> Iterator[dict[str, Caller]]:
    paths = {"origin": "", "one": "/agents/one", "second": "/agents/second"}
    callers = {name: Caller(server.base + path) for name, path in paths.items()}
    yield callers
    for caller in callers.values():
        caller.close()


def _text(task: Any) -> str:
    return task["artifacts"][0]["parts"][0]["text"]


def test_each_agent_answers_at_its_path_and_the_first_at_the_origin(at: dict[str, Caller]) -> None:
    assert _text(at["origin"].send("hi")) == "one: hi"
    assert _text(at["one"].send("hi")) == "one: hi"
    assert _text(at["second"].send("hi")) == "two: hi"


def test_a_card_names_where_its_agent_is(server: ServerProcess, at: dict[str, Caller]) -> None:
    for name, path, agent in (
        ("origin", "", "One"),
        ("one", "/agents/one", "One"),
        ("second", "/agents/second", "Two"),
    ):
        card = at[name].http.get(f"{server.base}{path}/.well-known/agent-card.json", headers=V1).json()
        assert card["name"] == agent
        assert {one["url"] for one in card["supportedInterfaces"]} == {
            f"{server.base}{path}/a2a",
            f"{server.base}{path}",
        }


def test_a_task_is_found_at_its_own_agent_only(at: dict[str, Caller]) -> None:
    mine, other = at["one"].send("mine")["id"], at["second"].send("other")["id"]
    assert at["origin"].get(mine)["id"] == mine
    assert at["second"].get(other)["id"] == other
    for caller, task_id in ((at["second"], mine), (at["one"], other), (at["origin"], other)):
        assert caller.error("GetTask", {"id": task_id})["code"] == -32001
        assert caller.error("CancelTask", {"id": task_id})["code"] == -32001
        assert caller.error("SubscribeToTask", {"id": task_id})["code"] == -32001
        more = {
            "message": {"messageId": "m", "taskId": task_id, "role": "ROLE_USER", "parts": [{"text": "x"}]}
        }
        assert caller.error("SendMessage", more)["code"] == -32001
    listed = {name: {task["id"] for task in at[name].result("ListTasks")["tasks"]} for name in at}
    assert mine in listed["origin"] and listed["origin"] == listed["one"]
    assert other in listed["second"] and not listed["one"] & listed["second"]


def test_a_page_token_of_one_agent_is_none_of_another(at: dict[str, Caller]) -> None:
    for _ in range(2):
        at["one"].send("hi")
    token = at["one"].result("ListTasks", {"pageSize": 1})["nextPageToken"]
    assert at["one"].result("ListTasks", {"pageSize": 1, "pageToken": token})["tasks"]
    assert at["second"].error("ListTasks", {"pageSize": 1, "pageToken": token})["code"] == -32602


def test_one_message_id_sent_to_two_agents_is_two_tasks(at: dict[str, Caller]) -> None:
    message_id = str(uuid.uuid4())
    first, second = (at[name].send("hi", messageId=message_id)["id"] for name in ("origin", "second"))
    assert first != second
    assert at["one"].send("hi", messageId=message_id)["id"] == first
    assert at["second"].send("hi", messageId=message_id)["id"] == second


def test_rest_below_a_site(server: ServerProcess, at: dict[str, Caller]) -> None:
    http = at["second"].http
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    base = f"{server.base}/agents/second"
    task = http.post(f"{base}/message:send", json=body, headers=V1).json()["task"]
    assert http.get(f"{base}/tasks/{task['id']}", headers=V1).json()["id"] == task["id"]
    assert http.get(f"{base}/default/tasks/{task['id']}", headers=V1).json()["id"] == task["id"]
    # The dialect rule for /v1 is relative to the site.
    old = http.get(f"{base}/v1/tasks/{task['id']}").json()
    assert old["status"]["state"].startswith("TASK_STATE_")
    assert http.get(f"{server.base}/tasks/{task['id']}", headers=V1).status_code == 404


def test_an_unknown_agent_is_not_found_before_json_rpc(server: ServerProcess, at: dict[str, Caller]) -> None:
    for name in ("nobody", "One", "", "one%2fa2a"):
        assert at["one"].post({}, url=f"{server.base}/agents/{name}/a2a").status_code == 404


def test_reply_is_a_setting_of_the_site(at: dict[str, Caller]) -> None:
    params = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    assert at["one"].result("SendMessage", params)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert at["second"].result("SendMessage", params)["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"


def test_push_configs_belong_to_their_agent(at: dict[str, Caller]) -> None:
    task_id = at["second"].send("hi")["id"]
    config = {"taskId": task_id, "id": "c", "url": "https://hooks.example/x"}
    assert at["one"].error("CreateTaskPushNotificationConfig", config)["code"] == -32001
    # The name leads nowhere, which the address check says; the task itself was found.
    assert at["second"].error("CreateTaskPushNotificationConfig", config)["code"] == -32602


def test_the_page_lists_every_agent(server: ServerProcess, at: dict[str, Caller]) -> None:
    page = at["one"].http.get(server.base, headers={"Accept": "text/html"}).text
    assert "The second &amp; last." in page
    assert 'href="agents/one/.well-known/agent-card.json"' in page
    assert 'href="agents/second/.well-known/agent-card.json"' in page


def test_where_each_is_served_is_said(server: ServerProcess) -> None:
    assert f"server.ready url={server.base}/a2a " in server.text()
    assert f"agent.ready url={server.base}/agents/second/a2a " in server.text()


def test_equal_ids_are_an_error_that_names_both() -> None:
    with pytest.raises(Misuse, match=r"'The one' and 'the-one' of this host both have the id 'the-one'"):
        Host([(author("The one"), {}), (author("the-one"), {})])
    one = author("one")
    with pytest.raises(Misuse, match="both have the id"):
        Host([(one, {}), (one, {})])


@pytest.mark.parametrize(
    "name", ["store", "port", "cors_origins", "rate_limit", "push", "keys", "body_limit"]
)
def test_what_is_the_hosts_is_not_said_twice(name: str) -> None:
    values = {
        "cors_origins": (["https://a.example"], ["https://b.example"]),
        "push": (True, False),
        "keys": (["a-first-key"], ["another-key"]),
    }
    first, second = values.get(name, ("memory:", "sqlite:///x.db") if name == "store" else (1000, 2000))
    with pytest.raises(Misuse, match=f"agents 'one' and 'two' disagree on {name}") as raised:
        Host([(author("one", **{name: first}), {}), (author("two", **{name: second}), {})])
    assert "a-first-key" not in str(raised.value)


def test_one_may_speak_for_all() -> None:
    host = Host(
        [(author("one", wait_limit=5), {}), (author("two", store="memory:", body_limit=99, wait_limit=7), {})]
    )
    assert (host.settings.store, host.settings.body_limit) == ("memory:", 99)
    assert [own.wait_limit for _, own in host._agents] == [5, 7]


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Recipe Agent", "recipe-agent"),
        ("a_b.c-d", "a_b.c-d"),
        ("  Ünder  ", "nder"),
        ("x" * 80, "x" * 64),
        ("...", "agent-"),
        ("日本", "agent-"),
    ],
)
def test_the_id_is_the_slug_of_the_name(name: str, slug: str) -> None:
    made = Agent(name).id
    assert made == slug or (slug == "agent-" and made.startswith(slug))
    assert made == Agent(name).id


@pytest.mark.parametrize("given", ["all", "a b", "a/b", "x" * 65, "é", ".", "..", "a\n"])
def test_an_id_that_cannot_be(given: str) -> None:
    with pytest.raises(Misuse, match="cannot be the id of agent 'one'"):
        Agent("one", id=given)


def test_an_agent_called_all_needs_an_id() -> None:
    with pytest.raises(Misuse, match="give id="):
        Agent("All")
    assert Agent("All", id="everything").id == "everything"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _send(browser: Browser, path: str) -> Any:
    params = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return browser.post(f"{path}/a2a", json=body, headers=V1).json()["result"]["task"]


def test_agents_mounted_in_one_application_share_a_host_and_its_store(here: Path) -> None:
    one, two = author("one", drain_limit=1), author("two")
    app = FastAPI(lifespan=trunkline.lifespan(one, two))
    app.mount("/one", one.asgi())
    app.mount("/two", two.asgi())
    app.mount("/.well-known", two.card_routes("/two"))
    for _ in range(2):
        # An application may start again, as it does in tests.
        with Browser(app, base_url="http://localhost") as browser:
            assert _text(_send(browser, "/one")) == "one: hi"
            assert _text(_send(browser, "/two")) == "two: hi"
            card = browser.get("/.well-known/agent-card.json", headers=V1).json()
            assert card["name"] == "two"
            assert card["supportedInterfaces"][0]["url"] == "http://localhost/two/a2a"
            mine = browser.get("/one/.well-known/agent-card.json", headers=V1).json()
            assert mine["supportedInterfaces"][0]["url"] == "http://localhost/one/a2a"
            assert one.asgi().host is two.asgi().host
    assert [name for name in os.listdir(here) if name.endswith(".db")] == ["trunkline.db"]


def test_where_one_agent_is_mounted_the_others_of_its_host_are_not(here: Path) -> None:
    one, two = author("one"), author("two")
    app = FastAPI(lifespan=trunkline.lifespan(one, two))
    app.mount("/one", one.asgi())
    app.mount("/two", two.asgi())
    with Browser(app, base_url="http://localhost") as browser:
        page = browser.get("/two/", headers={"Accept": "text/html"}).text
        assert "<title>two</title>" in page
        assert "<h1>one</h1>" not in page
        assert 'href=".well-known/agent-card.json"' in page
        assert browser.get("/two/agents/two/.well-known/agent-card.json").json()["name"] == "two"
        assert browser.get("/two/agents/one/.well-known/agent-card.json").status_code == 404
        assert browser.post("/two/agents/one/a2a", json={}).status_code == 404


def test_agents_with_stores_of_their_own_keep_them(here: Path) -> None:
    one, two = author("one", store="memory:"), author("two", store=f"sqlite:///{here}/two.db")
    third = author("third", store="memory:")

    async def main() -> None:
        async with trunkline.lifespan(one, two, third)():
            hosts = [agent.asgi().host for agent in (one, two, third)]
            assert len({id(host) for host in hosts}) == 3

    asyncio.run(main())


def test_started_apart_on_one_file_they_are_told_how(here: Path) -> None:
    one, two = author("one"), author("two")

    async def main() -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(one.lifespan())
            with pytest.raises(
                Misuse, match=r"one and two of this process would each open.*trunkline\.lifespan"
            ):
                await stack.enter_async_context(two.lifespan())

    asyncio.run(main())


def test_one_that_was_not_started_says_how() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"lifespan=trunkline\.lifespan\(one, two\)"):
            await author("one", store="memory:").asgi()({"type": "http"}, None, None)  # type: ignore[arg-type]

    asyncio.run(main())


def test_agents_of_one_id_do_not_start_from_the_shell(tmp_path: Path) -> None:
    (tmp_path / "several.py").write_text(MODULE)
    apart = ServerProcess(tmp_path, "several:other", "several:one", "several:other", store="memory:")
    with pytest.raises(RuntimeError, match="both have the id 'two'"):
        apart.start()


def test_the_agents_of_a_host_are_in_the_log_of_their_tasks(here: Path) -> None:
    one, two = author("one"), author("two", id="zwei")

    async def main() -> list[str]:
        host = Host(
            [(one, {"store": "memory:", "drain_limit": 0}), (two, {"store": "memory:", "drain_limit": 0})]
        )
        async with host.lifespan():
            body = json.dumps(
                {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
            ).encode()
            found: list[str] = []
            for agent in host.agents:
                feed, opened = host.runner.submit("default", "me", read_send(body), agent=agent)
                await opened
                found.append(feed.state.agent)
            return found

    assert asyncio.run(main()) == ["one", "zwei"]
