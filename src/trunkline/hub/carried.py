"""The agents of a catalogue on the runner and as sites: they come, change and go while the hub runs."""

from __future__ import annotations

import asyncio
import importlib
import logging
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from trunkline.agent.agent import Agent
from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.clock import now_ms
from trunkline.config import Settings
from trunkline.errors import FlowRefused, Misuse, StoreError
from trunkline.fleet.catalogue.card_facts import effects_of
from trunkline.fleet.catalogue.catalogue import OF_FILES, Catalogue, Key
from trunkline.fleet.catalogue.entry import Entry, EntrySkill, Kind
from trunkline.fleet.catalogue.entry_reader import is_path
from trunkline.fleet.catalogue.listed import CardFacts, Listed
from trunkline.fleet.catalogue.model_entry import MODEL_ENTRY, ModelEntry
from trunkline.fleet.journal import KIND as JOURNAL_KIND
from trunkline.fleet.journal import Journals
from trunkline.hosting import ExecutorFactory, SiteFactory, check_agents
from trunkline.hub.agent_cards import card_of
from trunkline.log.events import Stepped
from trunkline.peer.clients import PeerClients
from trunkline.peer.entry_executor import ENTRY, EntryExecutor
from trunkline.peer.executor import remote_id
from trunkline.peer.remote import Peer
from trunkline.run.node import HostedAgent
from trunkline.run.runner import Runner
from trunkline.server.encoding import EncodedOperations
from trunkline.server.operations import OpenTask
from trunkline.server.site import Site
from trunkline.store.records import Waiting, Where
from trunkline.wire.card import Card, Extension, card_v1
from trunkline.wire.peer_card import read_card
from trunkline.wire.question import OTHERS

if TYPE_CHECKING:
    from trunkline.flow.definitions import Loaded
    from trunkline.hub.flows import HostFlows
    from trunkline.hub.models import HostModels

