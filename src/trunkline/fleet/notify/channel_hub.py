"""What a channel may do at its hub: find a question, answer it, and open a task for people in the channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.principal import Principal
from trunkline.auth.principal import Scope as AuthScope
from trunkline.clock import new_id
from trunkline.errors import Forbidden, InvalidParams, Refused, TaskNotFound
from trunkline.fleet.call import ApiCall
from trunkline.fleet.inbox import AnswerForm, AnswerTaken, Inbox, InboxItem
from trunkline.fleet.notify.channel import Channel
from trunkline.fleet.notify.notice import notice_id
from trunkline.fleet.notify.notices import Key, NoticeStore
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.routing.choose import ALL
from trunkline.fleet.routing.dispatcher import DEDUP_MS, Dispatcher, DispatchOrder
from trunkline.store.records import Dedup
from trunkline.wire.types import Message, Part, Role

_NAME_LENGTH = 256


class ChannelCall(Struct, frozen=True, kw_only=True):
    """Work that a person in a channel requests.

    `by` is the person's name in the channel. `id` identifies the request: repeated under the same ID, it is
    the same task for a day. Without `agent` and `skill` the default agent of the hub does the work.
    """

    id: str
    by: str
    text: str
    agent: str = ""
    skill: str = ""


class ChannelHub:
    """The hub as one channel sees it; `channels` are all channels by name, for accounts that have several."""

    def __init__(
        self,
        receiver: NoticeReceiver,
        notice_store: NoticeStore,
        inbox: Inbox,
        dispatcher: Dispatcher | None,
        *,
        channels: Mapping[str, Channel],
        receivers: Mapping[str, NoticeReceiver],
        now_ms: Callable[[], int],
    ) -> None:
        self.receiver = receiver
        self.channels = channels
        self._notice_store = notice_store
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._receivers = receivers
        self.now_ms = now_ms

    def of(self, name: str) -> ChannelHub:
        """Return the hub as another channel sees it."""
        return ChannelHub(
            self._receivers[name],
            self._notice_store,
            self._inbox,
            self._dispatcher,
            channels=self.channels,
            receivers=self._receivers,
            now_ms=self.now_ms,
        )

    async def find_question(self, message_id: str) -> InboxItem | None:
        """Return the question that this channel was sent under an ID; None if it is closed or unknown."""
        key = self._find(message_id)
        state = None if key is None else await self._notice_store.look(*key)
        return None if state is None else self._inbox.question(state)

    async def answer(self, message_id: str, by: str, form: AnswerForm) -> AnswerTaken:
        """Answer a question that this channel was sent, in the name of a person in it.

        Raises:
            TaskNotFound: the question is closed or unknown.
            Refused: the answer does not fit the question.
        """
        key, item = self._find(message_id), await self.find_question(message_id)
        if key is None or item is None:
            raise TaskNotFound("this question is closed")
        principal = Principal(key[0], self._name(by), frozenset({AuthScope.ANSWER}))
        return await self._inbox.answer(
            ApiCall(principal, key[0], item.task_id), replace(form, question=item.question)
        )

    async def call(self, call: ChannelCall) -> str:
        """Open a task for a person in the channel; return its ID.

        The hub sends the questions and the result of the task to this channel.

        Raises:
            Forbidden: `calls` is not set for this channel.
            Refused: the task cannot be opened now.
        """
        receiver = self.receiver
        if not receiver.calls or self._dispatcher is None:
            raise Forbidden(f"channel {receiver.name} accepts no calls; set calls: true in hub.yaml")
        _check(call)
        tenant, task_id = receiver.home, new_id()
        parts = (Part(text=call.text),)
        what = sha256("\x1f".join((call.by, call.text, call.agent, call.skill)).encode()).digest()
        order = DispatchOrder(
            tenant=tenant,
            principal=self._name(call.by),
            message=Message(message_id=new_id(), role=Role.USER, parts=parts),
            skill=call.skill,
            targets=(call.agent,) if call.agent else (),
            trigger=f"channel:{receiver.name}",
            dedup=Dedup(f"{receiver.name}\x1fchannel\x1f{call.id}", what, DEDUP_MS),
        )
        # Written before the task, so that its end is never missed.
        await self._notice_store.add_call(tenant, task_id, receiver.name, self.now_ms())
        try:
            (opened,) = await self._dispatcher.dispatch(order, task_id=task_id)
        except Refused:
            # After any other error the task may exist; the sweep removes what waits for none.
            await self._notice_store.forget_call(tenant, task_id)
            raise
        found = opened.feed.state.task_id
        if found != task_id:
            await self._notice_store.forget_call(tenant, task_id)
        return found

    def _name(self, by: str) -> str:
        # A name of a chat may hold anything, and this one stands in the log and in queries.
        return f"{self.receiver.realm}:{''.join([one for one in by if one.isprintable()])[:64]}"

    def _find(self, message_id: str) -> Key | None:
        for (tenant, doc_id), notice in self._notice_store.notices:
            # Alerts and results are notices too, and nobody answers them.
            if notice.question and notice_id(tenant, doc_id, notice, self.receiver.name) == message_id:
                return tenant, doc_id
        return None


def _check(call: ChannelCall) -> None:
    """Raise InvalidParams unless the call has a message, and names that can be looked up."""
    if not call.text.strip():
        raise InvalidParams("the message is empty", field="message")
    if call.agent == ALL:
        raise InvalidParams("name one agent", field="agent")
    for field, name in (("agent", call.agent), ("skill", call.skill)):
        if not name.isprintable() or len(name) > _NAME_LENGTH:
            raise InvalidParams(f"at most {_NAME_LENGTH} printable characters", field=field)
