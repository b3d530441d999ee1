"""The executor of one remote agent that has a name here: its tasks are followed by what their log says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Struct, convert, to_builtins

from trunkline.clock import new_id
from trunkline.errors import InvalidParams, Misuse, RouteNotFound
from trunkline.log.events import Status, Stepped, Submitted
from trunkline.net.egress import shown
from trunkline.peer.callbacks import Following
from trunkline.peer.clients import PeerClients
from trunkline.peer.failure import UNANSWERED, UNCALLABLE, UNLISTED
from trunkline.peer.remote import REASON_KEY, Peer, PeerLogin, Target, spoken
from trunkline.peer.remote_run import RemoteRun
from trunkline.peer.steps import SENT
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.wire.types import Metadata, SendRequest, TaskState

log = logging.getLogger("trunkline.peer")
# The step that says who does a task, at a place behind those of all messages to it.
ENTRY, ENTRY_PLACE = "peer.entry", 1_000_000
_HINTS = ("skillHint", "skill", "skillId")
_LONGEST_SKILL = 256
_SUCCESS = {TaskState.COMPLETED: True, TaskState.FAILED: False}


class RecordedPeer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A remote agent as the log of a task has it: without secrets, only the names of the variables."""

    url: str
    api_key_env: str = ""
    bearer_env: str = ""
    version: str = ""
    card_url: str = ""
    verify_tls: bool = True
    uncertain: Literal["fail", "ask"] = "fail"
    foreign: bool = False
    external: bool = False
    login: PeerLogin | None = None


class _Described(Struct, frozen=True):
    """An agent, the name of its client, which is another where it is described otherwise, and its step."""

    peer: Peer | None
    key: str
    step: Stepped


class EntryExecutor:
    """Has the tasks of one name done by the remote agent that is listed under it.

    `listed` gives the agent that a tenant has under that name while it takes work, else None: then the tasks
    that were begun are followed to their end by what was recorded in each, and others fail.
    """

    works_elsewhere = True

    def __init__(
        self,
        name: str,
        listed: Callable[[str], Peer | None],
        clients: PeerClients,
        following: Following | None = None,
        *,
        ended: Callable[[str, bool], None] = lambda tenant, succeeded: None,
        missed: Callable[[str], None] = lambda tenant: None,
    ) -> None:
        """Take the listed agent.

        `ended` gets the tenant of each task that ended, and whether it succeeded. `missed` gets the tenant of
        a task that could not reach the agent.
        """
        self._name = name
        self._ended = ended
        self._missed = missed
        self._following = following or Following()
        self._listed = listed
        self._clients = clients
        self._known = _Described(None, "", Stepped(ENTRY_PLACE, ENTRY))

    def admit(self, request: SendRequest) -> str:
        """The skill that was asked for; which there are the remote agent knows.

        Raises:
            InvalidParams: it is no name of a skill.
        """
        return _skill(request.message.metadata, "message.metadata") or _skill(request.metadata, "metadata")

    def named(self, name: str) -> str:
        """The skill that a workflow engine means; the agent's own name means none."""
        if len(name) > _LONGEST_SKILL:
            raise RouteNotFound("there is no such skill here")
        return "" if name == self._name else name

    def on_crash(self, skill: str) -> OnCrash:
        """Say that a task goes on with its remote task."""
        del skill
        return OnCrash.RESUME

    async def run(self, work: Work) -> Verdict:
        """Have the work done, and tell the truth about it."""
        recorded, listed = work.recorded_step(ENTRY_PLACE, ENTRY), self._listed(work.tenant)
        if recorded is self._known.step and listed is self._known.peer:
            # As it was when the task was opened, a moment ago.
            peer = listed
        else:
            peer = _chosen(None if recorded is None else convert(recorded.result, RecordedPeer), listed)
        if peer is None:
            why = f"{self._name} is disabled or not listed; nothing was sent to it"
            return spoken(work, TaskState.FAILED, why, UNLISTED)
        if recorded is None:
            # Written together with what comes next: before that nothing was sent to anybody.
            await work.emit(self._described(peer).step)
        target, key = Target(self._name, work.state.skill), self._key(work.tenant, peer)
        try:
            client = self._clients.of(key, peer, work.tenant)
        except Misuse as misuse:
            # It names what the operator has set, or not.
            log.error("peer.uncallable task=%s error=%a", work.state.task_id, str(misuse))
            why = f"{self._name} cannot be called: its entry lacks what that needs"
            return spoken(work, TaskState.FAILED, why, UNCALLABLE)
        polls = self._clients.polls(key)
        missed = partial(self._missed, work.tenant)
        run = RemoteRun(work, target, peer, client, following=self._following, polls=polls, missed=missed)
        verdict = await run.run()
        if (succeeded := is_success(verdict)) is not None:
            self._ended(work.tenant, succeeded)
        return verdict

    def opening(self, tenant: str, first: Submitted) -> tuple[Stepped, ...]:
        """Who does a new task; and the message to it, where it would know that if it came twice.

        Whether that was sent is not known after a crash before its answer, nor need it be.
        """
        peer = self._listed(tenant)
        if peer is None:
            return ()
        step = self._described(peer).step
        try:
            known = self._clients.of(self._key(tenant, peer), peer, tenant).known_capabilities
        except Misuse:
            return ()
        if known is None or not known.deduplicates:
            return (step,)
        return step, Stepped(0, SENT, {"message": new_id(), "interface": known.interface, "counted": True})

    def _key(self, tenant: str, peer: Peer) -> str:
        """The name of an agent's client; where a foreign one may be called is a rule of who named it."""
        known = self._known if peer is self._known.peer else self._described(peer)
        return f"{tenant} {known.key}" if peer.foreign else known.key

    def _described(self, peer: Peer) -> _Described:
        if peer is not self._known.peer:
            recorded = Stepped(ENTRY_PLACE, ENTRY, to_builtins(_recorded(peer)))
            self._known = _Described(peer, f"{self._name} {_digest(peer)}", recorded)
        return self._known

    async def close(self) -> None:
        """Do nothing: the clients are shared."""


