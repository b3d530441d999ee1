"""A channel of Discord: questions with buttons and free text, edited messages, and the command `/ask`.

A bot posts over Discord's HTTP API. What people press or write comes back as a request that Discord has
signed. It is answered at once, and the message then says who has answered.
"""

from __future__ import annotations

import asyncio
import logging
from copy import copy
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Meta, Struct

from trunkline.errors import Refused, TaskNotFound, Unauthenticated, Unreachable
from trunkline.fleet.call import read_body
from trunkline.fleet.inbox import AnswerForm, InboxItem
from trunkline.fleet.notify.channel import (
    ChannelRequest,
    ChannelResponse,
    ChannelSettings,
    EditableChannel,
)
from trunkline.fleet.notify.channel_hub import ChannelCall, ChannelHub
from trunkline.fleet.notify.notice import CHAT, ChannelMessage
from trunkline.net.egress import target
from trunkline.net.fetch import FullResponse
from trunkline.wire.decode import DECODE_ERRORS
from trunkline.wire.question import QUESTION_CLOSED

log = logging.getLogger("trunkline.fleet")
_TOLERANCE_S = 300
# No time in seconds has more digits, and int() of very many digits fails.
_DIGITS = 18
_SUCCESS = 2
# After this time the command is registered again, if Discord did not take it.
REGISTER_S = 60.0
# Numbers of Discord: of interactions, of responses to them, and of the components of messages.
_PING, _COMMAND, _PRESSED, _SUBMITTED = 1, 2, 3, 5
_PONG, _SAY, _CHANGE, _ASK = 1, 4, 7, 9
_ROW, _BUTTON, _INPUT = 1, 2, 4
_GREY, _RED, _BLUE, _LINES, _TO_ONE = 2, 4, 1, 2, 64
# A row has room for five buttons, two of which are ours.
_CHOICES, _LABEL = 3, 80
_CLOSED = "This question is closed."
_ASK_COMMAND = {
    "name": "ask",
    "description": "Ask the agents of the hub",
    "options": [
        {"type": 3, "name": "message", "description": "What to ask", "required": True},
        {"type": 3, "name": "agent", "description": "The agent to ask"},
        {"type": 3, "name": "skill", "description": "The skill to use"},
    ],
}


class DiscordOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A channel by its ID, the variable with the token of a bot, and the public key of its application."""

    channel: Annotated[str, Meta(pattern=r"^[0-9]{1,32}$")]
    token_env: str
    public_key: Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}$")]
    api: str = "https://discord.com/api/v10"


class _Posted(Struct, frozen=True):
    id: Annotated[str, Meta(pattern=r"^[0-9]{1,32}$")] = ""


class _User(Struct, frozen=True):
    username: str = ""


class _GuildMember(Struct, frozen=True):
    user: _User = _User()


class _Field(Struct, frozen=True):
    value: str = ""
    components: list[_Field] = []


class _CommandOption(Struct, frozen=True):
    name: str = ""
    value: object = ""


class _Pressed(Struct, frozen=True):
    custom_id: str = ""
    name: str = ""
    components: list[_Field] = []
    options: list[_CommandOption] = []


class _Interaction(Struct, frozen=True):
    type: int
    data: _Pressed = _Pressed()
    member: _GuildMember | None = None
    user: _User = _User()
    id: str = ""
    channel_id: str = ""

    @property
    def by(self) -> str:
        """Return the name of the person."""
        return (self.user if self.member is None else self.member.user).username


class _DiscordApplication(Struct, frozen=True):
    id: Annotated[str, Meta(pattern=r"^[0-9]{1,32}$")]


class DiscordChannel(EditableChannel):
    """Posts to a channel as a bot. Discord recognizes a message that it has, so none is posted twice."""

    def __init__(self, settings: ChannelSettings) -> None:
        """Take the settings.

        Raises:
            Misuse: an option is missing, or a variable is not set.
            Unreachable: the address of the API is no URL that can be called.
        """
        options = settings.read_options(DiscordOptions)
        self.place, self.public_key = options.channel, options.public_key.lower()
        self._api = options.api.rstrip("/")
        target(self._api)
        self._token = settings.read_secret(options.token_env)
        self._settings = settings

    def find_other(self, place: str) -> DiscordChannel | None:
        """Return another channel of the same bot, by its ID."""
        if not (place.isascii() and place.isdigit()):
            return None
        other = copy(self)
        other.place = place
        return other

    @property
    def _url(self) -> str:
        return f"{self._api}/channels/{self.place}/messages"

    async def send(self, message: ChannelMessage) -> str:
        """Post a message, with buttons if it is a question."""
        said = message
        body: dict[str, Any] = {
            "content": said.chat,
            "allowed_mentions": {"parse": []},
            "nonce": said.id[:25],
            "enforce_nonce": True,
        }
        if "question" in said.members:
            body["components"] = [{"type": _ROW, "components": _buttons(said)}]
        return (await self._post("POST", self._url, body))[1]

    async def show(self, content: str, nonce: str, message: str) -> tuple[str, str]:
        """Post a message, or edit one by its ID; see `EditableChannel`."""
        body: dict[str, Any] = {"content": content[:CHAT], "allowed_mentions": {"parse": []}}
        if not message:
            body |= {"nonce": nonce, "enforce_nonce": True}
            return await self._post("POST", self._url, body)
        _, trouble = await self._post("PATCH", f"{self._url}/{message}", body)
        # A message that somebody has deleted is not posted again.
        return message, "" if trouble == f"status {HTTPStatus.NOT_FOUND}" else trouble

    async def receive(self, request: ChannelRequest, hub: ChannelHub) -> ChannelResponse:
        """Answer an interaction.

        Raises:
            Unauthenticated: Discord has not signed the request for this application, or not lately.
        """
        self._check_signature(request)
        return ChannelResponse.of_json(await self._answer(read_body(request.body, _Interaction), hub))

    async def run(self, hub: ChannelHub) -> None:
        """Register the command `/ask` at Discord, if the channel accepts calls."""
        del hub
        if not self._settings.accepts_calls:
            return
        while trouble := await self._register():
            log.warning("discord.unregistered receiver=%s reason=%s", self._settings.name, trouble)
            await asyncio.sleep(REGISTER_S)

    async def _register(self) -> str:
        """Register the command; return what went wrong."""
        try:
            headers = [("Authorization", f"Bot {self._token}")]
            found = await self._settings.http.get(f"{self._api}/applications/@me", headers=headers)
            if found.status != HTTPStatus.OK:
                return f"status {found.status}"
            application = msgspec.json.decode(found.body, type=_DiscordApplication).id
            response = await self._submit(
                "POST", f"{self._api}/applications/{application}/commands", _ASK_COMMAND
            )
        except Unreachable as error:
            return error.reason
        except DECODE_ERRORS:
            return "unreadable"
        return "" if response.status // 100 == _SUCCESS else f"status {response.status}"

    async def _submit(self, method: str, url: str, body: dict[str, Any]) -> FullResponse:
        headers = [("Content-Type", "application/json"), ("Authorization", f"Bot {self._token}")]
        return await self._settings.http.submit(method, url, msgspec.json.encode(body), headers)

    async def _post(self, method: str, url: str, body: dict[str, Any]) -> tuple[str, str]:
        """Send a message; return the ID that Discord gives it, and what went wrong."""
        try:
            response = await self._submit(method, url, body)
        except Unreachable as error:
            return "", error.reason
        if response.status // 100 != _SUCCESS:
            return "", f"status {response.status}"
        try:
            return msgspec.json.decode(response.body, type=_Posted).id, ""
        except DECODE_ERRORS:
            return "", ""

    def _check_signature(self, request: ChannelRequest) -> None:
        moment = request.headers.get("x-signature-timestamp", "")
        is_time = moment.isascii() and moment.isdigit() and len(moment) <= _DIGITS
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.public_key))
            signature = bytes.fromhex(request.headers.get("x-signature-ed25519", ""))
            key.verify(signature, moment.encode("latin-1") + request.body)
        except (InvalidSignature, ValueError):
            is_time = False
        if not is_time or abs(self._settings.now_ms() / 1000 - int(moment)) > _TOLERANCE_S:
            raise Unauthenticated("Discord has not signed this request for a receiver of this hub")

    def _own_channels(self, hub: ChannelHub) -> list[tuple[str, DiscordChannel]]:
        """Return the channels of this application, which has one address for all of them."""
        return [
            (name, one)
            for name, one in hub.channels.items()
            if isinstance(one, DiscordChannel) and one.public_key == self.public_key
        ]

    async def _answer(self, came: _Interaction, hub: ChannelHub) -> dict[str, Any]:
        if came.type == _PING:
            return {"type": _PONG}
        try:
            if came.type == _COMMAND:
                return await self._call(came, hub)
            return await self._answer_question(came, hub)
        except Refused as refused:
            is_closed = refused.details.get("conflict") == QUESTION_CLOSED
            return _said(_CLOSED if is_closed or isinstance(refused, TaskNotFound) else refused.message)

    async def _call(self, came: _Interaction, hub: ChannelHub) -> dict[str, Any]:
        own = [hub.of(name) for name, one in self._own_channels(hub) if one.place == came.channel_id]
        accepting = next((one for one in own if one.receiver.calls), None)
        given = {one.name: one.value for one in came.data.options if isinstance(one.value, str)}
        if accepting is None or came.data.name != _ASK_COMMAND["name"]:
            return _said("This hub does not accept that command in this channel.")
        text, agent = given.get("message", ""), given.get("agent", "")
        call = ChannelCall(id=came.id, by=came.by, text=text, agent=agent, skill=given.get("skill", ""))
        await accepting.call(call)
        said = f"{came.by} asks {agent or 'the hub'}: {text}"
        return {"type": _SAY, "data": {"content": said[:CHAT], "allowed_mentions": {"parse": []}}}

    async def _answer_question(self, came: _Interaction, hub: ChannelHub) -> dict[str, Any]:
        kind, _, rest = came.data.custom_id.partition(":")
        place, _, id = rest.partition(":")
        for own in [hub.of(name) for name, _ in self._own_channels(hub)]:
            item = await own.find_question(id)
            if item is None:
                continue
            if came.type == _PRESSED and kind == "t":
                return _modal(id)
            form = _form(came, kind, place, item)
            if form is None:
                return _said("This hub does not know that button.")
            taken = await own.answer(id, came.by, form)
            told = f"{item.agent} asked: {item.text}\n{taken.decision} by {came.by}"
            return {"type": _CHANGE, "data": {"content": told[:CHAT], "components": []}}
        return _said(_CLOSED)


def _buttons(said: ChannelMessage) -> list[dict[str, Any]]:
    choices: list[str] = said.members["choices"]
    shown = choices if len(choices) <= _CHOICES else []
    return [
        *[_button(one[:_LABEL], _BLUE, f"c:{place}:{said.id}") for place, one in enumerate(shown)],
        _button("Answer…", _GREY, f"t::{said.id}"),
        _button("Reject", _RED, f"r::{said.id}"),
    ]


def _button(label: str, style: int, custom_id: str) -> dict[str, Any]:
    return {"type": _BUTTON, "label": label, "style": style, "custom_id": custom_id}


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
    """Return a message that only the person who acted can see."""
    return {"type": _SAY, "data": {"content": text[:CHAT], "flags": _TO_ONE}}


def _modal(id: str) -> dict[str, Any]:
    field = {"type": _INPUT, "custom_id": "text", "style": _LINES, "label": "Your answer", "required": True}
    row = {"type": _ROW, "components": [field]}
    return {"type": _ASK, "data": {"custom_id": f"m::{id}", "title": "Your answer", "components": [row]}}
