"""`trunkline mcp …`: agents as an MCP server, and the configuration of its clients."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.call import CALL
from trunkline.cli.commands.parsing import ClientCommand, ClientGroup, Invocation, UsageCommand, takes


class McpGroup(ClientGroup):
    """`trunkline mcp URL` is `trunkline mcp serve URL`."""

    default = "serve"


mcp_app = typer.Typer(
    cls=McpGroup, no_args_is_help=True, help="Serve the skills of agents to MCP clients over stdio."
)


@takes(
    "agents", "allow", "deny", "tag", "prefix", "hand-off",
    "bearer", "api-key", "svc-param", "transport", "a2a-version", "insecure", "timeout",
    "output", "json", "debug", "config",
    arguments="[AGENT]…", about="The agents: their URLs or files of their cards, or a hub's workspace.",
)  # fmt: skip
def serve(invocation: Invocation) -> None:
    """Serve the skills of agents as tools over standard input and output."""
    from trunkline.cli.mcp import serve_stdio

    serve_stdio(invocation)


def config(
    agents: Annotated[list[str] | None, typer.Argument(metavar="[AGENT]…", help="What to serve.")] = None,
    *,
    client: Annotated[str, typer.Option(help="claude, cursor, vscode or codex.")],
    name: Annotated[str, typer.Option(help="What the client shall call the server.")] = "trunkline",
    http: Annotated[
        bool, typer.Option("--http", help="Use /mcp of that hub or served agent, and start no command.")
    ] = False,
    key_variable: Annotated[
        str, typer.Option(metavar="NAME", help="The client's variable that holds the key for --http.")
    ] = "",
) -> None:
    """Print what to paste into the configuration of an MCP client."""
    from trunkline.cli.mcp import print_configuration

    print_configuration(client, agents or [], name=name, http=http, key_variable=key_variable)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    mcp_app.command(cls=ClientCommand)(serve)
    mcp_app.command(cls=UsageCommand)(config)
    app.add_typer(mcp_app, name="mcp", rich_help_panel=CALL)