def is_success(verdict: Verdict) -> bool | None:
    """Whether an end speaks for an agent or against it; None where it says nothing of it."""
    if not isinstance(verdict, Status):
        return True
    said = None if verdict.message is None else verdict.message.metadata
    # That nobody answers what it asks is no failure of the agent.
    return None if (said or {}).get(REASON_KEY) == UNANSWERED else _SUCCESS.get(verdict.state)


def _chosen(recorded: RecordedPeer | None, listed: Peer | None) -> Peer | None:
    """Who does a task: the one that has it; with all that is shown to it, while it is still listed there."""
    if recorded is None:
        return listed
    if listed is not None and _plain(listed.url) == recorded.url:
        return listed
    return convert(to_builtins(recorded), Peer)


def _recorded(peer: Peer) -> RecordedPeer:
    return RecordedPeer(
        url=_plain(peer.url),
        api_key_env=peer.api_key_env,
        bearer_env=peer.bearer_env,
        version=peer.version,
        card_url=_plain(peer.card_url),
        verify_tls=peer.verify_tls,
        foreign=peer.foreign,
        external=peer.external,
        uncertain=peer.uncertain,
        # Without it a secret would be shown to the agent itself.
        login=peer.login,
    )


def _plain(url: str) -> str:
    """An address without its login and its query, which may be secrets."""
    return shown(url).partition("?")[0]


def _digest(peer: Peer) -> str:
    return blake2b(msgspec.json.encode(peer), digest_size=8).hexdigest()


def _skill(metadata: Metadata | None, place: str) -> str:
    for name in _HINTS if metadata else ():
        wanted = (metadata or {}).get(name)
        if wanted is None:
            continue
        if isinstance(wanted, str) and wanted.isprintable() and len(wanted) <= _LONGEST_SKILL:
            return wanted
        raise InvalidParams("the name of a skill is a short printable text", field=f"{place}.{name}")
    return ""
