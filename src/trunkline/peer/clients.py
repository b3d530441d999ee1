"""A client for each remote agent that this process calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trunkline.client.client import Client
from trunkline.client.credentials import Auth
from trunkline.client.oauth import ClientCredentials, TokenExchange
from trunkline.config import LONGEST_S, Secret, environment
from trunkline.errors import Misuse
from trunkline.net.egress import Egress
from trunkline.peer.remote import Peer, PeerLogin
from trunkline.wire.peer_card import PeerCard

# Kept for agents that are called again, each with its card; an author may call any number of addresses.
CLIENTS_LIMIT = 512
# How many tasks of one agent are looked at together.
POLLS_LIMIT = 16


class PeerClients:
    """The clients of remote agents, by the name or address under which these are called."""

    def __init__(
        self,
        *,
        egress: Callable[[str, str], Egress] = lambda tenant, url: Egress(),
        reveal: Callable[[str], str] | None = None,
    ) -> None:
        """Take the egress rule of a foreign agent, by tenant and URL, and what decrypts credentials."""
        self._egress = egress
        self._reveal = reveal
        # The cards that are known already, told by whoever looks for them.
        self.card: Callable[[Peer], PeerCard | None] = lambda _: None
        self._clients: dict[str, Client] = {}
        self._cards: dict[str, PeerCard | None] = {}
        self._polls: dict[str, asyncio.Semaphore] = {}

    def of(self, named: str, peer: Peer, tenant: str = "") -> Client:
        """The client for an agent; whoever asks first makes it, and a new one where its card is another.

        A foreign one is of the tenant that named it, and so is what it is `named`.

        Raises:
            Misuse: a variable that is named for a key is not set, or a secret cannot be opened.
        """
        client = self._clients.pop(named, None)
        card = self.card(peer)
        if client is None or card is not self._cards.get(named):
            client = self.make(peer, card, tenant)
            self._cards[named] = card
        # The newest last: what is called again and again is not what goes.
        self._clients[named] = client
        while len(self._clients) > CLIENTS_LIMIT:
            # Not closed: calls may be on their way; its connections go with the last of them.
            oldest = next(iter(self._clients))
            del self._clients[oldest]
            self._cards.pop(oldest, None)
            self._polls.pop(oldest, None)
        return client

    def make(self, peer: Peer, card: PeerCard | None = None, tenant: str = "") -> Client:
        """A client of its own for an agent; whoever asked for it closes it.

        Raises:
            Misuse: a secret cannot be opened.
        """
        scheme, _, sealed = peer.sealed.partition(" ")
        if sealed and self._reveal is None:
            raise Misuse("the credentials of this agent cannot be opened here")
        secret = Secret(self._reveal(sealed)) if sealed and self._reveal is not None else ""
        login = peer.login
        return Client(
            peer.url,
            auth=None if login is None else _login(login, secret or _variable(peer.bearer_env)),
            api_key=secret if scheme == "apiKey" else "",
            bearer=secret if scheme == "bearer" else "",
            api_key_env=peer.api_key_env,
            bearer_env="" if login is not None else peer.bearer_env,
            headers=peer.headers,
            version=peer.version,
            card=card,
            card_url=peer.card_url,
            verify_tls=peer.verify_tls,
            egress=self._egress(tenant, peer.url) if peer.foreign else None,
            # How long the work may take is the task's own business, not that of a request.
            timeout_s=LONGEST_S,
        )

    def polls(self, named: str) -> asyncio.Semaphore:
        """What each look at a task of an agent has to pass."""
        found = self._polls.get(named)
        if found is None:
            found = self._polls[named] = asyncio.Semaphore(POLLS_LIMIT)
        return found

    async def close(self) -> None:
        """Let go of every connection."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()


def _variable(name: str) -> Secret:
    if not name:
        raise Misuse("the credentials of this agent went with its entry")
    found = environment(name).get(name)
    if not found:
        raise Misuse(f"the variable {name} is not set")
    return Secret(found)


def _login(login: PeerLogin, secret: Secret) -> Auth:
    if login.grant == "token_exchange":
        return TokenExchange(
            login.token_url, secret, client_id=login.client_id, scopes=login.scopes, audience=login.audience
        )
    return ClientCredentials(
        login.token_url, login.client_id, secret, scopes=login.scopes, audience=login.audience
    )
