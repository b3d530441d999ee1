"""`trunkline mcp`: skills of agents as an MCP server over stdio, and the configuration of its clients."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.command import run_logged
from trunkline.cli.configuration import ClientConfiguration
from trunkline.cli.parsing import Commands, Invocation, ServingGroup, Several
from trunkline.cli.session import ADDRESSES
from trunkline.cli.tools import OF_AGENTS, toolbox_of
from trunkline.errors import Misuse, StoreInUse
from trunkline.mcp.client_config import CLIENTS, PLACES, ServedBy, configuration
from trunkline.mcp.task_agent import ToolboxSource, ToolSource

commands = Commands(ServingGroup)
# What is said of agents that are named one by one.
_OF_NAMED = ("agents", "allow", "deny", "tag", "prefix", *OF_AGENTS)


@commands.parsed(
    "serve",
    "agents", "allow", "deny", "tag", "prefix", "hand-off", *OF_AGENTS,
    "output", "json", "debug", "config",
    arguments="[AGENT]…", about="Agents: URLs, files of cards, or the folder of a hub.",
)  # fmt: skip
def serve_stdio(invocation: Invocation) -> None:
    """Serve the skills of agents as tools over standard input and output."""
    # Standard output is the protocol's.
    run_logged(invocation, partial(_serve, invocation), "%(levelname)s %(message)s")


async def _serve(invocation: Invocation, config: ClientConfiguration) -> None:
    try:
        from mcp.server.stdio import stdio_server

        from trunkline.mcp.protocol_tasks import serve_skills
    except ModuleNotFoundError as error:
        hint = "pip install 'trunkline[mcp]'"
        raise Misuse(f"this needs {error.name}: {hint}", hint=hint) from None
    async with _source(invocation, config) as source:
        served = serve_skills(source, hand_off_s=config.seconds("hand-off"))
        async with stdio_server() as (read, write):
            await served.server.run(read, write, served.server.create_initialization_options())


@asynccontextmanager
async def _source(invocation: Invocation, config: ClientConfiguration) -> AsyncGenerator[ToolSource]:
    folders = _folders(invocation.arguments)
    if folders:
        if len(invocation.arguments) > 1:
            raise Misuse(f"{folders[0]} is a hub's workspace: it is served alone, with all its agents")
        invocation.refuse(_OF_NAMED, "a workspace says that in its files")
        async with _workspace(Path(folders[0])) as source:
            yield source
        return
    _check_agents(invocation.arguments)
    async with toolbox_of(invocation, config) as box:
        yield ToolboxSource(box)


def _check_agents(words: tuple[str, ...]) -> None:
    """Raise Misuse for a word that is neither a URL nor a file."""
    for word in words:
        if not word.startswith(ADDRESSES) and not Path(word).exists():
            text = f"{word!r} is neither the URL of an agent, nor the file of a card, nor the folder of a hub"
            raise Misuse(text, hint="trunkline mcp http://HOST:PORT")


def _folders(words: tuple[str, ...]) -> list[str]:
    return [one for one in words if Path(one).is_dir()]


@asynccontextmanager
async def _workspace(folder: Path) -> AsyncGenerator[ToolSource]:
    """The agents of a hub that runs here, without an address, for as long as they are served."""
    from trunkline.hub.hub import Hub
    from trunkline.hub.mocks import VARIABLE, MockProcess
    from trunkline.hub.workspace import MOCKS

    with ExitStack() as stack:
        variables: dict[str, str] = {}
        if (folder / MOCKS).exists():
            variables[VARIABLE] = stack.enter_context(MockProcess(folder / MOCKS, 0))
        host = Hub(folder, {}, variables).host
        try:
            async with host.lifespan():
                assert host.mcp.source is not None
                yield host.mcp.source
        except StoreInUse:
            raise Misuse(
                f"a hub serves {folder} already; print its address with trunkline mcp config --http URL"
            ) from None


@commands.local("config")
def print_configuration(
    agents: Annotated[
        Several,
        typer.Argument(metavar="[AGENT]…", help="Agents: URLs, files of cards, or the folder of a hub."),
    ] = None,
    *,
    client: Annotated[str, typer.Option(help="Client: claude, cursor, vscode or codex.")],
    name: Annotated[str, typer.Option(help="Name of the server in the client.")] = "trunkline",
    http: Annotated[
        bool,
        typer.Option(
            "--http", help="Connect to /mcp at the URL of a hub or agent instead of starting a command."
        ),
    ] = False,
    key_variable: Annotated[
        str, typer.Option(metavar="NAME", help="Variable of the client that contains the key for --http.")
    ] = "",
) -> None:
    """Print what to paste into the configuration of an MCP client."""
    if client not in CLIENTS:
        near = (get_close_matches(client, CLIENTS, 1) or [*CLIENTS])[0]
        raise Misuse(f"--client is one of {', '.join(CLIENTS)}, not {client!r}", hint=f"--client {near}")
    if not agents:
        raise Misuse("name the agents: their URLs, a card's file, or the folder of a hub's workspace")
    if http and len(agents) != 1:
        raise Misuse("--http is for the address of one hub or served agent")
    if key_variable and not http:
        raise Misuse("--key-variable goes with --http; a command reads A2ACLI_API_KEY from its environment")
    if http:
        served = ServedBy(url=f"{agents[0].rstrip('/')}/mcp", key_variable=key_variable)
    else:
        served = ServedBy(command=(*_ourselves(), "mcp", *agents))
    print(configuration(client, name, served), end="")
    print(f"Paste it into {PLACES[client]}.", file=sys.stderr)


def _ourselves() -> tuple[str, ...]:
    """The command that is running, for a client that has another PATH."""
    found = Path(sys.executable).with_name("trunkline")
    return (str(found),) if found.exists() else (sys.executable, "-m", "trunkline.cli")
