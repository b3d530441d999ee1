"""What the configuration of a client of MCP must say to find a server of ours. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

ClientName = Literal["claude", "cursor", "vscode", "codex"]
_BARE = re.compile("[A-Za-z0-9_-]+")
CLIENTS: tuple[ClientName, ...] = get_args(ClientName)
PLACES: Mapping[ClientName, str] = {
    "claude": "claude_desktop_config.json, or .mcp.json of a project for Claude Code",
    "cursor": "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
    "vscode": ".vscode/mcp.json of a project",
    "codex": "~/.codex/config.toml",
}


class ServedBy(Struct, frozen=True):
    """How a client reaches a server: by a command that it starts, or at an address.

    `key_variable` is the variable of its environment that holds the key which the address wants.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    key_variable: str = ""


def configuration(client: ClientName, name: str, served: ServedBy) -> str:
    """The text to paste into the client's file."""
    if client == "codex":
        return _toml(name, served)
    entry = _entry(client, served)
    document = {"servers" if client == "vscode" else "mcpServers": {name: entry}}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _entry(client: ClientName, served: ServedBy) -> dict[str, Any]:
    if served.command:
        kind = {"type": "stdio"} if client == "vscode" else {}
        return {**kind, "command": served.command[0], "args": list(served.command[1:])}
    kind = {} if client == "cursor" else {"type": "http"}
    # Each has its own way to name a variable.
    variable = f"${{{served.key_variable}}}" if client == "claude" else f"${{env:{served.key_variable}}}"
    headers = {"headers": {"Authorization": f"Bearer {variable}"}} if served.key_variable else {}
    return {**kind, "url": served.url, **headers}


def _toml(name: str, served: ServedBy) -> str:
    lines = [f"[mcp_servers.{name if _BARE.fullmatch(name) else _text(name)}]"]
    if served.command:
        lines += [f"command = {_text(served.command[0])}", f"args = {_texts(served.command[1:])}"]
    else:
        lines.append(f"url = {_text(served.url)}")
        if served.key_variable:
            lines.append(f"bearer_token_env_var = {_text(served.key_variable)}")
    return "\n".join(lines) + "\n"


def _text(word: str) -> str:
    """A basic string of TOML, which JSON's are too."""
    return msgspec.json.encode(word).decode()


def _texts(words: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"
