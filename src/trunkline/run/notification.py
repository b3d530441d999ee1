"""What is posted of one event: the task as it stood then, in the words of the target's version."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from trunkline.auth.vault import Vault
from trunkline.clock import now_ms
from trunkline.log.events import PushTarget, Recorded, Replied, Status
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.run.push_configs import Proof, proof_of
from trunkline.run.tasks import Tasks
from trunkline.store.records import Delivery
from trunkline.wire import push
from trunkline.wire.service_parameters import Version
from trunkline.wire.spellings import plain_state, timestamp
from trunkline.wire.types import TERMINAL, Metadata, Task, TaskState, TaskStatus

# Signs an id, a moment in seconds and a body; gives the header's value.
Sign = Callable[[str, int, bytes], str]
Header = tuple[str, str]
TOKEN = "X-A2A-Notification-Token"


class OutgoingNotification(Struct, frozen=True):
    """One notification, ready to be posted. `state` is what it tells; after a `last` one nothing comes."""

    target: PushTarget
    body: bytes
    headers: list[Header]
    state: str
    last: bool
    feed: Feed


class NotificationComposer:
    """Writes the body and headers of notifications; of the agents in `whole`, None is all, whole tasks."""

    def __init__(self, tasks: Tasks, vault: Vault, sign: Sign, *, whole: Collection[str] | None) -> None:
        self._tasks = tasks
        self._vault = vault
        self._sign = sign
        self._whole = whole

    async def write(self, delivery: Delivery) -> OutgoingNotification | None:
        """The notification of a delivery; None if its target or its task is no longer there.

        Raises:
            Misuse: the secrets of its target were sealed under another key.
        """
        feed = await self._tasks.load(delivery.tenant, delivery.task_id)
        if feed is None:
            return None
        if feed.state.over:
            # Loading brings only open tasks up to their logs.
            await self._tasks.renew(feed)
        target = feed.state.push.get(delivery.target)
        if target is None or delivery.seq < feed.state.push_since.get(target.id, 0):
            # The one that it was meant for is gone, whoever has its id now.
            return None
        recorded = await self._record(feed, delivery.seq)
        if recorded is None:
            return None
        whole = self._whole is None or feed.state.agent in self._whole
        task, metadata = await self._snapshot(feed, recorded, whole=whole)
        body = push.notification_body(task, target.version, whole=whole, metadata=metadata)
        headers, state = self._headers(delivery, target, body), task.status.state
        return OutgoingNotification(target, body, headers, plain_state(state), state in TERMINAL, feed)

    async def _snapshot(self, feed: Feed, recorded: Recorded, *, whole: bool) -> tuple[Task, Metadata | None]:
        state, event = feed.state, recorded.event
        metadata = event.metadata if isinstance(event, Status) else None
        status = _status(recorded)
        if status is not None and status.state in TERMINAL:
            # Nothing changes after the end, so the newest state is the one of that moment.
            return _task(state, status, artifacts=True), metadata
        if status is not None and not whole:
            return _task(state, status, artifacts=False), metadata
        # Also for a target that was set late: the task may have rested then, and have ended since.
        then = await self._tasks.fold(feed.tenant, state.task_id, recorded.seq)
        return _task(then, then.status(), artifacts=whole or then.over), metadata

    async def _record(self, feed: Feed, seq: int) -> Recorded | None:
        near = feed.newer(seq - 1) or await self._tasks.store.log.read(
            feed.tenant, feed.state.task_id, seq - 1, 1
        )
        # None if the task was forgotten meanwhile.
        return near[0] if near else None

    def _headers(self, delivery: Delivery, target: PushTarget, body: bytes) -> list[Header]:
        moment = now_ms() // 1000
        return [
            ("Content-Type", "application/json"),
            ("A2A-Version", target.version),
            ("webhook-id", delivery.id),
            ("webhook-timestamp", str(moment)),
            ("webhook-signature", self._sign(delivery.id, moment, body)),
            *_credentials(target, proof_of(target, self._vault)),
        ]


def _status(recorded: Recorded) -> TaskStatus | None:
    match recorded.event:
        case Status(state=state, message=message):
            return TaskStatus(state, message, timestamp(recorded.at))
        case Replied(message=message):
            return TaskStatus(TaskState.COMPLETED, message, timestamp(recorded.at))
        case _:
            return None


def _task(state: State, status: TaskStatus, *, artifacts: bool) -> Task:
    return Task(
        id=state.task_id,
        context_id=state.context_id,
        status=status,
        artifacts=state.task(0).artifacts if artifacts else (),
        metadata=state.metadata,
    )


def _credentials(target: PushTarget, proof: Proof) -> list[Header]:
    """1.0 has a place for each; before it, either shape is a bearer token, and the token comes first."""
    token = [(TOKEN, proof.token)] if proof.token else []
    scheme = target.scheme or "Bearer"
    named = [("Authorization", f"{scheme} {proof.credentials}")] if proof.credentials else []
    bearer = [("Authorization", f"Bearer {proof.token}")] if proof.token else []
    if target.version == Version.V1.value:
        return [*(named or bearer), *token]
    return [*(bearer or named), *token]
