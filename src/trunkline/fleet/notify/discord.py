"""A channel of Discord: questions with buttons and free text, and messages that are edited.

A bot posts over Discord's HTTP API. What somebody presses or writes comes back as a request that Discord has
signed; it is answered at once, and the message then says who has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Meta, Struct

from trunkline.auth.principal import Principal
from trunkline.auth.principal import Scope as AuthScope
from trunkline.errors import Refused, Unauthenticated, Unreachable
from trunkline.fleet.call import ApiCall, read_body
from trunkline.fleet.inbox import AnswerForm, Inbox, InboxItem
from trunkline.fleet.notify.notice import CHAT, NoticeText, notice_id
from trunkline.fleet.notify.notices import Key, NoticeStore
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.exchange import JSON
from trunkline.http.mounts import PUBLIC, App, Mount, Route
from trunkline.net.fetch import Fetcher
from trunkline.wire.codes import write_problem
from trunkline.wire.decode import DECODE_ERRORS

PREFIX = "/discord"
_BODY_LIMIT = 256 << 10
_TOLERANCE_S = 300
# No moment in seconds has more digits, and int() of very many fails.
_DIGITS = 18
_SUCCESS = 2
# Kinds of what comes from Discord, of what it is answered with, and of what a message is made of.
_PING, _PRESSED, _SUBMITTED = 1, 3, 5
_PONG, _SAY, _CHANGE, _ASK = 1, 4, 7, 9
_ROW, _BUTTON, _INPUT = 1, 2, 4
_GREY, _RED, _BLUE, _LINES, _TO_ONE = 2, 4, 1, 2, 64
# A row takes five buttons, two of which are ours.
_CHOICES, _LABEL = 3, 80
_CLOSED = "This question is closed."


class _Posted(Struct, frozen=True):
    id: Annotated[str, Meta(pattern=r"^[0-9]{1,32}$")] = ""


class _User(Struct, frozen=True):
    username: str = ""


class _GuildMember(Struct, frozen=True):
    user: _User = _User()


class _Field(Struct, frozen=True):
    value: str = ""
    components: list[_Field] = []


class _Pressed(Struct, frozen=True):
    custom_id: str = ""
    components: list[_Field] = []


class _Interaction(Struct, frozen=True):
    type: int
    data: _Pressed = _Pressed()
    member: _GuildMember | None = None
    user: _User = _User()


class DiscordChannel:
    """Posts to a channel as a bot; a message that Discord has already is not posted twice."""

    def __init__(self, receiver: NoticeReceiver, token: str, fetcher: Fetcher) -> None:
        self._url = f"{receiver.discord_api.rstrip('/')}/channels/{receiver.discord}/messages"
        self._token = token
        self._fetcher = fetcher

    async def tell(self, said: NoticeText) -> str:
        """Post what is to be told, with buttons if it is a question."""
        body: dict[str, Any] = {
            "content": said.chat,
            "allowed_mentions": {"parse": []},
            "nonce": said.id[:25],
            "enforce_nonce": True,
        }
        if "question" in said.members:
            body["components"] = [{"type": _ROW, "components": _buttons(said)}]
        return (await self._send("POST", self._url, body))[1]

    async def show(self, content: str, nonce: str, message: str) -> tuple[str, str]:
        """Post a message, or edit one by its id; see `EditedMessages`."""
        body: dict[str, Any] = {"content": content[:CHAT], "allowed_mentions": {"parse": []}}
        if not message:
            body |= {"nonce": nonce, "enforce_nonce": True}
            return await self._send("POST", self._url, body)
        _, trouble = await self._send("PATCH", f"{self._url}/{message}", body)
        # One that somebody has deleted is not wanted any more.
        return message, "" if trouble == f"status {HTTPStatus.NOT_FOUND}" else trouble

    async def _send(self, method: str, url: str, body: dict[str, Any]) -> tuple[str, str]:
        """The id of the message that Discord answers with, and what went wrong."""
        headers = [("Content-Type", "application/json"), ("Authorization", f"Bot {self._token}")]
        try:
            response = await self._fetcher.submit(method, url, msgspec.json.encode(body), headers)
        except Unreachable as error:
            return "", error.reason
        if response.status // 100 != _SUCCESS:
            return "", f"status {response.status}"
        try:
            return msgspec.json.decode(response.body, type=_Posted).id, ""
        except DECODE_ERRORS:
            return "", ""


def _buttons(said: NoticeText) -> list[dict[str, Any]]:
    choices: list[str] = said.members["choices"]
    shown = choices if len(choices) <= _CHOICES else []
    return [
        *[_button(one[:_LABEL], _BLUE, f"c:{place}:{said.id}") for place, one in enumerate(shown)],
        _button("Answer…", _GREY, f"t::{said.id}"),
        _button("Reject", _RED, f"r::{said.id}"),
    ]


def _button(label: str, style: int, custom_id: str) -> dict[str, Any]:
    return {"type": _BUTTON, "label": label, "style": style, "custom_id": custom_id}


class DiscordAnswers:
    """An ASGI application that takes interactions; the door that it is behind has read the body."""

    def __init__(
        self,
        notice_store: NoticeStore,
        inbox: Inbox,
        receivers: Sequence[NoticeReceiver],
        now_ms: Callable[[], int],
    ) -> None:
        self._notice_store = notice_store
        self._inbox = inbox
        self._receivers = [one for one in receivers if one.discord]
        self._now = now_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI.

        Raises:
            Unauthenticated: Discord has not signed it for one of our receivers, or long ago.
        """
        body: bytes = (await receive())["body"]
        receivers = self._signed(dict(scope["headers"]), body)
        answer = await self._answer(read_body(body, _Interaction), receivers)
        text = msgspec.json.encode(answer)
        headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text, "more_body": False})

    def _signed(self, headers: dict[bytes, bytes], body: bytes) -> list[NoticeReceiver]:
        """The receivers for which Discord has signed a request."""
        moment = headers.get(b"x-signature-timestamp", b"")
        signature = headers.get(b"x-signature-ed25519", b"").decode("latin-1")
        found: list[NoticeReceiver] = []
        for one in self._receivers:
            try:
                key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(one.discord_public_key))
                key.verify(bytes.fromhex(signature), moment + body)
                found.append(one)
            except (InvalidSignature, ValueError):
                continue
        is_fresh = (
            moment.isdigit()
            and len(moment) <= _DIGITS
            and abs(self._now() / 1000 - int(moment)) <= _TOLERANCE_S
        )
        if not found or not is_fresh:
            raise Unauthenticated("this is not signed by Discord for a receiver of this hub")
        return found

    async def _answer(self, came: _Interaction, receivers: Sequence[NoticeReceiver]) -> dict[str, Any]:
        if came.type == _PING:
            return {"type": _PONG}
        kind, _, rest = came.data.custom_id.partition(":")
        place, _, id = rest.partition(":")
        key = self._found(id, receivers)
        state = None if key is None else await self._notice_store.look(*key)
        item = None if state is None else self._inbox.question(state)
        if key is None or item is None:
            return _said(_CLOSED)
        if came.type == _PRESSED and kind == "t":
            return _modal(id)
        form = _form(came, kind, place, item)
        if form is None:
            return _said("This hub does not know that button.")
        user = came.user if came.member is None else came.member.user
        who = f"discord:{user.username[:64]}"
        call = ApiCall(Principal(key[0], who, frozenset({AuthScope.ANSWER})), key[0], item.task_id)
        try:
            taken = await self._inbox.answer(call, form)
        except Refused as refused:
            return _said(_CLOSED if "conflict" in refused.details else refused.message)
        told = f"{item.agent} asked: {item.text}\n{taken.decision} by {user.username}"
        return {"type": _CHANGE, "data": {"content": told[:CHAT], "components": []}}

    def _found(self, id: str, receivers: Sequence[NoticeReceiver]) -> Key | None:
        """The tenant and the task of the notice that a button belongs to."""
        for (tenant, doc_id), notice in self._notice_store.notices:
            if any([notice_id(tenant, doc_id, notice, one.name) == id for one in receivers]):
                return tenant, doc_id
        return None


