"""`trunkline deliveries …`: what it prints and does beside a running server, alone, and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.agent.talk import until
from tests.conftest import Shelf
from tests.harness import SECRET, Agent, ServerProcess, params
from tests.hooks import Hooks
from trunkline.cli import admin
from trunkline.store.url import store_from_url

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(trunkline: Command) -> Command:
    """Run `trunkline deliveries`: exit code, output, complaint."""
    return partial(trunkline, "deliveries")


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    with Hooks() as made:
        yield made


def told(server: ServerProcess, url: str) -> str:
    """The id of a task that this url is told of."""
    agent = Agent(server.base)
    given = params("echo")
    given["configuration"]["taskPushNotificationConfig"] = {"id": "mine", "url": url}
    task_id = agent.result("SendMessage", given)["task"]["id"]
    agent.close()
    return task_id


@pytest.mark.slow
def test_what_failed_is_seen_and_posted_again(
    command: Command, hooks: Hooks, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = shelf.store()
    store = ("--store", url)

    def rows(*args: str) -> list[dict[str, object]]:
        code, out, said = command("list", "--json", *args, *store)
        assert (code, said) == (0, "")
        return json.loads(out)

    hooks.scripts["/good"], hooks.scripts["/bad"] = [200], [404]
    with ServerProcess(tmp_path, "trunkline.demo:agent", "--dev", store=url, env=SECRET) as server:
        good, bad = told(server, hooks.url("/good")), told(server, hooks.url("/bad"))
        hooks.wait("/good", 2)
        hooks.wait("/bad", 2)
        until(lambda: not rows("--state", "pending"))
        # Beside the server that has it open, newest task first.
        assert [(row["task_id"], row["state"], row["status"]) for row in rows()] == [
            (bad, "dead", 404), (bad, "dead", 404), (good, "done", 200), (good, "done", 200),
        ]  # fmt: skip
        assert rows("--state", "done") == rows("--task", good) == rows()[2:]
        assert rows("--limit", "1") == rows()[:1]
        assert rows("--tenant", "nobody") == rows("--state", "dropped") == []
        completed, working = [str(row["id"]) for row in rows("--task", bad)]

        code, out, _ = command("list", "--state", "dead", *store)
        head, _, *lines = [line for line in out.splitlines() if line.strip()]
        assert (code, head.split()[:3]) == (0, ["id", "state", "tries"])
        assert [line.split()[:5] for line in lines] == [
            [completed, "dead", "1", "HTTP", "404"],
            [working, "dead", "1", "HTTP", "404"],
        ]
        with monkeypatch.context() as narrow:
            # A terminal of the usual width shows as much.
            narrow.setenv("FORCE_COLOR", "1")
            narrow.setenv("COLUMNS", "80")
            assert command("list", "--state", "dead", *store)[1].count("HTTP 404") == 2
        assert command("list", "--state", "dropped", *store)[1] == "no such deliveries\n"
        shown = dict(
            line.split(None, 1) for line in command("show", working, *store)[1].splitlines() if "  " in line
        )
        assert (shown["task"], shown["config"], shown["state"], shown["event"]) == (bad, "mine", "dead", "2")
        assert shown["target"] == "127.0.0.1"
        assert json.loads(command("show", working, "--json", *store)[1]) == rows("--task", bad)[1]

        # The running server posts it again.
        hooks.scripts["/bad"] = [200]
        assert command("replay", working, *store) == (0, f"delivery {working} is due again\n", "")
        assert hooks.wait("/bad", 3)[2].id == working
        until(lambda: not rows("--state", "pending"))
        code, _, said = command("replay", "0198-nothing_1_2", *store)
        # A server that has the file refuses it as a mistake of usage; a database is read here.
        assert (code, "see the list of deliveries" in said) == (1 if url.startswith("postgres") else 2, True)
        assert server.stop() == 0
    everything = rows()
    with monkeypatch.context() as small:
        # Page by page it is the same.
        small.setattr(admin, "_LONGEST_PAGE", 1)
        assert rows() == everything
        assert json.loads(command("show", working, "--json", *store)[1])["id"] == working
    # Nobody has it open: it is due for whoever comes.
    assert [row["state"] for row in rows("--task", bad)] == ["dead", "done"]
    assert command("replay", "--dead", "--tenant", "nobody", *store)[1] == "0 deliveries are due again\n"
    assert command("replay", "--dead", "--task", bad, *store)[1] == "1 deliveries are due again\n"
    assert [row["state"] for row in rows("--task", bad)] == ["pending", "done"]
    with ServerProcess(tmp_path, "trunkline.demo:agent", "--dev", store=url, env=SECRET):
        assert hooks.wait("/bad", 4)[3].id == completed


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("list",), "there is no such file"),
        (("show", "a_1_b"), "there is no such file"),
        (("show", "../x"), "is not the ID of a delivery"),
        (("replay", "a b"), "is not the ID of a delivery"),
        (("replay", "--dead"), "there is no such file"),
        (("replay",), "name one delivery, or say --dead"),
        (("replay", "a_1_b", "--dead"), "name one delivery, or say --dead"),
        (("list", "--limit", "0"), "--limit"),
        (("list", "--store", "memory:"), "a store in memory ends with its process"),
    ],
)
def test_refusals_name_the_fix(command: Command, args: tuple[str, ...], said: str, tmp_path: Path) -> None:
    code, out, complaint = command(*args)
    assert (code, out) == (2, "")
    assert said in complaint
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_said(command: Command, tmp_path: Path) -> None:
    asyncio.run(_make_store(f"sqlite:///{tmp_path}/trunkline.db"))
    assert command("list") == (0, "no such deliveries\n", "")
    code, _, said = command("show", "a_1_b")
    assert (code, "there is no delivery 'a_1_b'" in said) == (2, True)
    code, _, said = command("list", "--state", "odd")
    assert (code, "state is one of pending, done, dead, dropped" in said) == (1, True)


async def _make_store(url: str) -> None:
    store = store_from_url(url)
    await store.open()
    await store.close()
