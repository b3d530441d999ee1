"""`trunkline hub`: serve a workspace, write one, and say what is wrong with one."""

from __future__ import annotations

import contextlib
import logging
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Unpack

import typer

from trunkline.cli.hub_check import UNCERTAIN, UNSERVED, check
from trunkline.cli.next_command import command_line, print_next
from trunkline.cli.parsing import Commands, ServingGroup, Several
from trunkline.cli.serve import AnySetting, ServerFlags, assigned, serve_alone
from trunkline.errors import Misuse
from trunkline.fleet.catalogue.files import log_faults
from trunkline.hub.hub import Hub
from trunkline.hub.mocks import VARIABLE, MockProcess
from trunkline.hub.template import write_workspace
from trunkline.hub.workspace import MOCKS, read_keys
from trunkline.telemetry.logs import set_up_logs

log = logging.getLogger("trunkline")
Folder = Annotated[str, typer.Argument(metavar="DIR", help="Folder of the workspace.")]


class HubGroup(ServingGroup):
    """Serves the current folder where nothing is said."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the default command in front where none is named."""
        return super().parse_args(ctx, args or [self.default])


commands = Commands(HubGroup)


class HubFlags(ServerFlags, total=False):
    """Options of `trunkline hub`."""

    keys: Annotated[Several, typer.Option("--key", help="Key of an operator; repeatable.")]
    public_url: Annotated[str | None, typer.Option(help="Public URL of the server, as the cards state it.")]


@commands.local("serve")
def serve(folder: Folder = ".", *, settings: AnySetting = None, **flags: Unpack[HubFlags]) -> None:
    """Serve the agents of a workspace until interrupted."""
    workspace, given = Path(folder), {**flags, **assigned(settings)}
    try:
        chosen = Hub(workspace, given, UNSERVED).host.settings
    except Misuse as error:
        # The check reports every mistake in the files, not only the first one.
        error.hint = error.hint or shlex.join(["trunkline", "hub", "check", folder])
        raise
    if chosen.workers != 1:
        raise Misuse("a hub is one process: leave workers at 1, and start another hub on the same PostgreSQL")
    # Before the hub is built, which logs the settings that it ignores.
    set_up_logs(chosen.log_level, chosen.log_format)
    with contextlib.ExitStack() as stack:
        variables: dict[str, str] = {}
        if (workspace / MOCKS).exists():
            port = chosen.port and chosen.port + 1
            logs = chosen.log_level, chosen.log_format
            mocks = MockProcess(workspace / MOCKS, port, keeps=True, logs=logs)
            variables[VARIABLE] = stack.enter_context(mocks)
        hub = Hub(workspace, given, variables)
        serve_alone(hub.host, has_keys=bool(read_keys(workspace)), then=partial(_log_agents, hub))


def _log_agents(hub: Hub) -> None:
    entries = hub.catalogue.entries().values()
    log.info("hub.started name=%a agents=%s", hub.file.name, ",".join([entry.name for entry in entries]))
    log_faults(entries)


@commands.local("init")
def init(folder: Folder) -> None:
    """Create a workspace with three scripted agents and comments."""
    print(*write_workspace(Path(folder)), sep="\n")
    print()
    print_next(command_line("hub", folder))


@commands.local("check")
def print_check(folder: Folder = ".") -> None:
    """Report what is wrong with a workspace, with file and line; exit code 2 if anything is.

    Nothing is started, imported or called.
    """
    # What is logged while files are read is printed too.
    logging.getLogger("trunkline").addHandler(logging.NullHandler())
    found = check(folder)
    print(*found or [f"{folder}: nothing is wrong"], sep="\n")
    raise typer.Exit(2 if any(not one.startswith(UNCERTAIN) for one in found) else 0)
