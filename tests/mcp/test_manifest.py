"""Manifests of MCP servers: what they say, what is refused by which field, which commands may run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trunkline.errors import Misuse
from trunkline.mcp.manifest import (
    ALLOWED_COMMANDS,
    allowed_commands,
    is_allowed,
    load_manifest,
    read_manifest,
)


def test_a_manifest_with_every_field() -> None:
    found = read_manifest(
        {
            "mcpServers": {
                "files": {"command": "uvx", "args": ["mcp-files", "."], "env": {"TOKEN": "env:FILES_TOKEN"}},
                "web": {"url": "http://10.0.0.7:9000/mcp", "headers": {"Authorization": "Bearer x"}},
                "bare": {"command": "node"},
            },
            "delegateAgents": {"coder": {"server": "files", "tool": "edit"}},
        }
    )
    assert (found.servers["files"].args, found.servers["bare"].args) == (("mcp-files", "."), ())
    assert found.servers["web"].sent_headers() == {"Authorization": "Bearer x"}
    assert (found.delegates["coder"].server, found.delegates["coder"].tool) == ("files", "edit")


def test_variables_are_read_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = read_manifest({"mcpServers": {"a": {"command": "node", "env": {"TOKEN": "env:T_1"}}}}).servers[
        "a"
    ]
    with pytest.raises(Misuse, match=r"env\.TOKEN: the environment has no T_1"):
        entry.variables()
    monkeypatch.setenv("T_1", "hush")
    assert entry.variables() == {"TOKEN": "hush"}


def test_a_secret_may_lie_in_a_file_beside_the_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    (folder / "keys").mkdir(parents=True)
    (folder / "keys" / "web").write_text("Bearer hush\n")
    (tmp_path / "outside").write_text("not ours")
    file = folder / "mcp.json"
    headers = {"Authorization": "file:keys/web", "X-Other": "file:../outside"}
    file.write_text(json.dumps({"mcpServers": {"a": {"url": "http://x/", "headers": headers}}}))
    found = load_manifest(file)
    with pytest.raises(Misuse, match=r"headers\.X-Other: file:../outside leads out of the folder"):
        found.servers["a"].sent_headers(found.folder)
    del found.servers["a"].headers["X-Other"]
    assert found.servers["a"].sent_headers(found.folder) == {"Authorization": "Bearer hush"}
    with pytest.raises(Misuse, match="no folder for secrets is known"):
        found.servers["a"].sent_headers()


SERVER: dict[str, Any] = {"command": "node"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "Expected `object`"),
        ({}, "mcpServers"),
        ({"mcpServers": {}}, "mcpServers: "),
        ({"mcpServers": {"a": SERVER}, "servers": {}}, "servers: unknown field"),
        ({"mcpServers": {"a": {}}}, "mcpServers.a: a server has either a command or a url"),
        ({"mcpServers": {"a": SERVER | {"url": "http://x/"}}}, "mcpServers.a: a server has either"),
        ({"mcpServers": {"b": SERVER, "a": {"command": 1}}}, "mcpServers.a.command: "),
        ({"mcpServers": {"a": {"command": ""}}}, "mcpServers.a.command: "),
        ({"mcpServers": {"a": SERVER | {"args": ["x", 2]}}}, "mcpServers.a.args[1]: "),
        ({"mcpServers": {"a": SERVER | {"env": {"X": "y", "K": 1}}}}, "mcpServers.a.env.K: "),
        ({"mcpServers": {"a": SERVER | {"cwd": "/"}}}, "mcpServers.a.cwd: unknown field"),
        ({"mcpServers": {"a": SERVER | {"headers": {"A": "b"}}}}, "mcpServers.a.headers: only a server with a url"),
        ({"mcpServers": {"a": {"url": "http://x/", "args": ["y"]}}}, "mcpServers.a.args: only a server with a command"),
        ({"mcpServers": {"a": {"url": "ftp://x/"}}}, "mcpServers.a.url: only http and https"),
        ({"mcpServers": {"a": {"url": "http://me:pw@x/"}}}, "mcpServers.a.url: the URL holds a login"),
        ({"mcpServers": {"a": SERVER}, "delegateAgents": {"z": {"server": "a"}}}, "delegateAgents.z: "),
        ({"mcpServers": {str(n): SERVER for n in range(101)}}, "mcpServers: "),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_its_field(document: Any, said: str) -> None:
    with pytest.raises(Misuse) as refused:
        read_manifest(document)
    assert said in str(refused.value)


def test_a_file_is_named_when_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    with pytest.raises(FileNotFoundError):
        load_manifest(file)
    file.write_text("{")
    with pytest.raises(Misuse, match="mcp.json: it is not JSON"):
        load_manifest(file)
    file.write_text(json.dumps({"mcpServers": {"a": {}}}))
    with pytest.raises(Misuse, match="mcp.json: mcpServers.a: a server"):
        load_manifest(file)
    file.write_text(json.dumps({"mcpServers": {"a": SERVER}}))
    assert list(load_manifest(file).servers) == ["a"]


def test_allowed_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS"
    monkeypatch.delenv(variable, raising=False)
    assert allowed_commands() == ALLOWED_COMMANDS
    for command in ("python", "/usr/bin/python3", r"C:\tools\node.exe", "npx"):
        assert is_allowed(command, allowed_commands())
    assert not is_allowed("bash", allowed_commands())
    monkeypatch.setenv(variable, "deno, /opt/bin/thing")
    assert allowed_commands() == ("deno", "/opt/bin/thing")
    assert is_allowed("/usr/bin/deno", allowed_commands())
    assert is_allowed("/opt/bin/thing", allowed_commands())
    assert not is_allowed("/tmp/thing", allowed_commands())
    assert not is_allowed("python", allowed_commands())
    monkeypatch.setenv(variable, "")
    assert not is_allowed("python", allowed_commands())
