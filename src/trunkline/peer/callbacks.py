"""Webhooks of remote agents: the address that each task has for them, its token, and what their bodies tell.

A token is the tenant of the task, sealed together with the task's id: it is kept nowhere, every replica can
open it, and nobody can make one.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from trunkline.auth.vault import Vault, can_seal, find_key
from trunkline.clock import monotonic_ms
from trunkline.config import Settings
from trunkline.errors import Misuse, Unauthenticated
from trunkline.log.delegation import Notify
from trunkline.net.egress import target
from trunkline.net.places import TenantPlaces
from trunkline.peer.hearing import Hearings
from trunkline.peer.remote import Peer
from trunkline.wire.answers import read_notice
from trunkline.wire.types import TERMINAL, PushConfig, StatusUpdate, Task

PATH = "/api/a2a/callback/"
# What is told with an end is recorded up to this size; of a larger task only the end, and it is fetched.
TOLD_BYTES = 64 << 10
# How long an agent that refused to call back here is not asked to again, and of how many that is remembered.
REFUSED_MS = 600_000
# How many tenants may have an agent that pauses, at most.
_TENANTS = 10_000
_REFUSALS = 1024
_URL_SAFE = str.maketrans("+/", "-_")
_PLAIN = str.maketrans("-_", "+/")


class Callbacks:
    """Where remote agents tell of the tasks that they do for this process."""

    def __init__(self, settings: Settings) -> None:
        self._public = settings.public_url.rstrip("/")
        self._settings = settings
        self._vault: Vault | None = None
        # The address for agents on the same machine; empty until somebody listens.
        self.own = ""
        # Until when agents that do not call back here are not asked to, by their addresses.
        self._refused: dict[str, int] = {}

    def config(self, peer: Peer, tenant: str, task_id: str) -> PushConfig | None:
        """The webhook of a task for an agent; None if there is none that it could reach, or would call."""
        if self._refused and self._refused.get(peer.url, 0) > monotonic_ms():
            return None
        base = self._public
        if self.own and not peer.external and _is_near(peer.url):
            base = self.own
        vault = self._opened() if base else None
        if vault is None:
            return None
        token = vault.seal(tenant, _about(task_id)).translate(_URL_SAFE).rstrip("=")
        return PushConfig(f"{base}{PATH}{quote(task_id, safe='')}", token=token)

    def note_refusal(self, peer: Peer) -> None:
        """An agent may not call back here: for a while its tasks are sent without a webhook."""
        self._refused.pop(peer.url, None)
        self._refused[peer.url] = monotonic_ms() + REFUSED_MS
        while len(self._refused) > _REFUSALS:
            del self._refused[next(iter(self._refused))]

    def forget_refusal(self, peer: Peer) -> None:
        """Forget a refusal: it was not the webhook that the agent refused."""
        self._refused.pop(peer.url, None)

    def tenant(self, task_id: str, token: str) -> str:
        """The tenant of the task that a token is for.

        Raises:
            Unauthenticated: the token is not that of the task, if there is one.
        """
        vault = self._opened()
        sealed = token.translate(_PLAIN) + "=" * (-len(token) % 4)
        try:
            if vault is not None:
                return vault.open(sealed, _about(task_id))
        except Misuse:
            pass
        raise refusal()

    def _opened(self) -> Vault | None:
        # Not before it is needed: most hosts have nothing done elsewhere, and the key is read from a file.
        if self._vault is None and can_seal(self._settings):
            key = find_key(self._settings)
            self._vault = None if key is None else Vault(key)
        return self._vault


class Following(Struct, frozen=True, kw_only=True):
    """How remote tasks are followed: who may tell of them, how often they are seen, how long in silence."""

    callbacks: Callbacks | None = None
    poll_s: float = 30.0
    silence_s: float = 3600.0
    hearings: Hearings = field(default_factory=Hearings)
    # Where agents pause that stream what records nothing, those of each tenant one after the other.
    pauses: TenantPlaces = field(default_factory=lambda: TenantPlaces(_TENANTS, 1))


def refusal() -> Unauthenticated:
    """The one answer for a wrong token and for a task that is not there."""
    return Unauthenticated("this is not the token of a task here; give the one of its push config")


def read_callback(body: bytes) -> Notify:
    """The task that a webhook tells of, whatever shape its body has.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: they are no notification.
    """
    notice = read_notice(body)
    answer = notice.answer
    if not isinstance(answer, Task | StatusUpdate):
        return Notify()
    state = answer.status.state
    if state not in TERMINAL:
        return Notify(state)
    task_id = answer.id if isinstance(answer, Task) else answer.task_id
    told = Task(task_id, answer.context_id, answer.status, notice.artifacts, (), answer.metadata)
    return Notify(state, told if len(msgspec.json.encode(told)) <= TOLD_BYTES else None)


def _is_near(url: str) -> bool:
    """Whether an address is on this machine."""
    host = target(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _about(task_id: str) -> str:
    return f"callback {task_id}"
