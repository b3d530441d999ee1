"""Rows 57 and 60, PK 10: a file of agents; every key of it has an effect, every mistake its line."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.agents import planner
from trunkline.bridge.outcome import ToolOutcome
from trunkline.bridge.registry import load_agents
from trunkline.bridge.tools import tools
from trunkline.errors import Misuse
from trunkline.net.in_process import InProcessHttpClient

KEY = "a-key-of-this-agent"


def written(folder: Path, text: str, name: str = "agents.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_is_an_empty_toolbox(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        async with load_agents(tmp_path / "none.yaml") as agents, tools(agents) as box:
            return len(box)

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(main()) == 0
    assert "registry.missing" in caplog.text


@pytest.mark.parametrize("text", ["", "# nothing\n", "agents:\n", "agents: []\n", "{}"])
def test_no_agents_in_it(tmp_path: Path, text: str) -> None:
    assert load_agents(written(tmp_path, text)) == {}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("agents: [\n", 2, "expected"),
        ("agents:\n  - name: a\n    name: b\n", 3, "duplicate key"),
        ("- name: a\n", 0, "begin with `agents:`"),
        ("agents: 7\n", 1, "must be a list"),
        ("agents:\n  - just text\n", 2, "at least name and url"),
        ("agents:\n  - url: http://x\n", 2, "name"),
        ("agents:\n  - name: a\n    url: 7\n", 3, "url: Expected `str`"),
        (
            "agents:\n  - name: a\n    url: http://x\n    colour: red\n",
            4,
            "colour: unknown field; there are name, url,",
        ),
        (
            "agents:\n  - name: a\n    url: http://x\n    auth:\n      scheme: bearer\n      tokn: x\n",
            6,
            "auth.tokn: unknown field; did you mean 'token'?",
        ),
        (
            "agents:\n  - name: a\n    url: http://x\n    auth:\n      token: 7\n",
            5,
            "auth.token: expected text",
        ),
        (
            "agents:\n  - name: a\n    url: http://x\n    auth: {type: kerberos}\n",
            4,
            "'kerberos' is neither bearer",
        ),
        ("agents:\n  - name: a\n    url: http://x\n    timeout: soon\n", 4, "timeout: Expected `float"),
        ("agents:\n  - name: a\n    url: http://x\n    skillFilter: {only: [b]}\n", 4, "skill_filter.only"),
        ("agents:\n  - name: a\n    url: ${TL_NOWHERE}/a2a\n", 3, "TL_NOWHERE is not set"),
        ("agents:\n  - name: a\n    url: http://x\n    headersFromEnv: [X-Team]\n", 4, "Name=VARIABLE"),
        ("agents:\n  - name: a\n    url: http://x\n  - name: a\n    url: http://y\n", 4, "two agents 'a'"),
        ("peers: []\n", 1, "the list is called agents"),
        (
            "agents:\n  a:\n    url: http://x\n    skills:\n      - b\n      - {name: c, colour: red}\n",
            6,
            "skills[1].colour: unknown field; there are name, description",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(Misuse) as told:
        load_agents(written(tmp_path, text))
    assert words in str(told.value)
    assert f"agents.yaml, line {line}" in str(told.value) or not line


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "agents.yaml"):
        with pytest.raises(Misuse, match=str(path)):
            load_agents(path)


def test_a_secret_that_does_not_fit_stays_unsaid(tmp_path: Path) -> None:
    with pytest.raises(Misuse) as told:
        load_agents(written(tmp_path, "agents: [{name: a, url: http://x, auth: {token: [hunter2]}}]"))
    assert "hunter2" not in str(told.value)


class World:
    """An agent in this process, and what its callers sent it."""

    def __init__(self, **settings: object) -> None:
        self.app = planner(**settings).asgi()
        self.seen: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/a2a":
            self.seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await self.app(scope, receive, send)

    def call(self, path: Path, name: str, arguments: dict[str, Any]) -> ToolOutcome:
        async def main() -> ToolOutcome:
            http_client = InProcessHttpClient(self)
            async with (
                self.app.lifespan(),
                load_agents(path, http_client=http_client) as agents,
                tools(agents) as box,
            ):
                outcome = await box.call(name, arguments)
            await http_client.close()
            return outcome

        return asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize(
    ("lines", "header", "value"),
    [
        ("apiKeyEnv: TL_KEY", "x-api-key", KEY),
        ("api_key_env: TL_KEY", "x-api-key", KEY),
        ("auth: {scheme: bearer, token_env: TL_KEY}", "authorization", f"Bearer {KEY}"),
        ("auth: {tokenEnv: TL_KEY}", "authorization", f"Bearer {KEY}"),
        ("auth: {scheme: apiKey, credentialsEnv: TL_KEY}", "x-api-key", KEY),
        (f"auth: {{type: bearer, token: {KEY}, token_env: TL_UNSET}}", "authorization", f"Bearer {KEY}"),
        ("auth: {token: '${TL_KEY}'}", "authorization", f"Bearer {KEY}"),
        ("headers: {X-Api-Key: '${TL_KEY}', X-Team: blue}", "x-team", "blue"),
        ("headers: {X-Api-Key: '${TL_UNSET:-" + KEY + "}'}", "x-api-key", KEY),
        ("headers_from_env: {X-Api-Key: TL_KEY}", "x-api-key", KEY),
        ("headers_from_env: ['X-Api-Key=TL_KEY']", "x-api-key", KEY),
    ],
)
def test_credentials_and_headers_reach_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, header: str, value: str
) -> None:
    monkeypatch.setenv("TL_KEY", KEY)
    monkeypatch.setenv("TL_BASE", "http://localhost")
    world = World(keys=[KEY])
    path = written(tmp_path, f"agents:\n  - name: near\n    url: ${{TL_BASE}}/a2a\n    {lines}\n")
    assert world.call(path, "a2a__near__shout", {"query": "hi"}).text == "HI"
    assert world.seen[-1][header] == value


def test_an_unset_variable_is_told_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TL_UNSET", raising=False)
    world = World()
    more = "headersFromEnv: [X-Team=TL_UNSET]"
    path = written(tmp_path, f"agents: [{{name: near, url: http://localhost, apiKeyEnv: TL_UNSET, {more}}}]")
    with caplog.at_level(logging.WARNING):
        assert world.call(path, "a2a__near__shout", {"query": "hi"}).text == "HI"
    assert "registry.variable_unset agent=near variable=TL_UNSET" in caplog.text
    assert not {"x-api-key", "x-team"} & world.seen[-1].keys()


@pytest.mark.parametrize("limit", ["timeout: 0.1", "timeout_ms: 100"])
def test_a_timeout_of_its_own(tmp_path: Path, limit: str) -> None:
    path = written(tmp_path, f"agents: [{{name: near, url: http://localhost, {limit}}}]")
    outcome = World().call(path, "a2a__near__hang", {"query": "x"})
    assert outcome.is_error and "took too long" in outcome.words


class Failing(World):
    """Answers 503 so many times before it serves."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/a2a" and self.times:
            self.times -= 1
            await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await super().__call__(scope, receive, send)


