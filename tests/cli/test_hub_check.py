"""`trunkline hub check` on workspaces that parse and cannot run: each finding has its file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.flow.surfaces import DELEGATE, workflow
from trunkline.cli.hub_check import UNCERTAIN, check
from trunkline.hub.template import write_workspace

AGENTS = """agents:
  - name: writer
    url: ${MOCKS_URL}/writer
  - name: painter
    import: painters:agent
  - name: flow
    workflow: workflows/flow.json
  - name: talker
    model: openai:small
    capabilities: [/mem]
"""
MOCKS = """agents:
  - name: writer
    agent: {name: Writer, skills: [{id: draft, description: Writes}]}
    otherwise: Written.
"""
PAINTERS = """from trunkline import Agent

agent = Agent("Painter")

@agent.skill
async def paint(text: str) -> str:
    return text

@agent.skill(id="sketch", public=False)
async def draw(text: str) -> str:
    return text
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace in which nothing is wrong; a test adds what is."""
    monkeypatch.setenv("OPENAI_API_KEY", "a key of nobody")
    for name, text in {
        "agents.yaml": AGENTS,
        "mocks.yaml": MOCKS,
        "painters.py": PAINTERS,
        "workflows/flow.json": json.dumps(workflow()),
        "ceremonies/right.yaml": 'name: R\nschedule: "0 7 * * *"\nskill: draft\ntargets: [writer]\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert check(str(tmp_path)) == []
    return tmp_path


def schedule(workspace: Path, **members: str) -> None:
    """Write `ceremonies/s.yaml`: name, schedule and skill, then the members from line 4 on."""
    lines = ["name: S", 'schedule: "0 7 * * *"', f"skill: {members.pop('skill', 'draft')}"]
    lines += [f"{name}: {value}" for name, value in members.items()]
    (workspace / "ceremonies/s.yaml").write_text("\n".join(lines))


@pytest.mark.parametrize("skill", ["draft", "paint", "sketch", "flow", "chat", "memory"])
def test_schedule_for_a_skill_of_any_kind_of_agent_is_accepted(workspace: Path, skill: str) -> None:
    schedule(workspace, skill=skill)
    assert check(str(workspace)) == []


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"skill": "nope"}, "line 3: skill: no agent has the skill 'nope'"),
        ({"skill": "paint", "targets": "[writer]"}, "line 3: skill: no agent of writer has the skill 'paint'"),
        ({"targets": "[writer, gone]"}, "line 4: targets.1: agent 'gone' not found"),
        ({"notifyChannel": "ops-room"},
         "line 4: notifyChannel: channel 'ops-room' is not configured; set DISCORD_WEBHOOK_OPS_ROOM, "
         "or add it to notify"),
        ({"notifyWebhookEnv": "HOOK_OF_NOBODY"},
         "line 4: notifyWebhookEnv: the variable HOOK_OF_NOBODY is not set"),
    ],
)  # fmt: skip
def test_schedule_that_cannot_run_or_report_is_found(
    workspace: Path, members: dict[str, str], found: str
) -> None:
    schedule(workspace, **members)
    assert check(str(workspace)) == [f"ceremonies/s.yaml, {found}"]


def test_channel_that_is_configured_is_accepted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule(workspace, notifyChannel="ops-room")
    monkeypatch.setenv("DISCORD_WEBHOOK_OPS_ROOM", "https://example.com/hook")
    assert check(str(workspace)) == []


BOT = f"{{name: team, discord: '4711', discord_token_env: BOT, discord_public_key: '{'0' * 64}'}}"


@pytest.mark.parametrize(
    ("channel", "receiver", "is_known"),
    [
        ('"1469080556720623699"', BOT, True),
        ("team", BOT, True),
        ("office", BOT, False),
        ("office", "{name: office, webhook: 'https://example.com'}", True),
        ('"1469080556720623699"', "{name: office, webhook: 'https://example.com'}", False),
    ],
)
def test_channel_of_a_receiver_or_a_bot_is_accepted(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, channel: str, receiver: str, is_known: bool
) -> None:
    schedule(workspace, notifyChannel=channel)
    monkeypatch.setenv("BOT", "token")
    with (workspace / "hub.yaml").open("a") as file:
        file.write(f"notify: [{receiver}]\n")
    found = ["notifyChannel" in one for one in check(str(workspace))]
    assert found == ([] if is_known else [True])


def test_skill_that_only_a_remote_card_can_name_is_a_warning(workspace: Path, trunkline: Run) -> None:
    schedule(workspace, skill="nope")
    (workspace / "agents.d").mkdir()
    (workspace / "agents.d/far.yaml").write_text("name: far\nurl: https://far.example\n")
    (found,) = check(str(workspace))
    assert found == (
        f"{UNCERTAIN}ceremonies/s.yaml, line 3: skill: no agent is known to have the skill 'nope'; it may be on the card of far"
    )
    assert trunkline("hub", "check", str(workspace))[:2] == (0, f"{found}\n")
    (workspace / "agents.d/far.yaml").unlink()
    assert trunkline("hub", "check", str(workspace))[0] == 2


def test_agents_and_skills_of_hub_yaml_exist(workspace: Path) -> None:
    (workspace / "hub.yaml").write_text(
        "helm: gone\nrouting:\n  splits:\n    draft: {writer: 1}\n    nope:\n      gone: 1\n"
    )
    assert check(str(workspace)) == [
        "hub.yaml, line 1: helm: agent 'gone' not found",
        "hub.yaml, line 6: routing.splits.nope: no agent has the skill 'nope'",
        "hub.yaml, line 6: routing.splits.nope: agent 'gone' not found",
    ]


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("nobody:small", "agents.d/m.yaml, line 2: m: nobody:small: Unknown provider: nobody"),
        (
            "anthropic:small\nadvisor: {model: 'nobody:big'}",
            "agents.d/m.yaml, line 3: m: nobody:big: Unknown",
        ),
    ],
)
def test_model_of_an_unknown_provider_is_found(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, model: str, found: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of nobody")
    (workspace / "agents.d").mkdir()
    (workspace / "agents.d/m.yaml").write_text(f"name: m\nmodel: {model}\n")
    (one,) = check(str(workspace))
    assert one.startswith(found)


def test_workflow_that_nobody_can_execute_is_found(workspace: Path) -> None:
    nodes: list[dict[str, Any]] = [
        {"id": "put", "type": "step", "config": {"handler": "nobody"}},
        {"id": "paint", "type": "agent_delegate",
         "config": {"agent_id": "painter", "protocol": "a2a", "input_mapping": {}}},
        DELEGATE,
    ]  # fmt: skip
    (workspace / "workflows/flow.json").write_text(json.dumps(workflow(*nodes), indent=1))
    found = sorted(check(str(workspace)))
    lines = (workspace / "workflows/flow.json").read_text().splitlines()
    step, coder = [
        next(n for n, line in enumerate(lines, 1) if word in line) for word in ('"nobody"', '"coder"')
    ]
    assert [one.partition(": /")[0] for one in found] == [
        f"workflows/flow.json, line {step}", f"workflows/flow.json, line {coder}",
    ]  # fmt: skip
    assert "no steps are configured; set WORKFLOW_ENGINE_STEP_HANDLERS or the setting flow_steps" in found[0]
    assert "agent 'coder' not found in the files of this hub" in found[1]


def test_workspace_that_is_written_has_no_finding(tmp_path: Path) -> None:
    write_workspace(tmp_path / "demo")
    assert check(str(tmp_path / "demo")) == []


def test_modules_of_steps_and_delegates_exist(workspace: Path) -> None:
    entries = "[a2a=gone.inner:agents, mcp=painters:agent, sdk=painters:gone]"
    settings = f"settings:\n  flow_steps: [painters, nowhere]\n  flow_delegates: {entries}\n"
    (workspace / "hub.yaml").write_text(settings)
    none = "neither in the workspace nor installed"
    assert check(str(workspace)) == [
        f"hub.yaml, line 2: flow_steps: there is no module 'nowhere', {none}",
        f"hub.yaml, line 3: flow_delegates: there is no module 'gone.inner', {none}",
        "hub.yaml, line 3: flow_delegates: module 'painters' has no 'gone'",
    ]
    (workspace / "hub.yaml").write_text("settings:\n  flow_delegates: [odd]\n")
    (found,) = check(str(workspace))
    assert found.startswith("hub.yaml, line 2: ")
    assert "flow_delegates" in found and "'odd' is not PROTOCOL=module:object" in found


def test_cooldown_is_for_a_skill_of_its_agent(workspace: Path) -> None:
    (workspace / "agents.d").mkdir()
    entry = "name: painter\nimport: painters:agent\ncooldown:\n  paint: 1h\n  nope: 1h\n"
    (workspace / "agents.d/painter.yaml").write_text(entry)
    assert check(str(workspace)) == [
        "agents.d/painter.yaml, line 5: painter: cooldown: it has no skill 'nope'"
    ]


def test_agent_with_a_mistake_is_not_reported_as_missing_too(workspace: Path) -> None:
    schedule(workspace, skill="nope", targets="[broken]")
    (workspace / "agents.d").mkdir()
    (workspace / "agents.d/broken.yaml").write_text("name: broken\nurl: 5\n")
    found = [one for one in check(str(workspace)) if not one.startswith(UNCERTAIN)]
    assert found == ["agents.d/broken.yaml, line 2: broken: url: expected string, got integer"]


def test_typos_of_names_and_members_suggest_the_closest_one(workspace: Path) -> None:
    (workspace / "hub.yaml").write_text("helm: writr\n")
    assert check(str(workspace)) == [
        "hub.yaml, line 1: helm: agent 'writr' not found; did you mean 'writer'?"
    ]
    (workspace / "hub.yaml").write_text("name: a\nsetings: {}\n")
    assert check(str(workspace)) == ["hub.yaml, line 2: setings: unknown field; did you mean 'settings'?"]
    (workspace / "hub.yaml").write_text("notify:\n  - {name: a, webhok: https://hooks.example/a}\n")
    found = check(str(workspace))
    assert found == ["hub.yaml, line 2: notify[0].webhok: unknown field; did you mean 'webhook'?"]
    (workspace / "hub.yaml").unlink()
    schedule = workspace / "ceremonies/right.yaml"
    schedule.write_text(schedule.read_text().replace("skill: draft", "skill: drft"))
    found = check(str(workspace))
    assert found == [
        "ceremonies/right.yaml, line 3: skill: no agent of writer has the skill 'drft'; did you mean 'draft'?"
    ]


@pytest.mark.parametrize(
    ("imported", "error"),
    [
        ("paintrs:agent", "neither in the workspace nor installed; did you mean 'painters'?"),
        ("painters:agnt", "module 'painters' has no 'agnt'; did you mean 'agent'?"),
    ],
)
def test_misspelt_module_and_agent_suggest_the_closest_name(
    workspace: Path, imported: str, error: str
) -> None:
    (workspace / "agents.yaml").write_text(f"agents:\n  - name: p\n    import: {imported}\n")
    found = [one for one in check(str(workspace)) if one.startswith("agents.yaml, line 3: p: ")]
    assert len(found) == 1 and found[0].endswith(error)


def test_typo_in_a_workflow_has_one_line_number_in_every_command(trunkline: Run, tmp_path: Path) -> None:
    write_workspace(tmp_path / "hub")
    path = tmp_path / "hub/workflows/publish.yaml"
    text = path.read_text().replace("type: interrupt", "type: interupt")
    path.write_text(text)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "interupt" in row)
    error = f"workflows/publish.yaml, line {line}: /nodes/5/type: must be one of "
    assert error in trunkline("flow", "validate", str(path), "--hub", "hub")[2]
    assert error in trunkline("flow", "run", str(path), "--store", "sqlite:///s.db")[2]
    assert error in trunkline("hub", "check", "hub")[1]


@pytest.mark.slow
def test_filter_that_does_not_compile_is_reported(workspace: Path) -> None:
    node = {"id": "keep", "type": "set_state", "config": {"assignments": {"a": {"jq": ".a |"}}}}
    (workspace / "workflows/flow.json").write_text(json.dumps(workflow(node)))
    found = check(str(workspace))
    assert len(found) == 1 and found[0].startswith("workflows/flow.json, line 1: /nodes/")
    # The only line number is that of the file.
    assert "this filter does not compile: syntax error, unexpected end of file at column" in found[0]
    assert found[0].count("line") == 1 and found[0].endswith("of the filter")


def test_unreadable_list_of_agents_is_the_only_finding(workspace: Path) -> None:
    (workspace / "hub.yaml").write_text("helm: writer\n")
    (workspace / "agents.yaml").write_text("agents: [\n")
    found = check(str(workspace))
    assert len(found) == 1 and found[0].startswith("agents.yaml, line 2: ")


def test_nested_workflow_that_no_file_has_is_a_warning(workspace: Path, trunkline: Run) -> None:
    config: dict[str, Any] = {"workflow_ref": "flwo", "input_mapping": {}}
    nested = {"id": "nested", "type": "subworkflow", "config": config}
    path = workspace / "workflows/outer.json"
    path.write_text(json.dumps(workflow(nested), indent=1))
    place = next(n for n, one in enumerate(path.read_text().splitlines(), 1) if '"flwo"' in one)
    (found,) = check(str(workspace))
    assert found.startswith(f"{UNCERTAIN}workflows/outer.json, line {place}: ")
    assert "workflow 'flwo' not found in the files of this hub" in found and "did you mean 'flow'?" in found
    code, out, error = trunkline("flow", "validate", str(path), "--hub", str(workspace))
    assert code == 0, (out, error)
    assert f"line {place}: /nodes/1/config/workflow_ref: workflow 'flwo' not found" in out + error


def test_mcp_server_that_cannot_run_is_reported_with_its_line(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNOWN_TOKEN", "t")
    monkeypatch.delenv("WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS", raising=False)
    servers: dict[str, Any] = {
        "right": {"command": "/usr/bin/node", "env": {"TOKEN": "env:KNOWN_TOKEN"}},
        "shell": {"command": "bash"},
        "secret": {"command": "uvx", "env": {"TOKEN": "env:NO_SUCH_TOKEN"}},
        "remote": {"url": "https://mcp.example", "headers": {"Authorization": "env:NO_SUCH_TOKEN"}},
    }
    delegates = {"coder": {"server": "right", "tool": "t"}, "other": {"server": "rigth", "tool": "t"}}
    path = workspace / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "delegateAgents": delegates}, indent=1))
    lines = path.read_text().splitlines()

    def place(text: str) -> str:
        return f"mcp.json, line {next(n for n, one in enumerate(lines, 1) if text in one)}"

    tokens = [n for n, one in enumerate(lines, 1) if "NO_SUCH_TOKEN" in one]
    command, secret, header, server = check(str(workspace))
    assert command.startswith(f"{place('bash')}: mcpServers.shell.command: 'bash' is none of python, ")
    assert command.endswith("list the commands in WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS")
    assert secret.startswith(f"mcp.json, line {tokens[0]}: mcpServers.secret.env.TOKEN: ")
    assert header.startswith(f"mcp.json, line {tokens[1]}: mcpServers.remote.headers.Authorization: ")
    assert "NO_SUCH_TOKEN" in secret and "NO_SUCH_TOKEN" in header
    assert server == f"{place('rigth')}: delegateAgents.other.server: no such server; did you mean 'right'?"
    monkeypatch.setenv("WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS", "bash,node,uvx")
    assert "is none of" not in str(check(str(workspace)))
