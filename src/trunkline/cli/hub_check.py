"""The checks of `trunkline hub check`: what is wrong in the files of a workspace, and what cannot run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.config import load
from trunkline.errors import Misuse
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.entry_reader import is_path
from trunkline.fleet.catalogue.files import LIST, CatalogueFiles, entry_positions
from trunkline.fleet.catalogue.model_entry import CAPABILITIES
from trunkline.fleet.ceremonies.ceremony import ALL, Ceremony
from trunkline.fleet.ceremonies.ceremony_store import CeremonyFault
from trunkline.fleet.ceremonies.files import CeremonyFiles, read_ceremony_file
from trunkline.fleet.ceremonies.reports import channel_variable
from trunkline.fleet.notify import Channel
from trunkline.fleet.notify.channels import find_channel
from trunkline.hub.hub import CEREMONIES, missing_workspace, variable_of
from trunkline.hub.mocks import VARIABLE
from trunkline.hub.module_source import ModuleSource, find_module
from trunkline.hub.workspace import HUB, MOCKS, HubFile, check_notify, read_hub, read_keys
from trunkline.mcp.manifest import ALLOW_VARIABLE, McpServerEntry, allowed_commands, is_allowed, load_manifest
from trunkline.mcp.manifest import FILE as MCP_FILE
from trunkline.mock.script import load_scenarios
from trunkline.yaml_reader import YamlPosition, read_text, read_yaml

# Stands for the address that the mocks have once they run.
UNSERVED = {VARIABLE: "http://127.0.0.1:1"}
# The beginning of a finding that is not certain; it is not counted as a mistake.
UNCERTAIN = "warning: "


def check(folder: str) -> list[str]:
    """Return the mistakes in a workspace, each with its file and line.

    Raises:
        Misuse: there is no such folder.
    """
    workspace = Path(folder)
    if not workspace.is_dir():
        raise missing_workspace(workspace)
    hub = HubFile()
    channels: Mapping[str, Channel] = {}
    wrong: list[str] = []
    try:
        hub = read_hub(workspace)
        channels = check_notify(workspace, hub, variable_of({}))
    except Misuse as error:
        wrong.append(_named(workspace, error))
    catalogue = Catalogue()
    files = CatalogueFiles(workspace, variable_of(UNSERVED), catalogue.take_files, searches=bool(hub.search))
    unread: list[CeremonyFault] = []
    wrong += _faults(workspace, files, unread)
    entries = [*catalogue.entries().values()]
    wrong += [fault.reason for fault in unread]
    unreadable = [entry.fault for entry in entries if entry.fault and entry.name == LIST]
    if unreadable:
        # Every other file names agents, and none of them is known.
        return [*unreadable, *dict.fromkeys(wrong)]
    fleet = Fleet(workspace, entries)
    wrong += [*_check_hub(workspace, hub, fleet), *_check_schedules(workspace, fleet, channels)]
    wrong += [
        *_check_cooldowns(fleet),
        *_check_imports(fleet),
        *_check_models(fleet),
        *_check_mcp_servers(workspace),
        *_check_workflows(fleet),
    ]
    wrong += [_fault(entry) for entry in entries if entry.fault]
    # Several checks read the same file.
    return [*dict.fromkeys(wrong)]


def _faults(workspace: Path, files: CatalogueFiles, unread: list[CeremonyFault]) -> Iterator[str]:
    """Yield the first mistake of each file that does not parse; schedules are added to `unread`."""
    checks: list[Callable[[], object]] = [partial(read_keys, workspace), files.check]
    if (workspace / CEREMONIES).is_dir():
        checks.append(CeremonyFiles(workspace / CEREMONIES, lambda _, faults: unread.extend(faults)).check)
    for name, reader in ((MOCKS, load_scenarios), (MCP_FILE, load_manifest)):
        if (workspace / name).exists():
            checks.append(partial(reader, workspace / name))
    for one in checks:
        try:
            one()
        except Misuse as error:
            yield _named(workspace, error)


def _fault(entry: Entry) -> str:
    """Return the mistake of an entry: its place, the name of the entry, and what is wrong."""
    place, colon, what = entry.fault.partition(": ")
    # An entry that is named by its place is not named twice.
    if entry.fault.startswith(f"{entry.name.partition(':')[0]}, "):
        return entry.fault
    return (
        f"{place}: {entry.name}: {what}" if colon and ", line " in place else f"{entry.name}: {entry.fault}"
    )


def _named(workspace: Path, error: Misuse) -> str:
    """Return an error with its file as it is named in the workspace."""
    return str(error).removeprefix(f"{workspace}/")


class Fleet:
    """The entries of a workspace: where each one is written, and which skills its agent has."""

    def __init__(self, workspace: Path, entries: Sequence[Entry]) -> None:
        self.workspace = workspace
        self.entries = entries
        self.sound = [one for one in entries if not one.fault]
        self.positions = entry_positions(workspace)
        self._mocked = _mocked_skills(workspace)

    def place(self, entry: Entry, member: str) -> str:
        """Return the file and line of a member of an entry; its name where an entry is in no file."""
        position = self.positions.get(entry.name)
        return entry.name if position is None else f"{position(member)}: {entry.name}"

    def agents(self, tenant: str) -> list[str]:
        """Return the names of the agents of a tenant."""
        return [one.name for one in self.entries if one.serves(tenant)]

    def missing_skill(self, tenant: str, skill: str, among: Sequence[str] = ()) -> str:
        """Return why nobody has a skill, or an empty text if an agent has it.

        The answer is a warning if an agent may have it by its card, which a check does not fetch.
        """
        agents = [one for one in self.entries if one.serves(tenant) and (not among or one.name in among)]
        unknown = self.without_skill(agents, skill)
        if unknown is None:
            return ""
        if unknown:
            text = f"no agent is known to have the skill {skill!r}; it may be on the card of"
            return f"{UNCERTAIN}{text} {', '.join(unknown)}"
        names = f" of {', '.join(among)}" if among else ""
        known = {one for agent in agents for one in self._skills(agent)}
        return f"no agent{names} has the skill {skill!r}{_suggest(skill, known)}"

    def without_skill(self, agents: Sequence[Entry], skill: str) -> list[str] | None:
        """Return the agents that may have a skill by their card, or None if an agent is known to have it."""
        if any(skill in self._skills(one) for one in agents):
            return None
        return [one.name for one in agents if not self._is_whole(one)]

    def _skills(self, entry: Entry) -> frozenset[str]:
        """Return the skills of an agent as far as files name them."""
        found = {one.id for one in entry.skills}
        if entry.kind == "flow":
            found.add(entry.name)
        if entry.model is not None:
            found |= {"chat", *[CAPABILITIES[one][0] for one in entry.model.capabilities]}
        if entry.imported and (source := self._source(entry)) is not None:
            found |= source.skills or frozenset()
        return frozenset(found | self._mocked.get(_mock_of(entry), frozenset()))

    def _is_whole(self, entry: Entry) -> bool:
        """Return whether an agent has no other skills than those that files name."""
        if entry.fault:
            return False
        if entry.imported:
            source = self._source(entry)
            return source is not None and source.skills is not None
        return entry.peer is None or _mock_of(entry) in self._mocked

    def _source(self, entry: Entry) -> ModuleSource | None:
        return find_module(entry.imported.partition(":")[0], [str(self.workspace)])


def _mock_of(entry: Entry) -> str:
    """Return the name of the mock that an entry leads to, or an empty text."""
    base = f"{UNSERVED[VARIABLE]}/"
    url = "" if entry.peer is None else entry.peer.url
    return url.removeprefix(base).partition("/")[0] if url.startswith(base) else ""


def _mocked_skills(workspace: Path) -> Mapping[str, frozenset[str]]:
    """Return the skills of the mocks of a workspace by the names of the mocks."""
    try:
        scenarios = load_scenarios(workspace / MOCKS) if (workspace / MOCKS).exists() else ()
    except Misuse:
        # Reported with the other files.
        return {}
    return {one.name: frozenset([skill.id for skill in one.agent.skills]) for one in scenarios}


def _check_hub(workspace: Path, hub: HubFile, fleet: Fleet) -> Iterator[str]:
    """Yield the agents and skills that `hub.yaml` names and nobody has."""
    position = _position(workspace / HUB, HUB)
    if position is None:
        return
    names = fleet.agents(DEFAULT_TENANT)
    if hub.helm and hub.helm not in names:
        yield f"{position('helm')}: helm: {_unknown_agent(hub.helm, names)}"
    for skill, split in hub.routing.splits.items():
        at = position.child("routing") or position
        at = at.child("splits") or at
        place = (at.child(skill) or at)()
        if why := fleet.missing_skill(DEFAULT_TENANT, skill):
            yield _finding(place, f"routing.splits.{skill}", why)
        for agent in [one for one in split if one not in names]:
            yield f"{place}: routing.splits.{skill}: {_unknown_agent(agent, names)}"
    settings = load(hub.settings)
    named = [("flow_steps", one, "") for one in settings.flow_steps]
    named += [
        ("flow_delegates", *one.partition("=")[2].partition(":")[::2]) for one in settings.flow_delegates
    ]
    for setting, module, attribute in named:
        if why := _missing_object(workspace, module, attribute):
            yield f"{position(f'settings.{setting}')}: {setting}: {why}"


def _unknown_agent(name: str, names: Sequence[str]) -> str:
    return f"agent {name!r} not found{_suggest(name, names)}"


def _suggest(name: str, names: Iterable[str]) -> str:
    """Return the end of an error's text: the most similar name, if there is one."""
    near = get_close_matches(name, [*names], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _missing_object(workspace: Path, module: str, attribute: str) -> str:
    """Return why there is no module or it has no such name, or an empty text if there is."""
    source = find_module(module, [str(workspace)])
    if source is None:
        names = [path.stem for path in workspace.glob("*.py")]
        text = f"there is no module {module!r}, neither in the workspace nor installed"
        return text + _suggest(module, names)
    if not attribute or source.names is None or attribute in source.names:
        return ""
    return f"module {module!r} has no {attribute!r}{_suggest(attribute, source.names)}"


def _check_schedules(workspace: Path, fleet: Fleet, channels: Mapping[str, Channel]) -> Iterator[str]:
    """Yield what schedules name and nobody has: skills, agents, channels, variables."""
    folder = workspace / CEREMONIES
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        file = f"{CEREMONIES}/{path.name}"
        position = _position(path, file)
        try:
            one = read_ceremony_file(file, read_text(path), path.stem)
        except Misuse:
            # Reported with the other files.
            continue
        if position is not None:
            for member, why in _schedule_findings(one, fleet, channels):
                yield _finding(position(member), member, why)


def _schedule_findings(
    one: Ceremony, fleet: Fleet, channels: Mapping[str, Channel]
) -> Iterator[tuple[str, str]]:
    form, variable = one.form, variable_of({})
    known = fleet.agents(one.tenant)
    targets = [] if form.targets == (ALL,) else [*form.targets]
    for number, name in enumerate(targets):
        if name not in known:
            yield f"targets.{number}", _unknown_agent(name, known)
    why = "" if set(targets) - {*known} else fleet.missing_skill(one.tenant, form.skill, targets)
    if why:
        yield "skill", why
    if one.notify_env and variable(one.notify_env) is None:
        yield "notifyWebhookEnv", f"the variable {one.notify_env} is not set"
    elif form.notify_channel and not form.notify_webhook:
        name = channel_variable(form.notify_channel)
        if variable(name) is None and find_channel(channels, form.notify_channel) is None:
            why = f"channel {form.notify_channel!r} is not configured; set {name}, or add it to notify"
            yield "notifyChannel", why


def _check_cooldowns(fleet: Fleet) -> Iterator[str]:
    """Yield the cooldowns for skills that their agents do not have."""
    for entry in fleet.sound:
        for skill in entry.cooldown_s:
            if fleet.without_skill([entry], skill) == []:
                yield f"{fleet.place(entry, f'cooldown.{skill}')}: cooldown: it has no skill {skill!r}"


def _check_imports(fleet: Fleet) -> Iterator[str]:
    """Yield the entries whose module or agent does not exist. An import would start something."""
    for entry in [one for one in fleet.sound if one.imported]:
        module, _, attribute = entry.imported.partition(":")
        if why := _missing_object(fleet.workspace, module, attribute):
            yield f"{fleet.place(entry, 'import')}: {why}"


def _check_models(fleet: Fleet) -> Iterator[str]:
    """Yield the entries whose model has no provider here."""
    entries = [(one, one.model) for one in fleet.sound if one.model is not None]
    if not entries:
        return
    try:
        from trunkline.gateway.model.providers import ProviderModels, entry_model
    except ImportError as error:
        yield f"models need {error.name}: pip install 'trunkline[model]'"
        return
    models = ProviderModels(variable_of(UNSERVED), fleet.workspace)
    for entry, model in entries:
        named = [("model", model.model)]
        named += [] if model.advisor is None else [("advisor.model", model.advisor.model)]
        for member, name in named:
            try:
                entry_model(models, model, name, None)
            except Misuse as error:
                yield f"{fleet.place(entry, member)}: {error}"
    asyncio.run(models.close())


def _check_mcp_servers(workspace: Path) -> Iterator[str]:
    """Yield the MCP servers that cannot be started or reached, and the delegates of unknown servers."""
    position = _position(workspace / MCP_FILE, MCP_FILE)
    try:
        manifest = load_manifest(workspace / MCP_FILE)
    except (FileNotFoundError, Misuse):
        # Reported with the other files.
        return
    found: list[tuple[str, str]] = []
    for name, entry in manifest.servers.items():
        found += [(f"mcpServers.{name}.{member}", why) for member, why in _server_faults(entry, workspace)]
    for name, delegate in manifest.delegates.items():
        if delegate.server not in manifest.servers:
            near = get_close_matches(delegate.server, [*manifest.servers], 1)
            why = "no such server" + (f"; did you mean {near[0]!r}?" if near else "")
            found.append((f"delegateAgents.{name}.server", why))
    for member, why in found:
        yield f"{MCP_FILE if position is None else position(member)}: {member}: {why}"


def _server_faults(entry: McpServerEntry, folder: Path) -> Iterator[tuple[str, str]]:
    allowed = allowed_commands()
    if entry.command is not None and not is_allowed(entry.command, allowed):
        names = ", ".join(allowed)
        yield "command", f"{entry.command!r} is none of {names}; list the commands in {ALLOW_VARIABLE}"
    for reveal in (entry.variables, entry.sent_headers):
        try:
            reveal(folder)
        except Misuse as error:
            member, _, why = str(error).partition(": ")
            yield member, why


def _check_workflows(fleet: Fleet) -> Iterator[str]:
    """Yield the mistakes in workflows, in entries that name them, and what they need and nobody provides."""
    named = {one.workflow: one for one in fleet.sound if is_path(one.workflow)}
    if not named and not (fleet.workspace / "workflows").is_dir():
        return
    try:
        from trunkline.flow.definition.graph import find_unknown_nodes
        from trunkline.flow.definition.source import line_of
        from trunkline.flow.definition.warnings import warnings
        from trunkline.hub.provision import find_uncompilable, find_unprovided, workspace_provision
        from trunkline.hub.workflow_files import WorkflowFiles
    except ImportError as error:
        yield f"workflows need {error.name}: pip install 'trunkline[flow]'"
        return
    files = WorkflowFiles(fleet.workspace)
    try:
        provision = workspace_provision(fleet.workspace, fleet.agents(DEFAULT_TENANT))
    except Misuse as error:
        provision = None
        yield _named(fleet.workspace, error)
    listed = files.paths()
    for path in [*listed, *[one for one in named if one not in listed]]:
        try:
            definition = files.load(path).definition
        except Misuse as error:
            yield str(error) if path in listed else f"{fleet.place(named[path], 'workflow')}: {error}"
            continue
        faults = find_unknown_nodes(definition.document) + asyncio.run(find_uncompilable(definition))
        doubts = warnings(definition.document)
        if provision is not None:
            unprovided = find_unprovided(definition.document, provision)
            faults += [*unprovided.errors, *unprovided.warnings]
            doubts += unprovided.doubts
        position = _position(fleet.workspace / path, path)
        for one in [*faults, *doubts]:
            line = path if position is None else f"{path}, line {line_of(position, one)}"
            yield f"{UNCERTAIN if one in doubts else ''}{line}: {one}"


def _position(path: Path, name: str) -> YamlPosition | None:
    """Return where the members of a file stand, or None if it cannot be read."""
    try:
        found = read_yaml(read_text(path), name)
    except (FileNotFoundError, Misuse):
        return None
    return None if found is None else found[1]


def _finding(place: str, member: str, why: str) -> str:
    """Return a finding with its place; a warning stays one."""
    text = why.removeprefix(UNCERTAIN)
    return f"{UNCERTAIN if why != text else ''}{place}: {member}: {text}"
