"""`trunkline hub`: serve a workspace, write one, and say what is wrong with one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trunkline.cli.admin_endpoint import remove_admin_endpoint, write_admin_endpoint
from trunkline.cli.serve import announce, bound, is_guarded, serve
from trunkline.config import assignment
from trunkline.errors import Misuse
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.entry_reader import is_path
from trunkline.fleet.catalogue.files import CatalogueFiles
from trunkline.fleet.ceremonies.files import CeremonyFiles
from trunkline.host import exposure
from trunkline.http.host_check import is_loopback
from trunkline.hub.hub import CEREMONIES, Hub, variable_of
from trunkline.hub.mocks import VARIABLE, MockProcess
from trunkline.hub.workspace import MOCKS, check_notify, read_hub, read_keys
from trunkline.mcp.manifest import FILE as MCP_FILE
from trunkline.mcp.manifest import load_manifest
from trunkline.mock.script import load_scenarios

log = logging.getLogger("trunkline")
# In the place of the address that the mocks have once they run.
_UNSERVED = {VARIABLE: "http://127.0.0.1:1"}


def run(folder: str, flags: Mapping[str, object], settings: list[str]) -> None:
    """Serve a workspace until a signal.

    Raises:
        Misuse: a file or a setting is wrong, or it would be open to the network without a key.
    """
    workspace = Path(folder)
    given = {**flags, **dict(assignment(one) for one in settings)}
    chosen = Hub(workspace, given, _UNSERVED).host.settings
    if chosen.workers != 1:
        raise Misuse("a hub is one process: leave workers at 1, and start another hub on the same PostgreSQL")
    with contextlib.ExitStack() as stack:
        variables: dict[str, str] = {}
        if (workspace / MOCKS).exists():
            port = chosen.port and chosen.port + 1
            variables[VARIABLE] = stack.enter_context(MockProcess(workspace / MOCKS, port))
        hub = Hub(workspace, given, variables)
        host = hub.host
        host.exposed = not chosen.open and not is_loopback(chosen.host)
        if host.exposed and is_guarded(chosen) is False and not read_keys(workspace):
            raise exposure(chosen)
        sockets, token = bound(chosen), host.admin.token
        stack.callback(remove_admin_endpoint, chosen, token)
        serve(host, sockets, started=partial(_started, hub))


def _started(hub: Hub, port: int) -> None:
    host = hub.host
    write_admin_endpoint(host.settings, port, host.admin.token)
    announce(host.settings, host.agents, port, guarded=host.identity.enforced)
    names = [entry.name for entry in hub.catalogue.entries().values()]
    log.info("hub.started name=%a agents=%s", hub.file.name, ",".join(names))


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
        files.start,
    ]
    if (workspace / CEREMONIES).is_dir():
        looks.append(CeremonyFiles(workspace / CEREMONIES, lambda _found, _faults: None).start)
    if (workspace / MOCKS).exists():
        looks.append(partial(load_scenarios, workspace / MOCKS))
    if (workspace / MCP_FILE).exists():
        looks.append(partial(load_manifest, workspace / MCP_FILE))
    wrong: list[str] = []
    for look in looks:
        try:
            look()
        except Misuse as error:
            wrong.append(str(error))
    wrong += _check_workflows(workspace, [one for one in catalogue.entries().values() if not one.fault])
    wrong += [f"{entry.name}: {entry.fault}" for entry in catalogue.entries().values() if entry.fault]
    return wrong


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
