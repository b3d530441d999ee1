"""`trunkline tools`: the tools of agents as JSON, and calls of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mcp.types import CallToolResult

from tests.harness import ServerProcess

Run = Callable[..., tuple[int, str, str]]
KEY = "a-key-of-this-agent"
AGENT = f"""
from tests.bridge.agents import planner

agent, twin = planner(), planner(keys=["{KEY}"])
"""


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("tools")
    (folder / "far.py").write_text(AGENT)
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with (
        ServerProcess(folder, "far:agent", env=env, store="memory:") as one,
        ServerProcess(folder, "far:twin", env=env, store="memory:") as two,
    ):
        yield one.base, two.base


@pytest.fixture
def base(bases: tuple[str, str]) -> str:
    return bases[0]


@pytest.mark.parametrize(
    ("shape", "name", "schema"),
    [
        (None, ["function", "name"], ["function", "parameters"]),
        ("responses", ["name"], ["parameters"]),
        ("anthropic", ["name"], ["input_schema"]),
        ("mcp", ["name"], ["inputSchema"]),
    ],
)
def test_tools_in_every_shape(
    trunkline: Run, base: str, shape: str | None, name: list[str], schema: list[str]
) -> None:
    code, out, _ = trunkline("tools", base, *(["--format", shape] if shape else []), "--allow", "plan")
    assert code == 0
    (tool,) = json.loads(out)
    found, parameters = tool, tool
    for step in name:
        found = found[step]
    for step in schema:
        parameters = parameters[step]
    assert (found, parameters["required"]) == ("a2a__planner__plan", ["city"])


@pytest.mark.parametrize(
    ("flags", "skills"),
    [
        (["--tag", "travel"], ["plan", "book"]),
        (["--tag", "travel", "--deny", "book"], ["plan"]),
        (["--allow", "shout", "--allow", "plan"], ["shout", "plan"]),
    ],
)
def test_filters(trunkline: Run, base: str, flags: list[str], skills: list[str]) -> None:
    _, out, _ = trunkline("tools", base, *flags)
    assert [tool["function"]["name"].rpartition("__")[2] for tool in json.loads(out)] == skills


def test_two_agents_of_one_name_and_a_prefix(trunkline: Run, bases: tuple[str, str]) -> None:
    _, out, _ = trunkline("tools", *bases, "--allow", "shout", "--prefix", "team", "--format", "mcp")
    found = [tool["name"] for tool in json.loads(out)]
    assert len(set(found)) == 2
    assert all(name.startswith("team__planner__shout_") for name in found)


def test_a_call(trunkline: Run, base: str) -> None:
    call = ["tools", base, "--call", "a2a__planner__plan", "--arguments", '{"city": "Oslo"}']
    assert trunkline(*call) == (0, 'Result:\n  {"city":"Oslo","days":2}\n\n', "")
    code, out, _ = trunkline(*call, "-o", "json")
    result = CallToolResult.model_validate(json.loads(out))
    assert (code, result.structured_content and result.structured_content["data"]) == (
        0,
        [{"city": "Oslo", "days": 2}],
    )


def test_a_call_that_fails_or_asks(trunkline: Run, base: str) -> None:
    code, out, _ = trunkline("tools", base, "--call", "a2a__planner__fail", "--arguments", '{"query": "x"}')
    assert (code, out) == (1, "Error:\n  The agent failed: the oven is cold\n\n")
    code, out, _ = trunkline("tools", base, "--call", "a2a__planner__paint", "--arguments", '{"query": "x"}')
    assert code == 0
    assert out.startswith("Question:\n  Which colour?\n")


def test_a_file_of_agents(trunkline: Run, bases: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TL_KEY", KEY)
    open_, keyed = bases
    text = (
        f"agents:\n  - {{name: one, url: '{open_}'}}\n  - {{name: two, url: '{keyed}', apiKeyEnv: TL_KEY}}\n"
    )
    Path("agents.yaml").write_text(text)
    arguments = ["--arguments", '{"query": "hi"}']
    for name in ("one", "two"):
        code, out, _ = trunkline(
            "tools", "--agents", "agents.yaml", "--call", f"a2a__{name}__shout", *arguments
        )
        assert (code, out) == (0, "Result:\n  HI\n\n")


def test_a_key_for_one_agent(trunkline: Run, bases: tuple[str, str]) -> None:
    call = ["--call", "a2a__planner__shout", "--arguments", '{"query": "hi"}']
    assert trunkline("tools", bases[1], *call)[0] == 1
    assert trunkline("tools", bases[1], *call, "--api-key", KEY)[0] == 0
    code, _, complaint = trunkline("tools", *bases, "--api-key", KEY)
    assert (code, "--agents" in complaint) == (2, True)


def test_the_agent_of_the_environment(trunkline: Run, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2ACLI_AGENT_CARD", base)
    code, out, _ = trunkline("tools", "--allow", "shout")
    assert (code, len(json.loads(out))) == (0, 1)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 2, "no agent is named"),
        (["--agents", "agents.yaml", "http://127.0.0.1:9"], 2, "not both"),
        (["--agents", "agents.yaml", "--timeout", "3s"], 2, "--timeout: with --agents"),
        (["--agents", "none.yaml", "--arguments", "{}"], 2, "--call"),
        (["http://127.0.0.1:9", "--format", "xml"], 2, "choose openai or responses"),
        (["http://127.0.0.1:9", "--prefix", "a b"], 2, "prefix"),
        (["http://127.0.0.1:9"], 3, "127.0.0.1"),
    ],
)
def test_mistakes_name_the_fix(trunkline: Run, words: list[str], code: int, complaint: str) -> None:
    found, _, said = trunkline("tools", *words)
    assert found == code
    assert complaint in said
    # An agent that is not there is told once.
    assert "tools.agent_missing" not in said


def test_mistakes_as_json(trunkline: Run) -> None:
    code, out, _ = trunkline("tools", "-o", "json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "A2ACLI_ERR_USAGE")
