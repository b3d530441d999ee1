"""The cards of the catalogue's remote agents: each asked for once, then again when its time has come."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from time import monotonic

import msgspec
from msgspec.structs import replace

from trunkline.client.client import Client
from trunkline.clock import random_bits, wait_event
from trunkline.errors import Misuse, TrunklineError
from trunkline.fleet.catalogue.card_facts import facts_of, kept_of, pause_s
from trunkline.fleet.catalogue.catalogue import OF_FILES, TENANT_CARD_BYTES, Catalogue, Key
from trunkline.fleet.catalogue.entry import Entry
from trunkline.peer.clients import PeerClients
from trunkline.peer.remote import Peer
from trunkline.wire.peer_card import PeerCard

log = logging.getLogger("trunkline.fleet")
CARD_REFRESH_S = 600.0
# How many agents are asked at once. Of one tenant not more than are left for others, so that those which
# answer slowly, or never, keep only the others of their tenant waiting.
ASKING = 32
# How soon a card is read when a task could not reach its agent: tasks that notice it together cause one read.
MISSED_S = 0.5
# The size of a card that is asked for only if it has changed.
REMEMBERED = 16 << 10


def draw() -> float:
    """A number from 0 to 1."""
    return random_bits(32) / 2**32


class CardDiscovery:
    """Keeps the cards of a catalogue; `run` is owned by who serves it."""

    def __init__(
        self,
        catalogue: Catalogue,
        clients: PeerClients,
        now_ms: Callable[[], int],
        *,
        refresh_s: float = CARD_REFRESH_S,
        draw: Callable[[], float] = draw,
    ) -> None:
        self._catalogue = catalogue
        self._make = clients.make
        clients.card = self.card_of
        self._now = now_ms
        self._refresh_s = refresh_s
        self._draw = draw
        self._clients: dict[Key, Client] = {}
        self._cards: dict[tuple[str, ...], tuple[Peer, PeerCard]] = {}
        self._failures: dict[Key, int] = {}
        self._due: dict[Key, float] = {}
        self._queue: list[tuple[float, Key]] = []
        # By tenant: how many are asked because their time has come, and those that wait for their turn.
        self._turns: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[float, Key]]] = {}
        self._asking: dict[Key, asyncio.Event] = {}
        self._woken = asyncio.Event()
        catalogue.changed.append(self._note)
        catalogue.missed = self._read_soon
        for key, entry in catalogue.entries().items():
            self._note(key, None, entry)

    def _note(self, key: Key, before: Entry | None, after: Entry | None) -> None:
        was, now = _called(before), _called(after)
        if was is not None and was != now:
            self._cards.pop(_identity(was), None)
            self._clients.pop(key, None)
            self._failures.pop(key, None)
        if now is None:
            self._due.pop(key, None)
        elif was != now:
            # Many entries that come at once are not asked in the same moment.
            self._plan(key, self._draw() * min(5.0, len(self._due) / 50))

    def _plan(self, key: Key, in_s: float) -> None:
        self._due[key] = due = monotonic() + in_s
        heapq.heappush(self._queue, (due, key))
        self._woken.set()

    def _read_soon(self, key: Key) -> None:
        """Read a card that was read well before, so that the state of its agent is that of now."""
        due = self._due.get(key)
        is_failing = key in self._failures or key in self._asking
        if due is not None and not is_failing and due - monotonic() > MISSED_S:
            self._plan(key, MISSED_S)

    def card_of(self, peer: Peer) -> PeerCard | None:
        """The card of an agent, so that whoever calls it need not ask for it again."""
        found = self._cards.get(_identity(peer))
        if found is None or (found[0] is not peer and found[0] != peer):
            return None
        return found[1]

    async def run(self) -> None:
        """Ask for cards until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                wait_s = self._start(group)
                await wait_event(self._woken, wait_s)

    def _start(self, group: asyncio.TaskGroup) -> float | None:
        """Ask those whose time has come; gives how long until that of the next."""
        now = monotonic()
        while self._queue and self._queue[0][0] <= now:
            due, key = heapq.heappop(self._queue)
            self._waiting.setdefault(key[0], deque()).append((due, key))
        turns = self._turns
        for tenant, waiting in list(self._waiting.items()):
            while waiting and (0 if tenant == OF_FILES else turns[tenant]) < ASKING - turns.total():
                due, key = waiting.popleft()
                if self._due.get(key) == due and key not in self._asking:
                    turns[tenant] += 1
                    self._asking[key] = asyncio.Event()
                    group.create_task(self._ask_and_plan(key)).add_done_callback(partial(self._end, tenant))
            # Behind the others, so that each of them has its turn.
            del self._waiting[tenant]
            if waiting:
                self._waiting[tenant] = waiting
        return self._queue[0][0] - now if self._queue else None

    def _end(self, tenant: str, _: asyncio.Task[None]) -> None:
        self._turns -= Counter([tenant])
        self._woken.set()

    async def _ask_and_plan(self, key: Key) -> None:
        is_known = False
        try:
            is_known = await self._ask(key)
        except Exception:
            # What one agent says must not end the work for all others.
            is_known = True
            self._failures[key] = self._failures.get(key, 0) + 1
            log.exception("catalogue.card_raised agent=%s", key[1])
            self._catalogue.fail(key, "its card cannot be taken up; the log of the hub says why")
        finally:
            self._asking.pop(key).set()
            if key in self._due:
                failures = self._failures.get(key, 0)
                self._plan(key, pause_s(self._refresh_s, failures, self._draw()) if is_known else 0.0)

    async def refresh(self, key: Key) -> None:
        """Ask for a card now; whoever asks meanwhile waits for the same answer."""
        if key not in self._due:
            return
        if (asking := self._asking.get(key)) is not None:
            await asking.wait()
            return
        self._asking[key] = asyncio.Event()
        await self._ask_and_plan(key)

    async def _ask(self, key: Key) -> bool:
        """Ask an agent for its card; whether its entry still names that agent when it has answered."""
        peer = _called(self._catalogue.entry(key))
        if peer is None:
            self._due.pop(key, None)
            return True
        found = await self._shown(key, peer)
        if _called(self._catalogue.entry(key)) != peer:
            return False
        if isinstance(found, tuple) and not self._catalogue.has_room(key, found[1]):
            self._clients.pop(key, None)
            found = Misuse(
                f"the cards of this tenant's agents exceed {TENANT_CARD_BYTES >> 20} MiB in total; "
                "remove an agent or shorten a card"
            )
        if not isinstance(found, tuple):
            self._failures[key] = self._failures.get(key, 0) + 1
            log.info("catalogue.card_failed agent=%s tenant=%a error=%a", key[1], key[0], str(found))
            self._catalogue.fail(key, str(found)[:1000])
            return True
        card, size = found
        known = self.card_of(peer)
        if known is None or known != card:
            # One that says the same is the same: whoever works by it goes on.
            self._cards[_identity(peer)] = peer, card
            known = card
        self._catalogue.learn(key, replace(facts_of(known, peer.url, self._now()), size=size))
        self._failures.pop(key, None)
        return True

    async def _shown(self, key: Key, peer: Peer) -> tuple[PeerCard, int] | TrunklineError | Misuse:
        """Return the card of an agent as it is kept, with its bytes, or the error that prevents it."""
        try:
            client = self._clients.get(key)
            if client is None:
                client = self._clients[key] = self._make(peer, tenant=key[0])
            try:
                card = await client.card(refresh=True)
            finally:
                # Thousands are asked within seconds, and each of them again only after minutes.
                client.close_idle()
            document = len(msgspec.json.encode(card.document))
            if document > REMEMBERED:
                # It is kept by its client, to be asked whether it has changed; a large one is asked for anew.
                self._clients.pop(key, None)
                document = 0
            kept = kept_of(card)
            return kept, document + len(msgspec.json.encode(kept))
        except (TrunklineError, Misuse) as error:
            return error


def _called(entry: Entry | None) -> Peer | None:
    """The agent that is asked for its card; none of an entry that cannot be used."""
    return None if entry is None or entry.fault else entry.peer


def _identity(peer: Peer) -> tuple[str, ...]:
    return peer.url, peer.card_url, peer.api_key_env, peer.bearer_env, peer.sealed
