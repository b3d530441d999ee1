"""What clients of MCP are told to paste, as each of them reads it."""

from __future__ import annotations

import json
import tomllib

import pytest

from trunkline.mcp.client_config import CLIENTS, PLACES, ClientName, ServedBy, configuration

COMMAND = ServedBy(command=("/opt/trunkline", "mcp", "http://a:1", "it's"))
ADDRESS = ServedBy(url="https://hub.example/mcp", key_variable="HUB_KEY")


@pytest.mark.parametrize("client", ["claude", "cursor"])
def test_a_command(client: ClientName) -> None:
    found = json.loads(configuration(client, "team", COMMAND))
    assert found == {
        "mcpServers": {"team": {"command": "/opt/trunkline", "args": ["mcp", "http://a:1", "it's"]}}
    }


def test_a_command_in_other_shapes() -> None:
    found = json.loads(configuration("vscode", "team", COMMAND))["servers"]["team"]
    assert (found["type"], found["command"]) == ("stdio", "/opt/trunkline")
    found = tomllib.loads(configuration("codex", "my team", COMMAND))["mcp_servers"]["my team"]
    assert found == {"command": "/opt/trunkline", "args": ["mcp", "http://a:1", "it's"]}


def test_an_address() -> None:
    claude = json.loads(configuration("claude", "hub", ADDRESS))["mcpServers"]["hub"]
    assert claude == {
        "type": "http", "url": "https://hub.example/mcp", "headers": {"Authorization": "Bearer ${HUB_KEY}"},
    }  # fmt: skip
    cursor = json.loads(configuration("cursor", "hub", ADDRESS))["mcpServers"]["hub"]
    assert cursor["headers"] == {"Authorization": "Bearer ${env:HUB_KEY}"}
    codex = tomllib.loads(configuration("codex", "hub", ADDRESS))["mcp_servers"]["hub"]
    assert codex == {"url": "https://hub.example/mcp", "bearer_token_env_var": "HUB_KEY"}
    plain = json.loads(configuration("vscode", "hub", ServedBy(url="http://a/mcp")))["servers"]["hub"]
    assert plain == {"type": "http", "url": "http://a/mcp"}


def test_every_client_has_a_place() -> None:
    assert set(PLACES) == set(CLIENTS)
