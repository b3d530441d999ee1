"""The tools of model agents, as a model uses them: what it is told, and what has happened then."""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import Caller, named, opened, run
from tests.gateway.model.openai_server import ModelServer, Reply, results
from trunkline.errors import Misuse
from trunkline.gateway.model.tools import TOOLS, read_arguments

SMALL = Path(__file__).parents[2] / "mcp" / "small_server.py"
ALL = "[/fetch, /search, /read, /write, /list, /mem, /mcp, /todo, /schedule]"
AGENTS = f'agents:\n  - {{name: helper, model: "openai:small", capabilities: {ALL}, limits: {{resultBytes: 600}}}}\n'
PLANNER = 'agents:\n  - {name: helper, model: "openai:small", capabilities: [/schedule, /mem, /mcp]}\n'


def scripted(body: dict[str, Any]) -> Reply:
    """A model that calls the tools that its caller names, then says what they gave."""
    said = next(one["content"] for one in reversed(body["messages"]) if one["role"] == "user")
    return Reply(["Done."]) if body["messages"][-1]["role"] == "tool" else Reply(calls=json.loads(said))


@contextmanager
def web(trap: str = "") -> Iterator[str]:
    """A page, a picture, a search engine, and a page that says what its reader shall do."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            kind, body = {
                "/page": ("text/html", b"<p>Tea <script>no()</script>is green</p>"),
                "/trap": ("text/plain", trap.encode()),
                "/long": ("text/plain", b"x" * 5000),
                "/picture": ("image/png", b"\x89PNG"),
                "/search": (
                    "application/json",
                    json.dumps({"results": [{"title": query, "url": "u", "content": None}]}).encode(),
                ),
            }.get(path, ("text/plain", b"gone"))
            self.send_response(404 if body == b"gone" else 200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def use(ask: Caller, server: ModelServer, *calls: tuple[str, Any]) -> list[str]:
    """What the model was told of what it called."""
    await ask.say("helper", json.dumps(calls))
    return results(server.asked[-1])[-len(calls) :]


def workspace(folder: Path, search: str = "http://search.test") -> Path:
    servers = {"small": {"command": sys.executable, "args": [str(SMALL)]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (folder / "hub.yaml").write_text(f"search: {search}\n")
    return folder


def test_tools_of_the_web_of_files_and_of_memory(tmp_path: Path) -> None:
    async def scene(base: str, server: ModelServer) -> None:
        folder = workspace(tmp_path, f"{base}/search")
        async with opened(folder, AGENTS, OPENAI_BASE_URL=server.url) as ask:
            assert (await ask.ready("helper"))["state"] == "ready"
            found = await use(
                ask, server,
                ("fetch", {"url": f"{base}/page"}),
                ("fetch", {"url": f"{base}/picture"}),
                ("fetch", {"url": f"{base}/none"}),
                ("fetch", {"url": "file:///etc/passwd"}),
                ("fetch", {"url": f"{base}/long"}),
                ("search", {"query": "green tea"}),
            )  # fmt: skip
            assert found[:3] == ["Tea is green", "ERR: image/png is no text", "ERR: HTTP 404"]
            assert found[3].startswith("ERR: ")
            assert found[4] == "x" * 600 + "\n[cut: the rest is left out]"
            assert found[5] == "q=green+tea&format=json\nu\n"
            assert await use(
                ask, server,
                ("write", {"path": "a/b.txt", "text": "hallo"}),
                ("read", {"path": "a/b.txt"}),
                ("read", {"path": "../../agents.yaml"}),
                ("list", {}),
                ("write", {"path": "x", "base64": "?"}),
                ("write", {"path": "x", "text": 3}),
            ) == [
                "a/b.txt has 5 bytes.",
                "hallo",
                "ERR: '..' is no name of a file",
                "a/b.txt 5",
                "ERR: base64 is not base64",
                "ERR: these are no arguments of the tool: Expected `str`, got `int` - at `$.text`",
            ]  # fmt: skip
            assert (tmp_path / "files" / "default" / "a" / "b.txt").read_text() == "hallo"
            await use(ask, server, ("mem", {"action": "add", "text": "the cat is grey"}))
            (kept,) = await use(ask, server, ("mem", {"action": "search", "text": "cat"}))
            note, _, text = kept.partition(": ")
            assert text == "the cat is grey"
            assert await use(
                ask, server, ("mem", {"action": "delete", "id": note}), ("mem", {"action": "list"})
            ) == [f"{note} is deleted.", "There are none."]
            await use(ask, server, ("todo", {"action": "add", "text": "wash up"}))
            (todo,) = await use(ask, server, ("todo", {"action": "list"}))
            known = todo.partition(":")[0]
            assert (
                await use(
                    ask, server, ("todo", {"action": "done", "id": known}), ("todo", {"action": "list"})
                )
            )[1] == f"{known}: (done) wash up"

    with web() as base, ModelServer(scripted) as server:
        run(scene(base, server))


@pytest.mark.slow
def test_tools_of_mcp_servers_and_of_the_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS", sys.executable)

    async def scene(server: ModelServer) -> None:
        async with opened(workspace(tmp_path), AGENTS, OPENAI_BASE_URL=server.url) as ask:
            await ask.ready("helper")
            found = await use(
                ask, server,
                ("mcp", {}),
                ("mcp", {"server": "small"}),
                ("mcp", {"server": "small", "tool": "say", "arguments": {"text": "hello"}}),
                ("mcp", {"server": "small", "tool": "fail"}),
                ("mcp", {"server": "none", "tool": "x"}),
            )  # fmt: skip
            assert found[0] == '[{"name":"small"}]'
            assert '"name":"add"' in found[1] and '"inputSchema"' in found[1]
            assert found[2] == "hello"
            assert "on purpose" in found[3] and found[3].startswith("ERR: ")
            assert found[4] == "ERR: the manifest has no server 'none'; it has small"
            drawn = json.dumps([("mcp", {"server": "small", "tool": "picture"})])
            task = await ask.say("helper", drawn)
            assert results(server.asked[-1])[-1] == "picture-1.png was given to the caller."
            (picture,) = named(task, "picture-1.png")
            assert base64.b64decode(picture["parts"][0]["raw"]) == b"\x89PNG\x00\xff"
            assert picture["parts"][0]["mediaType"] == "image/png"
            (used,) = named(task, "tool_call")
            assert used["parts"][0]["data"] == {"tool": "mcp:small.picture", "ok": True}
            daily = {"action": "create", "id": "daily", "schedule": "0 9 * * *", "message": "look"}
            made, again, listed, wrong, gone = await use(
                ask, server,
                ("schedule", daily),
                ("schedule", daily),
                ("schedule", {"action": "list"}),
                ("schedule", {**daily, "id": "bad", "schedule": "never"}),
                ("schedule", {"action": "delete", "id": "other"}),
            )  # fmt: skip
            assert made.startswith("daily is planned, next at ") and again == "daily is planned."
            assert listed == "daily: 0 9 * * *: look"
            assert wrong.startswith("ERR: ") and gone == "ERR: nothing is planned as 'other'"
            _, ceremonies = await ask("GET /api/ceremonies")
            (one,) = ceremonies["items"]
            assert (one["targets"], one["skill"], one["createdBy"]) == (["helper"], "chat", "anonymous")
            _, started = await ask(f"POST /api/ceremonies/{one['id']}/run", {})
            await ask.until(
                f"GET /api/tasks/{started['taskId']}",
                lambda told: told["state"] in ("completed", "failed"),
            )
            assert server.asked[-1]["messages"][-1]["content"].startswith("look")
            assert await use(ask, server, ("schedule", {"action": "delete", "id": "daily"})) == [
                "daily is deleted."
            ]

    def answer(body: dict[str, Any]) -> Reply:
        last = str(body["messages"][-1]["content"])
        return Reply(["Looked."]) if last.startswith("look") else scripted(body)

    with ModelServer(answer) as server:
        run(scene(server))


def test_a_model_plans_no_more_than_twenty_however_much_is_planned_besides(tmp_path: Path) -> None:
    async def scene(server: ModelServer) -> None:
        async with opened(tmp_path, PLANNER, OPENAI_BASE_URL=server.url) as ask:
            await ask.ready("helper")
            once = {
                "name": "b",
                "schedule": "0 9 * * *",
                "skill": "chat",
                "targets": ["helper"],
                "message": "x",
            }
            for n in range(201):
                status, made = await ask("POST /api/ceremonies/create", {**once, "id": f"a-{n:03}"})
                assert status == 200, made
            each = {"action": "create", "schedule": "* * * * *", "message": "again"}
            found = await use(ask, server, *[("schedule", {**each, "id": f"n{n}"}) for n in range(22)])
            assert [one.startswith("n") for one in found] == [*[True] * 20, False, False]
            assert found[20] == "ERR: at most 20 are planned at a time; delete one first"
            known, gone, foreign, long, unnamed = await use(
                ask, server,
                ("schedule", {"action": "list"}),
                ("schedule", {"action": "delete", "id": "n7"}),
                ("schedule", {"action": "delete", "id": "../a-001"}),
                ("schedule", {**each, "id": "n" * 60}),
                ("schedule", each),
            )  # fmt: skip
            assert len(known.splitlines()) == 20 and gone == "n7 is deleted."
            assert foreign == "ERR: nothing is planned as '../a-001'"
            # What has no room is refused, and not cut to the id of another.
            assert "is no id: give 1 to 64" in long and unnamed == "ERR: give an id"

    with ModelServer(scripted) as server:
        run(scene(server))


def test_calls_with_one_id_are_each_done_and_answered(tmp_path: Path) -> None:
    def twins(body: dict[str, Any]) -> Reply:
        if results(body):
            return Reply(["Done."])
        calls = [("mem", {"action": "add", "text": "one"}), ("mem", {"action": "add", "text": "two"})]
        return Reply(calls=[*calls, ("mem", {"action": "list"}), ("mcp", {"server": "x"})], one_id=True)

    async def scene(server: ModelServer) -> None:
        async with opened(tmp_path, PLANNER, OPENAI_BASE_URL=server.url) as ask:
            await ask.ready("helper")
            task = await ask.say("helper", "go")
            first, second, listed, without = results(server.asked[-1])
            assert first != second and first.startswith("Kept as ") and second.startswith("Kept as ")
            assert [one.partition(": ")[2] for one in listed.splitlines()] == ["one", "two"]
            assert len(named(task, "tool_call")) == 4
            # And nobody is told where on the machine of the hub a file is missing.
            assert without.startswith("ERR: there is no mcp.json; ")

    with ModelServer(twins) as server:
        run(scene(server))


def test_pages_are_fetched_only_where_the_egress_rule_allows(tmp_path: Path) -> None:
    async def scene(base: str, server: ModelServer) -> None:
        async with opened(workspace(tmp_path), AGENTS, dev=False, OPENAI_BASE_URL=server.url) as ask:
            await ask.ready("helper")
            found = await use(
                ask,
                server,
                ("fetch", {"url": f"{base}/page"}),
                ("fetch", {"url": "http://169.254.169.254/x"}),
                ("fetch", {"url": "http://unknown.invalid/x"}),
            )
            assert all(one.startswith("ERR: ") and "Tea" not in one for one in found)
            texts = {
                re.sub(r"127\.0\.0\.1|169\.254\.169\.254|unknown\.invalid", "HOST", one) for one in found
            }
            assert len(texts) == 1, "an inner address and an unknown name are refused alike"

    with web() as base, ModelServer(scripted) as server:
        run(scene(base, server))


def test_the_egress_rule_of_a_tenant_is_its_models_too(tmp_path: Path) -> None:
    async def scene(base: str, server: ModelServer) -> None:
        folder = workspace(tmp_path)
        async with opened(
            folder, "agents: []", dev=False, key="operators-key-1", OPENAI_BASE_URL=server.url
        ) as boss:
            entry = {"name": "helper", "model": "openai:small", "capabilities": ["/fetch"]}
            said: list[str] = []
            for name in ("north", "south"):
                caller = await boss.tenant(name)
                await caller("POST /api/agents", entry)
                await caller.ready("helper")
                if name == "north":
                    settings = {"settings": {"egress_networks": ["127.0.0.0/8"]}}
                    status, answered = await boss("PATCH /admin/tenants/north", settings)
                    assert status == 200, answered
                said += await use(caller, server, ("fetch", {"url": f"{base}/page"}))
            assert said[0] == "Tea is green" and said[1].startswith("ERR: ")

    with web() as base, ModelServer(scripted) as server:
        run(scene(base, server))


def test_arguments_are_what_the_schema_says() -> None:
    assert TOOLS["mem"].schema == {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["add", "delete", "list", "search"]},
            "text": {"description": "The note, or the words to search for.", "type": "string", "default": ""},
            "id": {"type": "string", "default": ""},
        },
        "required": ["action"],
        "additionalProperties": False,
    }
    for wrong in ("{", "[1]", {"query": 1}, {"query": "a", "more": 1}, None, "[" * 5000):
        with pytest.raises(Misuse):
            read_arguments(TOOLS["search"], wrong)
    assert read_arguments(TOOLS["list"], "").path == ""
