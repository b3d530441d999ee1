"""The notifications of a hub: it reads the log, keeps notices, and sends them through channels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Sequence

from trunkline.fleet.health.alerts import FleetAlert
from trunkline.fleet.inbox import Inbox
from trunkline.fleet.notify.callers import CallerFirst
from trunkline.fleet.notify.channel import Channel, ChannelSettings, EditableChannel
from trunkline.fleet.notify.channel_hub import ChannelHub
from trunkline.fleet.notify.channels import find_channel, make_channel
from trunkline.fleet.notify.links import AnswerLinks
from trunkline.fleet.notify.notice import ChannelMessage
from trunkline.fleet.notify.notices import NoticeStore
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.notify.sender import NoticeSender
from trunkline.fleet.notify.task_updates import TaskUpdates
from trunkline.fleet.routing.dispatcher import Dispatcher
from trunkline.net.fetch import Fetcher
from trunkline.run.notification import Sign
from trunkline.store.base import Store
from trunkline.store.tail import TailReader

log = logging.getLogger("trunkline.fleet")
NAME = "notices"
_LOOK_S = 5.0


class Notifications:
    """Sends notices to the receivers of a hub; `sign` signs webhooks once the store is open.

    `channels` are those of the receivers by name, once it is started.
    """

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
        dispatcher: Dispatcher | None = None,
        wanted: Callable[[], bool] = lambda: True,
        tenants: Callable[[], Iterable[str]] = tuple[str],
        closed: Container[str] = (),
    ) -> None:
        """Take what asks callers first. Without receivers it runs only while that is `wanted`.

        `dispatcher` opens the tasks that people in channels request. Nothing is sent about closed tenants.
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
        self._dispatcher = dispatcher
        self._wanted = wanted
        self._tenants = tenants
        self._closed = closed
        self.notice_store = NoticeStore(
            store,
            inbox.asking,
            self._woken,
            caller=(lambda tenant, state: "") if callers is None else callers.caller_of,
            state_of=inbox.state,
        )
        self.reader = TailReader(store, NAME, self.notice_store)
        self.channels: dict[str, Channel] = {}
        self.sender: NoticeSender | None = None
        self.updates: TaskUpdates | None = None

    async def start(self) -> None:
        """Make the channels of the receivers.

        Raises:
            Misuse: a channel cannot be made.
            StoreError: the store does not answer.
        """
        self.channels.update({one.name: self._channel(one) for one in self._receivers})
        await self.notice_store.mirror.refresh()
        self.sender = NoticeSender(
            self.notice_store,
            self._inbox,
            self._receivers,
            self.channels,
            links=self._links,
            callers=self._callers,
            now_ms=self._now,
            closed=self._closed,
        )
        edited = {
            one.name: (one, channel)
            for one in self._receivers
            if "progress" in one.about and isinstance(channel := self.channels[one.name], EditableChannel)
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
        """Read the log and send notices, until cancelled."""
        if self.sender is None:
            return
        # Keys come and go with their file.
        while not (self._receivers or self._wanted()):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reader.run())
            group.create_task(self.sender.run())
            for one in self._receivers:
                group.create_task(self._run_channel(self._hub_of(one)))
            if self.updates is not None:
                group.create_task(self.updates.run())
            if self._store.shared:
                group.create_task(self.notice_store.mirror.follow())

    async def alert(self, tenant: str, alert: FleetAlert, number: int, at: int) -> None:
        """Have an alert sent to the receivers; its number says which of its kind it is."""
        if any([one.wants("alerts", tenant) for one in self._receivers]):
            await self.notice_store.raise_alert(tenant, alert, number, at)

    def _woken(self) -> None:
        if self.sender is not None:
            self.sender.woken.set()

    def hubs(self, name: str) -> list[ChannelHub]:
        """Return the hub as the receiver with this name sees it, or as each receiver of this kind does."""
        found = [one for one in self._receivers if one.name == name]
        found = found or [one for one in self._receivers if one.kind == name]
        return [self._hub_of(one) for one in found if one.name in self.channels]

    async def post(self, place: str, message: ChannelMessage) -> str | None:
        """Send a message to a receiver by its name, or to another channel by its ID; return what went wrong.

        None means that there is no such receiver, and no account that reaches such a channel.
        """
        channel = find_channel(self.channels, place)
        return None if channel is None else await channel.send(message)

    def _hub_of(self, receiver: NoticeReceiver) -> ChannelHub:
        return ChannelHub(
            receiver,
            self.notice_store,
            self._inbox,
            self._dispatcher,
            channels=self.channels,
            receivers={one.name: one for one in self._receivers},
            now_ms=self._now,
        )

    async def _run_channel(self, hub: ChannelHub) -> None:
        try:
            await self.channels[hub.receiver.name].run(hub)
        except Exception as error:
            # A channel is code of others: the hub and its other channels go on.
            log.error("notify.broke receiver=%s", hub.receiver.name, exc_info=error)

    def _channel(self, one: NoticeReceiver) -> Channel:
        return make_channel(
            one,
            ChannelSettings(
                name=one.name,
                options=one.channel_options,
                accepts_calls=one.calls,
                http=self._fetcher,
                variable=self._variable,
                sign=self._signature,
                now_ms=self._now,
            ),
        )

    def _signature(self, id: str, moment: int, body: bytes) -> str:
        sign = self._sign()
        return "" if sign is None else sign(id, moment, body)
