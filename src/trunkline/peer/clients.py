"""A client for each remote agent that this process calls."""

from __future__ import annotations

from trunkline.client.client import Client
from trunkline.config import LONGEST_S
from trunkline.peer.remote import Peer

# Kept for agents that are called again; an author may call any number of addresses.
CLIENTS_LIMIT = 64


class PeerClients:
    """The clients of remote agents, by the name or address under which these are called."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}

    def of(self, named: str, peer: Peer) -> Client:
        """The client for an agent; whoever asks first makes it.

        Raises:
            Misuse: a variable that is named for a key is not set.
        """
        client = self._clients.pop(named, None)
        if client is None:
            client = Client(
                peer.url,
                api_key_env=peer.api_key_env,
                bearer_env=peer.bearer_env,
                headers=peer.headers,
                version=peer.version,
                card_url=peer.card_url,
                verify_tls=peer.verify_tls,
                # How long the work may take is the task's own business, not that of a request.
                timeout_s=LONGEST_S,
            )
        # The newest last: what is called again and again is not what goes.
        self._clients[named] = client
        while len(self._clients) > CLIENTS_LIMIT:
            # Not closed: calls may be on their way; its connections go with the last of them.
            del self._clients[next(iter(self._clients))]
        return client

    async def close(self) -> None:
        """Let go of every connection."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()