@pytest.mark.parametrize(("retries", "is_error"), [(0, True), (2, False)])
def test_retries_of_its_own(tmp_path: Path, retries: int, is_error: bool) -> None:
    path = written(tmp_path, f"agents: [{{name: near, url: http://localhost, retries: {retries}}}]")
    assert Failing(2).call(path, "a2a__near__shout", {"query": "x"}).is_error is is_error


def test_a_version_of_its_own(tmp_path: Path) -> None:
    world = World()
    for version in ("1.0", "0.3"):
        path = written(tmp_path, f"agents: [{{name: near, url: http://localhost, version: '{version}'}}]")
        assert world.call(path, "a2a__near__shout", {"query": "x"}).text == "X"
    assert [seen.get("a2a-version") == "1.0" for seen in world.seen] == [True, False]


@pytest.mark.parametrize(
    ("given", "skills"),
    [
        ("allow: [shout, plan]", {"shout", "plan"}),
        ("allowlist: [shout]", {"shout"}),
        ("tags: [travel]", {"plan", "book"}),
        ("allow: [p*], blocklist: [paint]", {"plan"}),
    ],
)
def test_a_filter_of_its_own(tmp_path: Path, given: str, skills: set[str]) -> None:
    path = written(tmp_path, f"agents: [{{name: near, url: http://localhost, skill_filter: {{{given}}}}}]")
    assert set(_offered(path)) == skills


def _offered(path: Path) -> dict[str, str]:
    async def main() -> dict[str, str]:
        app = planner().asgi()
        http_client = InProcessHttpClient(app)
        async with app.lifespan(), load_agents(path, http_client=http_client) as agents, tools(agents) as box:
            offered = {tool.skill: tool.description for tool in box}
        await http_client.close()
        return offered

    return asyncio.run(asyncio.wait_for(main(), 20))


def test_skills_that_only_the_operator_knows_of(tmp_path: Path) -> None:
    text = "agents: [{name: near, url: http://localhost, skills: [shout, {name: whisper, description: Softly.}]}]"
    offered = _offered(written(tmp_path, text))
    assert (offered["shout"], offered["whisper"]) == ("Say it loud.", "Softly.")


def test_an_agent_without_a_card_has_the_skills_of_the_file(tmp_path: Path) -> None:
    text = "agents: [{name: far, url: 'http://127.0.0.1:9', retries: 0, skills: [sitrep]}]"

    async def main() -> tuple[list[str], list[str]]:
        async with load_agents(written(tmp_path, text)) as agents, tools(agents) as box:
            return [tool.name for tool in box], list(box.missing)

    assert asyncio.run(asyncio.wait_for(main(), 20)) == (["a2a__far__sitrep"], ["far"])


def test_json_and_a_mapping_from_names(tmp_path: Path) -> None:
    text = '{"agents": {"near": {"url": "http://localhost", "auth": {"type": "bearer", "token": "x"}}}}'
    agents = load_agents(written(tmp_path, text, "a2a_agents.json"))
    assert list(agents) == ["near"]
    asyncio.run(agents.close())


def test_the_names_of_other_registries(tmp_path: Path) -> None:
    text = "a2a_agents:\n  - name: near\n    url: http://localhost\n    timeout_ms: 100\n"
    agents = load_agents(written(tmp_path, text))
    assert list(agents) == ["near"]
    asyncio.run(agents.close())
