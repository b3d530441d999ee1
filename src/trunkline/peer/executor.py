"""The executor of tasks that a remote agent does; the agents of a process that call others each have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trunkline.errors import InvalidParams, Misuse
from trunkline.peer.callbacks import Following
from trunkline.peer.remote import CALLS, Peer, find, read_target, spoken
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.wire.types import SendRequest, TaskState

if TYPE_CHECKING:
    from trunkline.peer.clients import PeerClients


def remote_id(agent: str) -> str:
    """The id under which the remote tasks of an agent's skills are recorded; no author can take it."""
    return f"{agent}{CALLS}"


class PeerExecutor:
    """Has tasks done by remote agents: those that have a name here, and any other by its address."""

    works_elsewhere = True

    def __init__(
        self,
        peers: Mapping[str, Peer],
        clients: PeerClients | None = None,
        following: Following | None = None,
    ) -> None:
        self._peers = peers
        self._clients = clients
        self._following = following or Following()

    def admit(self, request: SendRequest) -> str:
        """The skill that was asked for; which there are only the remote agent knows."""
        return read_target(request.message).skill

    def named(self, name: str) -> str:
        """Refuse: nobody outside asks for it."""
        raise InvalidParams(f"there is no agent or skill {name!r} here", field="agent_id")

    def on_crash(self, skill: str) -> OnCrash:
        """Say that a task goes on with its remote task."""
        del skill
        return OnCrash.RESUME

    async def run(self, work: Work) -> Verdict:
        """Have the work done, and tell the truth about it."""
        # An agent that calls nobody starts without a client.
        from trunkline.peer.clients import PeerClients
        from trunkline.peer.remote_run import RemoteRun

        clients = self._clients = self._clients or PeerClients()
        target = read_target(work.state.message)
        try:
            peer = find(self._peers, target.target)
            client, polls = clients.of(target.target, peer), clients.polls(target.target)
        except Misuse as misuse:
            return spoken(work, TaskState.FAILED, str(misuse))
        return await RemoteRun(work, target, peer, client, following=self._following, polls=polls).run()

    async def close(self) -> None:
        """Let go of every connection."""
        if self._clients is not None:
            await self._clients.close()
