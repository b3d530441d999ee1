"""A channel by webhooks: each message is a signed POST, and a signed request opens a task or answers.

It is also the example of a channel for `docs/channels.md`: it uses nothing but the extension point.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from trunkline.errors import Misuse, Unreachable
from trunkline.fleet.call import ApiStruct, read_body
from trunkline.fleet.inbox import AnswerForm
from trunkline.fleet.notify.channel import Channel, ChannelRequest, ChannelResponse, ChannelSettings
from trunkline.fleet.notify.channel_hub import ChannelCall, ChannelHub
from trunkline.fleet.notify.notice import ChannelMessage
from trunkline.net.egress import target
from trunkline.net.webhook_signature import ID, SIGNATURE, TIMESTAMP, checking_key, verify

_SUCCESS = 2
_ACCEPTED = 202


class WebhookOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The address, or the variable that holds it, and the variable with the key that proves who calls."""

    url: str = ""
    url_env: str = ""
    secret_env: str = ""


class WebhookAnswer(AnswerForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a question; `id` is that of the message with the question."""

    id: str


class WebhookCall(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to the hub: a message that opens a task, or an answer. `by` is the person's name."""

    by: Annotated[str, Meta(min_length=1, max_length=64)]
    message: Annotated[str, Meta(max_length=32_768)] = ""
    agent: str = ""
    skill: str = ""
    answer: WebhookAnswer | None = None


class WebhookChannel(Channel):
    """Posts JSON whose `content` is what a chat shows of it."""

    def __init__(self, settings: ChannelSettings) -> None:
        """Take the settings.

        Raises:
            Misuse: a variable is not set, or the key is none.
            Unreachable: the address is no URL that can be called.
        """
        options = settings.read_options(WebhookOptions)
        self._url = settings.read_secret(options.url_env) if options.url_env else options.url
        target(self._url)
        if settings.accepts_calls and not options.secret_env:
            raise Misuse("calls need the key that proves who calls: set webhook_secret_env")
        self._keys = [checking_key(settings.read_secret(options.secret_env))] if options.secret_env else []
        self._settings = settings

    async def send(self, message: ChannelMessage) -> str:
        """Post a message; any response with a status of success will do."""
        body = msgspec.json.encode({"content": message.chat, "id": message.id, **message.members})
        moment = self._settings.now_ms() // 1000
        headers = [("Content-Type", "application/json"), (ID, message.id)]
        if signature := self._settings.sign(message.id, moment, body):
            headers += [(TIMESTAMP, str(moment)), (SIGNATURE, signature)]
        try:
            response = await self._settings.http.post(self._url, body, headers)
        except Unreachable as error:
            return error.reason
        return "" if response.status // 100 == _SUCCESS else f"status {response.status}"

    async def receive(self, request: ChannelRequest, hub: ChannelHub) -> ChannelResponse:
        """Answer a question, or open a task and return its ID.

        Raises:
            Unauthenticated: the request is not signed with the key.
            Refused: it cannot be done.
        """
        id = verify(request.headers, request.body, self._keys, self._settings.now_ms() / 1000)
        said = read_body(request.body, WebhookCall)
        if (form := said.answer) is not None:
            taken = await hub.answer(form.id, said.by, form)
            return ChannelResponse.of_json({"taskId": taken.task_id, "decision": taken.decision})
        call = ChannelCall(id=id, by=said.by, text=said.message, agent=said.agent, skill=said.skill)
        return ChannelResponse.of_json({"taskId": await hub.call(call)}, _ACCEPTED)
