"""The catalogue: which agents each tenant has now. In memory; files, documents and cards are told to it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.clock import monotonic_ms
from trunkline.fleet.catalogue.breaker import AgentBreaker
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.listed import CardFacts, Listed, Override, list_entry

# Whose an entry is: "" for one of a file, else a tenant; and its name.
Key = tuple[str, str]
OF_FILES = ""
# Limit on the bytes of all fetched cards of one tenant's own agents. Agents of files have no such limit.
TENANT_CARD_BYTES = 64 << 20
# The reason that tenants see of an agent in the operator's files, whose faults name modules, files and hosts.
_HIDDEN = "the operator of the hub can see the reason"
# What is told: the key, the entry before and the one now; the same twice when its card or state has changed.
Changed = Callable[[Key, Entry | None, Entry | None], None]


class _Given(Struct, frozen=True):
    override: Override
    # Of the text that it was given for: it ends when that changes.
    revision: str


class Catalogue:
    """The entries of files and of documents, and what is known of each; `changed` is told of every change.

    With `searches` the operator has set up a search engine, which entries may grant to their models.
    """

    def __init__(self, clock_ms: Callable[[], int] = monotonic_ms, *, searches: bool = False) -> None:
        self.searches = searches
        self._now = clock_ms
        self._entries: dict[Key, Entry] = {}
        self._facts: dict[Key, CardFacts] = {}
        # By tenant, the sum of the sizes in `_facts`; only `_put_facts` changes both.
        self._card_bytes: Counter[str] = Counter()
        self._failures: dict[Key, str] = {}
        self._overrides: dict[Key, _Given] = {}
        self._breakers: dict[Key, AgentBreaker] = {}
        self._views: dict[str, dict[str, Listed]] = {}
        self._by_skill: dict[str, dict[str, list[str]]] = {}
        # Names by who has them, so that a tenant's view is made of its own entries alone.
        self._names: dict[str, set[str]] = {}
        # Whether a tenant may have agents of a kind; `forget_view` where that has changed.
        self.allows: Callable[[str, str], bool] = lambda tenant, kind: True
        self.changed: list[Changed] = []
        # Called when a task could not reach the agent of an entry; set by what reads the cards.
        self.missed: Callable[[Key], None] = lambda key: None

    # Reading.

    def listed(self, tenant: str) -> Sequence[Listed]:
        """The agents of a tenant, by name."""
        view = self._view(tenant)
        if self._breakers:
            return [self._with_breaker(one) for one in view.values()]
        return [*view.values()]

    def find(self, tenant: str, name: str) -> Listed | None:
        """An agent of a tenant by its name."""
        view = self._views.get(tenant)
        found = (self._view(tenant) if view is None else view).get(name)
        return self._with_breaker(found) if self._breakers and found is not None else found

    def with_skill(self, tenant: str, skill: str) -> Sequence[Listed]:
        """The agents of a tenant that have a skill, whatever their state, by name."""
        view = self._view(tenant)
        index = self._by_skill.get(tenant)
        if index is None:
            index = self._by_skill[tenant] = {}
            for name, one in view.items():
                for known in one.skills:
                    index.setdefault(known.id, []).append(name)
        return [self._with_breaker(view[name]) for name in index.get(skill, ())]

    def entry(self, key: Key) -> Entry | None:
        """An entry by whose it is and its name."""
        return self._entries.get(key)

    def entries(self) -> dict[Key, Entry]:
        """Every entry, of all tenants."""
        return dict(self._entries)

    def count(self, tenant: str) -> int:
        """How many entries a tenant has beside those of files."""
        return len(self._names.get(tenant, ()))

    def key_of(self, tenant: str, name: str) -> Key | None:
        """Which entry a name means in a tenant: that of a file wins."""
        of_file = self._entries.get((OF_FILES, name))
        if of_file is not None and of_file.serves(tenant):
            return OF_FILES, name
        return (tenant, name) if (tenant, name) in self._entries else None

    def is_reserved(self, name: str) -> bool:
        """Whether the hub itself runs an agent of this name, for whatever tenants: no other may have it."""
        of_file = self._entries.get((OF_FILES, name))
        return of_file is not None and of_file.kind != "peer"

    # Being told.

    def take_files(self, entries: Iterable[Entry]) -> None:
        """All entries of files as they are now."""
        found = {(OF_FILES, one.name): one for one in entries}
        gone = [key for key in self._entries if key[0] == OF_FILES and key not in found]
        for key in gone:
            self._put(key, None)
        for key, entry in found.items():
            self._put(key, entry)

    def take(self, tenant: str, name: str, entry: Entry | None) -> None:
        """An entry of a tenant that is kept as a document, or None when it is gone."""
        self._put((tenant, name), entry)

    def take_override(self, tenant: str, name: str, override: Override, revision: str = "") -> None:
        """Apply an operator's override to the entry while it has this revision, or to any without one."""
        if override:
            self._overrides[tenant, name] = _Given(override, revision)
        else:
            self._overrides.pop((tenant, name), None)
        key = self.key_of(tenant, name)
        if key is not None:
            self._renew(key)

    def learn(self, key: Key, facts: CardFacts) -> None:
        """Take up the facts of a card that an agent has just shown."""
        if key in self._entries:
            self._failures.pop(key, None)
            self._put_facts(key, facts)
            self._renew(key)

    def has_room(self, key: Key, size: int) -> bool:
        """Return whether a fetched card of this many bytes fits the limit of its tenant."""
        known = self._facts.get(key)
        others = self._card_bytes[key[0]] - (0 if known is None else known.size)
        return key[0] == OF_FILES or others + size <= TENANT_CARD_BYTES

    def _put_facts(self, key: Key, facts: CardFacts | None) -> None:
        before = self._facts.pop(key, None)
        if before is not None:
            self._card_bytes[key[0]] -= before.size
        if facts is not None:
            self._facts[key] = facts
            self._card_bytes[key[0]] += facts.size
        if not self._card_bytes[key[0]]:
            del self._card_bytes[key[0]]

    def fail(self, key: Key, reason: str) -> bool:
        """Why the card of an agent could not be had, what is known of it stays; whether that is new."""
        if key not in self._entries or self._failures.get(key) == reason:
            return False
        self._failures[key] = reason
        self._renew(key)
        return True

    def knows(self, key: Key) -> bool:
        """Whether an agent has shown a card, and nothing has failed since."""
        return key in self._facts and key not in self._failures

    @property
    def is_settled(self) -> bool:
        """Whether no agent is still to show its card, or to fail to."""
        heard = self._facts.keys() | self._failures.keys()
        return all([key in heard or one.fault or not one.enabled for key, one in self._entries.items()])

    # Outcomes.

    @property
    def is_sound(self) -> bool:
        """Whether no agent has failed since it last did well."""
        return not self._breakers

    def breaker(self, tenant: str, name: str) -> AgentBreaker:
        """The breaker of an agent."""
        key = self.key_of(tenant, name)
        return AgentBreaker() if key is None else self._breakers.get(key, AgentBreaker())

    def admits(self, tenant: str, name: str) -> bool:
        """Whether the breaker of an agent lets work pass now."""
        return self.breaker(tenant, name).admits(self._now())

    def take_outcome(self, tenant: str, name: str, *, succeeded: bool) -> None:
        """Count the end of a task towards the breaker of the agent that did it."""
        if self._breakers or not succeeded:
            self._turn(
                tenant, name, lambda known: known.succeeded() if succeeded else known.failed(self._now())
            )

    def take_absence(self, tenant: str, name: str) -> None:
        """Have the card of an agent read soon, because a task could not reach the agent."""
        key = self.key_of(tenant, name)
        if key is not None:
            self.missed(key)

    def take_try(self, tenant: str, name: str) -> None:
        """Work goes to an agent; while its breaker is half open it is the only one for a minute."""
        if self._breakers:
            self._turn(tenant, name, lambda known: known.tried(self._now()))

    def _turn(self, tenant: str, name: str, change: Callable[[AgentBreaker], AgentBreaker]) -> None:
        key = self.key_of(tenant, name)
        if key is None:
            return
        before = self._breakers.get(key, AgentBreaker())
        after = change(before)
        if after == AgentBreaker():
            self._breakers.pop(key, None)
        else:
            self._breakers[key] = after
        if bool(before.until) != bool(after.until):
            entry = self._entries[key]
            self._tell(key, entry, entry)

    # The views of tenants.

    def _put(self, key: Key, entry: Entry | None) -> None:
        before = self._entries.get(key)
        if before == entry:
            return
        names = self._names.setdefault(key[0], set())
        if entry is None:
            del self._entries[key]
            names.discard(key[1])
        else:
            self._entries[key] = entry
            names.add(key[1])
        if before is None or entry is None or _source(before) != _source(entry):
            # Another address is another agent.
            self._put_facts(key, None)
            self._failures.pop(key, None)
            self._breakers.pop(key, None)
        if key[0] == OF_FILES:
            self._views.clear()
            self._by_skill.clear()
        else:
            self._renew_view(*key)
        self._tell(key, before, entry)

    def forget_view(self, tenant: str) -> None:
        """Make the list of a tenant anew when it is asked for."""
        self._views.pop(tenant, None)
        self._by_skill.pop(tenant, None)

    def _renew_view(self, tenant: str, name: str) -> None:
        """List one agent of a tenant as it is now. The others stay: they may have a million skills."""
        view = self._views.get(tenant)
        if view is None:
            return
        key = self.key_of(tenant, name)
        before, after = view.pop(name, None), None
        if key is not None and self.allows(tenant, self._entries[key].kind):
            after = view[name] = self._made(tenant, key, self._entries[key])
            self._views[tenant] = {known: view[known] for known in sorted(view)}
        self._index(tenant, name, before, after)

    def _index(self, tenant: str, name: str, before: Listed | None, after: Listed | None) -> None:
        """Enter an agent under the skills that it has now, and under no others."""
        index = self._by_skill.get(tenant)
        if index is None:
            return
        had = set[str]() if before is None else {one.id for one in before.skills}
        has = set[str]() if after is None else {one.id for one in after.skills}
        for skill in had - has:
            names = index[skill]
            del names[bisect_left(names, name)]
            if not names:
                del index[skill]
        for skill in has - had:
            insort(index.setdefault(skill, []), name)

    def _renew(self, key: Key) -> None:
        entry = self._entries[key]
        changes: list[bool] = []
        for tenant in self._views if key[0] == OF_FILES else (key[0],):
            view = self._views.get(tenant, {})
            before = view.get(entry.name)
            if before is None or self.key_of(tenant, entry.name) != key:
                continue
            after = view[entry.name] = self._made(tenant, key, entry)
            self._index(tenant, entry.name, before, after)
            changes.append(_told(before) != _told(after))
        # Of what nobody has looked at it is not known whether it is another.
        if any(changes) or not changes:
            self._tell(key, entry, entry)

    def _view(self, tenant: str) -> dict[str, Listed]:
        view = self._views.get(tenant)
        if view is None:
            of_files = self._names.get(OF_FILES, ())
            names = {name for name in of_files if self._entries[OF_FILES, name].serves(tenant)}
            view = self._views[tenant] = {}
            for name in sorted(names | self._names.get(tenant, set())):
                key = self.key_of(tenant, name)
                if key is not None and self.allows(tenant, self._entries[key].kind):
                    view[name] = self._made(tenant, key, self._entries[key])
        return view

    def _made(self, tenant: str, key: Key, entry: Entry) -> Listed:
        if key[0] != OF_FILES and self.is_reserved(entry.name):
            entry = replace(entry, fault="the hub itself runs an agent of this name; take another one")
        given = self._overrides.get((tenant, entry.name))
        is_outdated = given is None or given.revision not in ("", entry.revision)
        override: Override = "" if given is None or is_outdated else given.override
        listed = list_entry(entry, self._facts.get(key), self._failures.get(key, ""), override)
        if key[0] == OF_FILES and tenant != DEFAULT_TENANT and listed.state in ("invalid", "unreachable"):
            return replace(listed, reason=_HIDDEN, operator_reason=listed.reason)
        return listed

    def _with_breaker(self, listed: Listed) -> Listed:
        key = OF_FILES if listed.entry.owner == "file" else listed.entry.tenants[0], listed.entry.name
        known = self._breakers.get(key)
        return listed if known is None else replace(listed, breaker=known.state(self._now()))

    def _tell(self, key: Key, before: Entry | None, after: Entry | None) -> None:
        for told in list(self.changed):
            told(key, before, after)


def _source(entry: Entry) -> tuple[object, ...]:
    """The fields of an entry that say who does its work."""
    return entry.peer, entry.imported, entry.model, entry.workflow


def _told(listed: Listed) -> Listed:
    """A listed agent without what changes with every card."""
    return replace(listed, card_at=0, card=None)
