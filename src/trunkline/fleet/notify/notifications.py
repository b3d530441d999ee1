"""The notifications of a hub, put together: the log is read, notices are kept, and receivers are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence

from trunkline.fleet.health.alerts import FleetAlert
from trunkline.fleet.inbox import Inbox
from trunkline.fleet.notify.callers import CallerFirst
from trunkline.fleet.notify.channels import AppriseChannel, Channel, WebhookChannel
from trunkline.fleet.notify.discord import DiscordChannel
from trunkline.fleet.notify.links import AnswerLinks
from trunkline.fleet.notify.notices import NoticeStore
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.notify.sender import NoticeSender
from trunkline.fleet.notify.task_updates import TaskUpdates
from trunkline.net.fetch import Fetcher
from trunkline.run.notification import Sign
from trunkline.store.base import Store
from trunkline.store.tail import TailReader

NAME = "notices"
_LOOK_S = 5.0


class Notifications:
    """Tells the receivers of a hub; `sign` signs webhooks once the store is open."""

    def __init__(
        self,
        store: Store,
        inbox: Inbox,
        receivers: Sequence[NoticeReceiver],
        *,
        fetcher: Fetcher,
        sign: Callable[[], Sign | None],
        links: AnswerLinks,
        variable: Callable[[str], str | None],
        now_ms: Callable[[], int],
        callers: CallerFirst | None = None,
        wanted: Callable[[], bool] = lambda: True,
        tenants: Callable[[], Iterable[str]] = tuple[str],
        closed: Container[str] = (),
    ) -> None:
        """Take who asks callers first; where there are no receivers, only while that is `wanted`.

        Of tenants that are closed nobody is told.
        """
        self._store = store
        self._inbox = inbox
        self._receivers = receivers
        self._fetcher = fetcher
        self._sign = sign
        self._links = links
        self._variable = variable
        self._now = now_ms
        self._callers = callers
        self._wanted = wanted
        self._tenants = tenants
        self._closed = closed
        self.notice_store = NoticeStore(
            store,
            inbox.asking,
            self._woken,
            caller=(lambda tenant, state: "") if callers is None else callers.caller_of,
        )
        self.reader = TailReader(store, NAME, self.notice_store)
        self.sender: NoticeSender | None = None
        self.updates: TaskUpdates | None = None

    async def start(self) -> None:
        """Find the ways to the receivers.

        Raises:
            Misuse: there is none to one of them.
            StoreError: the store does not answer.
        """
        channels = {one.name: self._channel(one) for one in self._receivers}
        await self.notice_store.mirror.refresh()
        self.sender = NoticeSender(
            self.notice_store,
            self._inbox,
            self._receivers,
            channels,
            links=self._links,
            callers=self._callers,
            now_ms=self._now,
            closed=self._closed,
        )
        edited = {
            one.name: (one, channel)
            for one in self._receivers
            if "progress" in one.about and isinstance(channel := channels[one.name], DiscordChannel)
        }
        if edited:
            self.updates = TaskUpdates(
                self._store,
                self._inbox.state,
                edited,
                tenants=self._tenants,
                closed=self._closed,
                now_ms=self._now,
                origin=self._inbox.origin,
            )

    async def run(self) -> None:
        """Read the log and tell, until cancelled."""
        if self.sender is None:
            return
        # Keys come and go with their file.
        while not (self._receivers or self._wanted()):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reader.run())
            group.create_task(self.sender.run())
            if self.updates is not None:
                group.create_task(self.updates.run())
            if self._store.shared:
                group.create_task(self.notice_store.mirror.follow())

    async def alert(self, tenant: str, alert: FleetAlert, number: int, at: int) -> None:
        """Have the receivers told of an alert, whose number says which of its kind it is."""
        if any([one.wants("alerts", tenant) for one in self._receivers]):
            await self.notice_store.raise_alert(tenant, alert, number, at)

    def _woken(self) -> None:
        if self.sender is not None:
            self.sender.woken.set()

    def _channel(self, one: NoticeReceiver) -> Channel:
        address = one.address(self._variable)
        if one.by_apprise:
            return AppriseChannel(address)
        if one.discord:
            return DiscordChannel(one, address, self._fetcher)
        return WebhookChannel(address, self._fetcher, self._sign(), self._now)
