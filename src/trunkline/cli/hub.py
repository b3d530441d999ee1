"""`trunkline hub`: serve a workspace, write one, and say what is wrong with one."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Unpack

import typer

from trunkline.cli.next_command import command_line, print_next
from trunkline.cli.parsing import Commands, ServingGroup, Several
from trunkline.cli.serve import AnySetting, ServerFlags, assigned, serve_alone
from trunkline.errors import Misuse
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.entry_reader import is_path
from trunkline.fleet.catalogue.files import CatalogueFiles
from trunkline.fleet.ceremonies.ceremony_store import CeremonyFault
from trunkline.fleet.ceremonies.files import CeremonyFiles
from trunkline.hub.hub import CEREMONIES, Hub, variable_of
from trunkline.hub.mocks import VARIABLE, MockProcess
from trunkline.hub.template import write_workspace
from trunkline.hub.workspace import MOCKS, check_notify, read_hub, read_keys
from trunkline.mcp.manifest import FILE as MCP_FILE
from trunkline.mcp.manifest import load_manifest
from trunkline.mock.script import load_scenarios

log = logging.getLogger("trunkline")
Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of the workspace.")]
# In the place of the address that the mocks have once they run.
_UNSERVED = {VARIABLE: "http://127.0.0.1:1"}


class HubGroup(ServingGroup):
    """Serves the current folder where nothing is said."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the default command in front where none is named."""
        return super().parse_args(ctx, args or [self.default])


commands = Commands(HubGroup)


class HubFlags(ServerFlags, total=False):
    """Options of `trunkline hub`."""

    keys: Annotated[Several, typer.Option("--key", help="An operator's key; repeatable.")]
    public_url: Annotated[str | None, typer.Option(help="The address that the cards name.")]


@commands.local("serve")
def serve(folder: Folder = ".", *, settings: AnySetting = None, **flags: Unpack[HubFlags]) -> None:
    """Serve the agents of a workspace until interrupted."""
    workspace, given = Path(folder), {**flags, **assigned(settings)}
    chosen = Hub(workspace, given, _UNSERVED).host.settings
    if chosen.workers != 1:
        raise Misuse("a hub is one process: leave workers at 1, and start another hub on the same PostgreSQL")
    with contextlib.ExitStack() as stack:
        variables: dict[str, str] = {}
        if (workspace / MOCKS).exists():
            port = chosen.port and chosen.port + 1
            variables[VARIABLE] = stack.enter_context(MockProcess(workspace / MOCKS, port, keeps=True))
        hub = Hub(workspace, given, variables)
        serve_alone(hub.host, has_keys=bool(read_keys(workspace)), then=partial(_log_agents, hub))


def _log_agents(hub: Hub) -> None:
    names = [entry.name for entry in hub.catalogue.entries().values()]
    log.info("hub.started name=%a agents=%s", hub.file.name, ",".join(names))


@commands.local("init")
def init(folder: Folder) -> None:
    """Write a workspace that runs: three scripted agents, and comments that say what to change."""
    print(*write_workspace(Path(folder)), sep="\n")
    print()
    print_next(command_line("hub", folder))


@commands.local("check")
def print_check(folder: Folder = ".") -> None:
    """Say what is wrong with a workspace, with file and line; exit code 2 if anything is. Starts nothing."""
    # What is logged while files are read is printed too.
    logging.getLogger("trunkline").addHandler(logging.NullHandler())
    wrong = check(folder)
    print(*wrong or [f"{folder}: nothing is wrong"], sep="\n")
    raise typer.Exit(2 if wrong else 0)


def check(folder: str) -> list[str]:
    """The mistakes in a workspace, each with its file and line."""
    workspace = Path(folder)
    if not workspace.is_dir():
        raise Misuse(f"{workspace} is no folder; make one with trunkline hub init {workspace}")
    catalogue = Catalogue(lambda: 0)
    try:
        searches = bool(read_hub(workspace).search)
    except Misuse:
        # It is told of below.
        searches = False
    files = CatalogueFiles(workspace, variable_of(_UNSERVED), catalogue.take_files, searches=searches)
    looks: list[Callable[[], object]] = [
        lambda: check_notify(workspace, read_hub(workspace), variable_of({})),
        partial(read_keys, workspace),
        files.check,
    ]
    unread: list[CeremonyFault] = []
    if (workspace / CEREMONIES).is_dir():
        looks.append(CeremonyFiles(workspace / CEREMONIES, lambda _, faults: unread.extend(faults)).check)
    for name, load in ((MOCKS, load_scenarios), (MCP_FILE, load_manifest)):
        if (workspace / name).exists():
            looks.append(partial(load, workspace / name))
    wrong: list[str] = []
    for look in looks:
        try:
            look()
        except Misuse as error:
            # Every file is named as it stands in the workspace.
            wrong.append(str(error).removeprefix(f"{workspace}/"))
    wrong += [fault.reason for fault in unread]
    sound = [one for one in catalogue.entries().values() if not one.fault]
    wrong += [*_check_imports(workspace, sound), *_check_workflows(workspace, sound)]
    # One that is named by its place is not named twice: its fault begins with that.
    return wrong + [
        entry.fault
        if entry.fault.startswith(f"{entry.name.partition(':')[0]}, ")
        else f"{entry.name}: {entry.fault}"
        for entry in catalogue.entries().values()
        if entry.fault
    ]


def _check_imports(workspace: Path, entries: Sequence[Entry]) -> list[str]:
    """The entries whose module is nowhere to be found; none is loaded, as that would start something."""
    named = {one.name: one.imported.partition(":")[0].partition(".")[0] for one in entries if one.imported}
    return [
        f"{name}: there is no module {module!r}, neither in the workspace nor installed"
        for name, module in named.items()
        if module not in sys.modules
        and PathFinder.find_spec(module, [str(workspace)]) is None
        and find_spec(module) is None
    ]


def _check_workflows(workspace: Path, entries: Sequence[Entry]) -> list[str]:
    """The mistakes in workflow files, and in entries that name workflows."""
    named = {one.name: one.workflow for one in entries if is_path(one.workflow)}
    if not named and not (workspace / "workflows").is_dir():
        return []
    try:
        from trunkline.hub.workflow_files import WorkflowFiles
    except ImportError as error:
        return [f"workflows need {error.name}: pip install 'trunkline[flow]'"]
    files = WorkflowFiles(workspace)
    wrong = files.faults()
    for name, path in named.items():
        try:
            files.load(path)
        except Misuse as error:
            if str(error) not in wrong:
                wrong.append(f"{name}: {error}")
    return wrong