log = logging.getLogger("trunkline.hub")
_LOOK_S = 5.0
# Interval at which scripts of models that are missing or invalid are loaded again, in seconds.
SCRIPTS_S = 2.0
_SITES_LIMIT = 1024
_OF_AGENT = "agent:"
# So many agents of tenants are carried on that are gone, whatever became of their tasks; beyond that, those
# of which a task is left. So many are looked at together.
_GONE_LIMIT, _LOOKED_AT = 1000, 20
# Frames of what imports an agent, rather than of the agent.
_OURS = (str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen importlib")


def load_agent(imported: str) -> Agent:
    """The agent that an entry imports.

    Raises:
        Misuse: there is none of that name, or it has no skill.
    """
    module_name, _, attribute = imported.partition(":")
    found = getattr(importlib.import_module(module_name), attribute, None)
    if not isinstance(found, Agent):
        raise Misuse(f"{module_name} has no Agent named {attribute!r}")
    check_agents([found])
    return found


def fault_of(error: BaseException) -> str:
    """Why an agent in Python is not there, in words that everybody may read.

    What its code raises may hold a password: of that only the kind and the place are told.
    """
    if isinstance(error, Misuse):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"there is no module {error.name!r}"
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames = [(error.filename or "", error.lineno)]
    # The line of its own file; what it called from there is of less use to its author.
    theirs = [f" at {Path(file).name}:{line}" for file, line in frames if not file.startswith(_OURS)]
    return f"{type(error).__name__}{theirs[0] if theirs else ''}"


class AgentNames:
    """The names of the agents that skills of the hub may call, as it carries them now."""

    def __init__(self, hosted: Mapping[str, object]) -> None:
        self._hosted = hosted

    def __contains__(self, name: object) -> bool:
        # Also one that is gone: a call of it that was begun is played again after a crash.
        return name in self._hosted

    def __iter__(self) -> Iterator[str]:
        return iter([*self._hosted])

    def __len__(self) -> int:
        return len(self._hosted)


class CarriedAgents:
    """The agents of a hub's catalogue: each has its tasks carried and its site served.

    An entry that is gone is carried on without taking anything new: its open tasks are followed by what
    their logs say of it. Those that a start finds waiting are taken up in the same way.
    """

    def __init__(self, catalogue: Catalogue, load: Callable[[str], Agent] = load_agent) -> None:
        self._catalogue = catalogue
        self._load = load
        self._changed = asyncio.Event()
        # The entries that are others since they were last carried.
        self._waiting: dict[Key, None] = {}

    def assemble(
        self,
        runner: Runner,
        executors: ExecutorFactory,
        sites: SiteFactory,
        settings: Settings,
        clients: PeerClients,
    ) -> None:
        """Begin with a new runner, which carries nobody of the catalogue yet."""
        self._flows: HostFlows | None = None
        self._beside: list[HostedAgent] = []
        self._workflows: dict[Key, Loaded] = {}
        self._models: dict[Key, ModelEntry] = {}
        # Entries whose script is missing or invalid.
        self._failed_scripts: set[Key] = set()
        self._loaded_models: HostModels | None = None
        self._runner = runner
        self._sites = sites
        self._settings = settings
        self._clients = clients
        # By name and kind: tenants may have agents of one name and of different kinds.
        self._hosted: dict[str, dict[Kind, list[HostedAgent]]] = {}
        self._executors = replace(executors, local=AgentNames(self._hosted), lacks=self._lacks)
        # What the entries are, or were when they went; and those of tenants that went, the first one first.
        self._kinds: dict[Key, Kind] = {}
        self._gone: dict[Key, None] = {}
        self._imported: dict[str, str] = {}
        # What the skills of an agent in Python emit and change, by its name.
        self._declared: dict[str, tuple[Extension, ...]] = {}
        # By tenant and name, the longest unread first; and by name what all tenants share of an agent's site.
        self._made: dict[Key, tuple[Listed, Card, Site]] = {}
        self._operations: dict[str, EncodedOperations] = {}
        self._first = runner.agent(runner.origin)

    def has(self, tenant: str, name: str) -> bool:
        """Whether an agent is carried that a tenant has, and that takes work: a run may name any."""
        found = self._catalogue.find(tenant, name)
        return found is not None and found.state != "disabled" and self._is_hosted(name, found.entry.kind)

    def run_flows(self, flows: HostFlows, runs: HostedAgent) -> None:
        """Take what runs workflows, and the agent whose tasks their runs are."""
        self._flows = flows
        self._beside = [runs]

    def run_models(self, load: Callable[[], HostModels]) -> None:
        """Take what loads the library of models, and what they work with, once somebody is one.

        It raises `Misuse` if the library is not there.
        """
        self._load_models = load

    def open_by(self, opening: Callable[[str], OpenTask]) -> None:
        """Take how messages at the address of an agent become tasks, by its name."""
        self._opening = opening

    def renew(self) -> None:
        """Look again at what entries name."""
        self._changed.set()

    def note(self, key: Key, before: Entry | None, after: Entry | None) -> None:
        """Carry an entry as it is now, as soon as possible; its card and state change nothing of that."""
        if before is not after:
            self._waiting[key] = None
            self._changed.set()

    # Executors.

    async def start(self) -> None:
        """Carry what is listed, and what a former process has left of entries that are gone.

        Raises:
            StoreError: the store does not answer.
        """
        self._former = await self._found_former()
        self._unlisted = await self._left()
        await self._carry(self._catalogue.entries(), self._unlisted)

    async def follow(self) -> None:
        """Carry what is listed whenever that changes, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            keys = self._looked_at()
            try:
                await self._carry(keys, {})
            except StoreError as error:
                log.error("agents.uncarried error=%s", error)
                self._waiting.update(dict.fromkeys(keys))
                self._changed.set()
                await asyncio.sleep(_LOOK_S)

    async def retry_scripts(self) -> None:
        """Load scripts of models again that were missing or invalid, until cancelled."""
        while True:
            await asyncio.sleep(SCRIPTS_S)
            if self._failed_scripts:
                self._changed.set()

    async def close(self) -> None:
        """Let go of every connection."""
        await self._clients.close()
        if self._loaded_models is not None:
            await self._loaded_models.close()

    def _looked_at(self) -> Collection[Key]:
        """The entries that are looked at now: what has changed, and all that name a file or a library.

        Of agents elsewhere there may be thousands, and their names are carried for good. One that a file
        brings may be run here, and takes its name from all others.
        """
        noted, self._waiting = self._waiting, {}
        if any([whose == OF_FILES for whose, _ in noted]):
            return {**noted, **self._catalogue.entries()}
        return {**noted, **{key: None for key, kind in self._kinds.items() if kind != "peer"}}

    async def _carry(self, keys: Iterable[Key], left: Mapping[str, Kind]) -> None:
        for key in keys:
            entry = self._catalogue.entry(key)
            self._failed_scripts.discard(key)
            if entry is None:
                if key[0] != OF_FILES:
                    self._gone[key] = None
                continue
            self._gone.pop(key, None)
            self._kinds[key] = entry.kind
            if key[0] != OF_FILES and self._catalogue.is_reserved(entry.name):
                self._catalogue.fail(key, f"another agent that this hub runs is called {entry.name!r}")
            elif entry.kind == "skill":
                self._carry_skill(key, entry)
            elif entry.kind == "flow":
                await self._carry_flow(key, entry)
            elif entry.model is not None:
                await self._carry_model(key, entry.name, entry.model)
            elif entry.peer is not None:
                self._carry_peer(entry.name)
        for name, kind in left.items():
            if kind == "model":
                await self._follow_model(name)
            elif kind == "flow" and self._flows is not None:
                self._host_flow(self._flows, name)
            else:
                self._carry_peer(name)
        await self._drop_gone()
        hosted = [one for kinds in self._hosted.values() for some in kinds.values() for one in some]
        former = tuple([each for name in self._former if name not in self._hosted for each in _names(name)])
        kept = [(former, self._settings.kept_s)] if former else []
        await self._runner.carry([self._first, *self._beside, *hosted], kept)

    async def _drop_gone(self) -> None:
        """Forget agents of tenants that went, the first ones first, where no task of theirs is left.

        Whoever announces ever new names would have them kept for good otherwise, here and in the store.
        """
        store = self._runner.tasks.store
        for key in [*self._gone][:-_GONE_LIMIT][:_LOOKED_AT]:
            tenant, name = key
            has_tasks = (await store.heads.list(tenant, Where(agents=_names(name)), size=1)).heads
            if self._catalogue.entry(key) is not None:
                # It is back, and is carried with the next change.
                continue
            del self._gone[key]
            if has_tasks:
                self._gone[key] = None
                continue
            for known in (self._kinds, self._workflows, self._models):
                known.pop(key, None)
            if name not in self._unlisted and not any([other == name for _, other in self._kinds]):
                self._hosted.pop(name, None)
                self._operations.pop(name, None)
            await Journals(store.docs).delete(tenant, _OF_AGENT + name)

    def _is_kind(self, name: str, kind: Kind, tenant: str) -> bool:
        """Whether a tenant's agent of a name is of a kind, or was when it went, or may be if nobody knows."""
        key = self._catalogue.key_of(tenant, name)
        entry = None if key is None else self._catalogue.entry(key)
        return kind == (self._kinds.get((tenant, name), kind) if entry is None else entry.kind)

    def _host(self, name: str, kind: Kind, agents: Sequence[HostedAgent]) -> None:
        serves = partial(self._is_kind, name, kind)
        asks_others = partial(self._asks_others, name)
        self._hosted.setdefault(name, {})[kind] = [
            replace(one, serves=serves, asks_others=asks_others) for one in agents
        ]

    def _asks_others(self, name: str, tenant: str) -> bool:
        """Return whether requesters may not answer the questions of a tenant's agent."""
        found = self._catalogue.find(tenant, name)
        return found is not None and found.entry.answered_by == OTHERS

    def _is_hosted(self, name: str, kind: Kind) -> bool:
        return kind in self._hosted.get(name, ())

    def _carry_peer(self, name: str) -> None:
        if self._is_hosted(name, "peer"):
            return
        executor = EntryExecutor(
            name,
            partial(self._peer, name),
            self._clients,
            self._executors.following,
            ended=lambda tenant, well: self._catalogue.take_outcome(tenant, name, succeeded=well),
            missed=lambda tenant: self._catalogue.take_absence(tenant, name),
        )
        settings = self._settings
        silent_s, kept_s = settings.task_max_age, settings.kept_s
        hosted = HostedAgent(
            name,
            executor,
            silent_s,
            kept_s,
            settings.inbox_ttl_s,
            executor.opening,
            final_message=settings.final_message,
        )
        self._host(name, "peer", [hosted])

    def _peer(self, name: str, tenant: str) -> Peer | None:
        """The agent that a tenant has under a name, while it takes work."""
        found = self._catalogue.find(tenant, name)
        return None if found is None or found.state in ("disabled", "invalid") else found.entry.peer

    def _lacks(self, tenant: str, name: str, skill: str) -> bool:
        """Whether an agent elsewhere has no such skill; those that run here say so themselves."""
        listed = self._catalogue.find(tenant, name)
        known = None if listed is None or listed.entry.kind != "peer" else listed.known_skills
        return known is not None and skill not in known

    def _carry_skill(self, key: Key, entry: Entry) -> None:
        if self._imported.get(entry.name) == entry.imported and self._catalogue.knows(key):
            return
        try:
            agent = self._load(entry.imported)
            facts = _facts(agent)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is shown with the entry, the others are served
            reason = fault_of(error)
            # Said once: it is tried again whenever anything of the catalogue changes.
            if self._catalogue.fail(key, f"{entry.imported}: {reason}"):
                fix = "trunkline hub check"
                log.error("agent.unloaded agent=%s error=%a fix=%a", entry.name, reason, fix)
            return
        self._imported[entry.name] = entry.imported
        self._declared[entry.name] = agent.extensions
        made = self._executors.of(agent, self._settings, id=entry.name)
        answer_s = self._settings.inbox_ttl_s
        self._host(entry.name, "skill", [replace(one, answer_s=answer_s) for one in made])
        self._catalogue.learn(key, facts)

    async def _carry_flow(self, key: Key, entry: Entry) -> None:
        flows = self._flows
        if flows is None:
            reason = "workflows need the extra flow: pip install 'trunkline[flow]'"
            if self._catalogue.fail(key, reason):
                log.error("workflow.unloaded agent=%s error=%a", entry.name, reason)
            return
        # Runs that were begun go on, whatever became of the file since.
        self._host_flow(flows, entry.name)
        try:
            if is_path(entry.workflow):
                loaded = await asyncio.to_thread(flows.files.load, entry.workflow)
            else:
                loaded = await flows.resolve(key[0] or DEFAULT_TENANT, entry.workflow)
        except (Misuse, FlowRefused) as error:
            if self._catalogue.fail(key, str(error)):
                log.error("workflow.unloaded agent=%s error=%a", entry.name, str(error))
            return
        if self._workflows.get(key) is loaded and self._catalogue.knows(key):
            return
        name, definition = entry.name, loaded.definition
        self._workflows[key] = loaded
        told = definition.document["document"].get("description") or definition.name
        skill = EntrySkill(id=name, name=definition.name, description=told)
        self._catalogue.learn(
            key,
            CardFacts(
                at=now_ms(), description=told, skills=(skill,), streaming=True, versions=("1.0", "0.3")
            ),
        )

    def _host_flow(self, flows: HostFlows, name: str) -> None:
        """Carry the runs of a workflow, each of which has its definition in its log."""
        if self._is_hosted(name, "flow"):
            return
        executor = flows.executor(name, lambda tenant: self._workflow(tenant, name))
        silent_s, kept_s = self._settings.stall_limit, self._settings.kept_s
        hosted = HostedAgent(
            name,
            executor,
            silent_s,
            kept_s,
            opening=executor.opening,
            legible=executor.legible,
            check_answer=executor.check_answer,
            final_message=self._settings.final_message,
        )
        self._host(name, "flow", [hosted])

    async def _carry_model(self, key: Key, name: str, entry: ModelEntry) -> None:
        if self._models.get(key) == entry and self._catalogue.knows(key):
            return
        try:
            models = await self._host_model(name)
            # The library of a provider is loaded when it is first named, which takes its time.
            facts = await asyncio.to_thread(models.facts, entry)
        except Misuse as error:
            if entry.model.startswith("script:"):
                self._failed_scripts.add(key)
            if self._catalogue.fail(key, str(error)):
                log.error("model.unloaded agent=%s error=%a", name, str(error))
            return
        self._models[key] = entry
        self._catalogue.learn(key, facts)

    async def _follow_model(self, name: str) -> None:
        """Carry the tasks that a model agent has left, if its library is there."""
        try:
            await self._host_model(name)
        except Misuse as error:
            log.error("model.unloaded agent=%s error=%a", name, str(error))

    async def _host_model(self, name: str) -> HostModels:
        """Carry the tasks of a model agent.

        Raises:
            Misuse: its library is not there.
        """
        if self._loaded_models is None:
            self._loaded_models = await asyncio.to_thread(self._load_models)
        if not self._is_hosted(name, "model"):
            agent = self._loaded_models.agent(name, lambda tenant: self._model(tenant, name))
            made = self._executors.of(agent, self._settings, id=name)
            self._host(name, "model", [replace(one, answer_s=self._settings.inbox_ttl_s) for one in made])
        return self._loaded_models

    def _model(self, tenant: str, name: str) -> ModelEntry | None:
        """The model that a tenant has under a name, while it takes work."""
        found = self._catalogue.find(tenant, name)
        return None if found is None or found.state in ("disabled", "invalid") else found.entry.model

    def _workflow(self, tenant: str, name: str) -> Loaded | None:
        """Return the workflow that a tenant has under a name. An entry in a file is the operator's."""
        key = self._catalogue.key_of(tenant, name)
        found = None if key is None else self._workflows.get(key)
        return replace(found, by_operator=True) if found and key and key[0] == OF_FILES else found

    async def _found_former(self) -> set[str]:
        """Agents that were of the catalogue once, by their journals, and that nobody carries now."""
        store, after = self._runner.tasks.store, ("", "")
        found: set[str] = set()
        while page := await store.docs.list_all(JOURNAL_KIND, after):
            after = (page[-1].tenant, page[-1].id)
            found |= {one.id.removeprefix(_OF_AGENT) for one in page if one.id.startswith(_OF_AGENT)}
        elsewhere = {name for node in await store.nodes.list() if node.alive for name in node.agents}
        return found - elsewhere

    async def _left(self) -> dict[str, Kind]:
        """Agents that no node carries and whose open tasks say in their log who does them."""
        found: dict[str, Kind] = {}
        seen = {one.id for one in self._beside}
        store, after = self._runner.tasks.store, ""
        while page := await store.nodes.waiting(after=after):
            after = page[-1].task_id
            for task in page:
                steps = None if task.agent in seen else await self._steps_of(task)
                if steps is None:
                    continue
                seen.add(task.agent)
                if ENTRY in steps:
                    found[task.agent] = "peer"
                elif MODEL_ENTRY in steps:
                    found[task.agent] = "model"
                elif self._flows is not None and self._flows.step in steps:
                    found[task.agent] = "flow"
        return found

    async def _steps_of(self, task: Waiting) -> set[str] | None:
        """Return the names of the steps of a task, or None if its log is damaged: another one has to tell."""
        tasks = self._runner.tasks
        try:
            feed = await tasks.load(task.tenant, task.task_id)
            records = [] if feed is None else await tasks.records(feed)
        except StoreError as error:
            if not error.damaged_task:
                raise
            log.error("task.damaged task=%s error=%s", task.task_id, error)
            return None
        return {one.event.name for one in records if isinstance(one.event, Stepped)}

    # Sites.

    def find_site(self, tenant: str, name: str) -> Site | None:
        """The site of an agent that a tenant has; made anew when its card has changed."""
        listed = self._catalogue.find(tenant, name)
        made = self._made.pop((tenant, name), None)
        if listed is None or listed.entry.fault or not self._is_hosted(name, listed.entry.kind):
            return None
        if made is None or made[0] is not listed:
            is_skill = listed.entry.kind == "skill"
            card = card_of(listed, self._declared[name]) if is_skill else card_of(listed)
            private = [one.id for one in listed.private]
            site = made[2] if made is not None and made[1] == card else self._new_site(name, card, private)
            made = listed, card, site
        self._made[tenant, name] = made
        if len(self._made) > _SITES_LIMIT:
            del self._made[next(iter(self._made))]
        return made[2]

    def _new_site(self, name: str, card: Card, private: Collection[str]) -> Site:
        operations = self._operations.get(name)
        if operations is not None:
            cards = self._sites.cards(card, self._settings, private)
            return self._sites.showing(operations, cards, self._settings)
        site = self._sites.make(name, card, self._settings, private, open_task=self._opening(name))
        self._operations[name] = site.operations
        return site


def _names(agent: str) -> tuple[str, str]:
    """The names under which the tasks of an agent are recorded, and those that its skills had done."""
    return agent, remote_id(agent)


def _facts(agent: Agent) -> CardFacts:
    found = [
        (one.public, EntrySkill(id=one.id, name=one.name, description=one.description, tags=one.tags))
        for one in agent.skills.values()
    ]
    card = read_card(card_v1(agent.card()))
    return CardFacts(
        at=now_ms(),
        description=agent.description,
        skills=tuple([one for is_public, one in found if is_public]),
        private=tuple([one for is_public, one in found if not is_public]),
        streaming=agent.streaming,
        versions=("1.0", "0.3"),
        card=card,
        effects=effects_of(card),
    )
