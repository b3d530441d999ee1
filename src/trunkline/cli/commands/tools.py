"""`trunkline tools`."""

from __future__ import annotations

import typer

from trunkline.cli.commands.client import ClientCommand, Given, takes
from trunkline.cli.commands.flags import CALL


@takes(
    "format", "allow", "deny", "tag", "prefix", "agents", "call", "arguments",
    "bearer", "api-key", "svc-param", "transport", "a2a-version", "insecure", "timeout",
    "output", "debug", "config",
    words="[AGENT]…", about="The agents; the one of A2ACLI_AGENT_CARD unless told.",
)  # fmt: skip
def tools(given: Given) -> None:
    """Print the skills of agents as tools of a model, or call one of them."""
    from trunkline.cli.tools import tools

    tools(given)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(cls=ClientCommand, rich_help_panel=CALL)(tools)