def _form(came: _Interaction, kind: str, place: str, item: InboxItem) -> AnswerForm | None:
    if came.type == _SUBMITTED and kind == "m":
        fields = [field.value for row in came.data.components for field in row.components]
        return AnswerForm(decision="respond", text="".join(fields).strip(), question=item.question)
    if came.type == _PRESSED and kind == "r":
        return AnswerForm(decision="reject", question=item.question)
    if came.type == _PRESSED and kind == "c" and place in map(str, range(len(item.choices))):
        return AnswerForm(decision="respond", text=item.choices[int(place)], question=item.question)
    return None


def _said(text: str) -> dict[str, Any]:
    """Words that only who has pressed the button sees."""
    return {"type": _SAY, "data": {"content": text[:CHAT], "flags": _TO_ONE}}


def _modal(id: str) -> dict[str, Any]:
    field = {"type": _INPUT, "custom_id": "text", "style": _LINES, "label": "Your answer", "required": True}
    row = {"type": _ROW, "components": [field]}
    return {"type": _ASK, "data": {"custom_id": f"m::{id}", "title": "Your answer", "components": [row]}}


def discord_mount(app: App) -> Mount:
    """Where Discord sends interactions; each is let in by its signature."""
    return Mount(PREFIX, app, [Route("POST /interactions", PUBLIC, _BODY_LIMIT)], write_problem)
