"""The manifest of an operator, `mcp.json`: the MCP servers that agents and workflows may use.

A server is a command that is started here, or an address. The file is the operator's word: it alone says
what runs on this machine, and a command that is not on the list of allowed ones is not started.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from trunkline.auth.references import Secrets
from trunkline.config import environment
from trunkline.errors import Misuse, Unreachable
from trunkline.net.egress import target
from trunkline.wire.decode import choices

FILE = "mcp.json"
ALLOWED_COMMANDS = ("python", "python3", "uvx", "node", "npx")
ALLOW_VARIABLE = "WORKFLOW_ENGINE_MCP_ALLOW_COMMANDS"
_FILE_LIMIT = 1 << 20
_SERVERS_LIMIT, _DELEGATES_LIMIT = 100, 1000
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Word = Annotated[str, Meta(max_length=32_768)]
_UNKNOWN = re.compile("unknown field `(.*?)`")
_Form = TypeVar("_Form", bound=Struct)


class McpServerEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One MCP server: a command with its arguments and variables, or an address with its headers.

    A variable or a header of `env:NAME` is read from the environment when the server is first used, one of
    `file:relative/path` from a file below the folder of the manifest. Default of `tenants`: all tenants.
    """

    command: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    args: Annotated[tuple[_Word, ...], Meta(max_length=256)] = ()
    env: Annotated[dict[_Name, _Word], Meta(max_length=256)] = {}
    url: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    headers: Annotated[dict[_Name, _Word], Meta(max_length=64)] = {}
    tenants: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=10_000)] | None = None

    def is_for(self, tenant: str) -> bool:
        """Return whether a tenant may use this server."""
        return self.tenants is None or tenant in self.tenants

    def variables(self, folder: Path | None = None) -> dict[str, str]:
        """The variables of the command, with what they refer to; `folder` is that of the manifest.

        Raises:
            Misuse: one of them refers to nothing.
        """
        return _revealed(self.env, "env", folder)

    def sent_headers(self, folder: Path | None = None) -> dict[str, str]:
        """The headers of each request, with what they refer to; `folder` is that of the manifest.

        Raises:
            Misuse: one of them refers to nothing.
        """
        return _revealed(self.headers, "headers", folder)


class McpDelegate(Struct, frozen=True, forbid_unknown_fields=True):
    """The tool that stands for an agent to which a workflow delegates."""

    server: _Name
    tool: _Name


class McpManifest(Struct, frozen=True):
    """The servers by name, and the agents of workflows that are tools of theirs."""

    servers: dict[str, McpServerEntry]
    delegates: dict[str, McpDelegate] = {}
    # Where it lies, if it is a file.
    folder: Path | None = None

    def servers_of(self, tenant: str) -> dict[str, McpServerEntry]:
        """Return the servers that a tenant may use, by name."""
        return {name: entry for name, entry in self.servers.items() if entry.is_for(tenant)}


class _ManifestFile(Struct, frozen=True, forbid_unknown_fields=True):
    servers: Annotated[dict[_Name, Any], Meta(min_length=1, max_length=_SERVERS_LIMIT)] = msgspec.field(
        name="mcpServers"
    )
    delegates: Annotated[dict[_Name, Any], Meta(max_length=_DELEGATES_LIMIT)] = msgspec.field(
        name="delegateAgents", default_factory=dict[str, Any]
    )


def read_manifest(document: object, folder: Path | None = None) -> McpManifest:
    """A manifest from its JSON value, and the folder that it lies in.

    Raises:
        Misuse: it is none; the text begins with the path of the field.
    """
    found = _converted(document, _ManifestFile, "")
    # One by one, for the decoder does not say under which key something is wrong.
    servers = {
        name: _converted(entry, McpServerEntry, f"mcpServers.{name}") for name, entry in found.servers.items()
    }
    delegates = {
        name: _converted(entry, McpDelegate, f"delegateAgents.{name}")
        for name, entry in found.delegates.items()
    }
    for name, entry in servers.items():
        _check_server(f"mcpServers.{name}", entry)
    return McpManifest(servers, delegates, folder)


def load_manifest(path: str | Path) -> McpManifest:
    """The manifest of a file.

    Raises:
        FileNotFoundError: there is no such file.
        Misuse: it cannot be read or is no manifest; the text names the file and the field.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            body = opened.read(_FILE_LIMIT + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Misuse(f"{file}: {error}") from None
    if len(body) > _FILE_LIMIT:
        raise Misuse(f"{file}: it has more than {_FILE_LIMIT >> 20} MiB")
    try:
        return read_manifest(msgspec.json.decode(body), file.parent)
    except msgspec.DecodeError as error:
        raise Misuse(f"{file}: it is not JSON: {error}") from None
    except Misuse as error:
        raise Misuse(f"{file}: {error}") from None


def allowed_commands() -> tuple[str, ...]:
    """The commands that may be started: those of the variable where it is set, else the usual ones."""
    said = environment(ALLOW_VARIABLE).get(ALLOW_VARIABLE)
    if said is None:
        return ALLOWED_COMMANDS
    return tuple(one.strip() for one in said.split(",") if one.strip())


def is_allowed(command: str, allowed: Collection[str]) -> bool:
    """Whether a command is on the list: as it is written, or by its name without the folder and `.exe`."""
    return command in allowed or _bare(command) in allowed


def _bare(command: str) -> str:
    name = PurePosixPath(PureWindowsPath(command).as_posix()).name
    return name[:-4] if name.lower().endswith(".exe") else name


def _check_server(field: str, entry: McpServerEntry) -> None:
    if (entry.command is None) == (entry.url is None):
        raise Misuse(f"{field}: a server has either a command or a url")
    if entry.command is not None:
        if entry.headers:
            raise Misuse(f"{field}.headers: only a server with a url has headers; a command has env")
        return
    if entry.args or entry.env:
        raise Misuse(f"{field}.{'args' if entry.args else 'env'}: only a server with a command has these")
    try:
        target(entry.url or "")
    except Unreachable as error:
        raise Misuse(f"{field}.url: {error}") from None


def _converted(document: object, form: type[_Form], within: str) -> _Form:
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        if field.endswith("[...]"):
            field = f"{field[:-5]}.{_odd_key(document, field[:-5])}"
        if unknown := _UNKNOWN.search(said):
            said = f"unknown field{choices(form, field, unknown[1])}"
            field = unknown[1]
        where = ".".join(filter(None, (within, field)))
        raise Misuse(f"{where}: {said}" if where else said) from None


def _odd_key(document: object, member: str) -> str:
    """The key of a table of words whose value is none."""
    table = cast("dict[str, dict[str, object]]", document)[member]
    return next((key for key, value in table.items() if not isinstance(value, str)), "")


def _revealed(written: dict[str, str], field: str, folder: Path | None) -> dict[str, str]:
    secrets, found = Secrets(folder=folder), dict[str, str]()
    for name, word in written.items():
        try:
            found[name] = secrets.text(word) if word.startswith(("env:", "file:")) else word
        except Misuse as error:
            raise Misuse(f"{field}.{name}: {error}") from None
    return found
