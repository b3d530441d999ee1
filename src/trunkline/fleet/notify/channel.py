"""The extension point for channels: what a channel is given, and what it must do.

A channel reaches people in one place, such as a chat. Discord and webhooks are channels like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from trunkline.errors import Misuse, RouteNotFound
from trunkline.fleet.notify.notice import ChannelMessage
from trunkline.http.exchange import JSON
from trunkline.net.fetch import Fetcher
from trunkline.run.notification import Sign
from trunkline.wire.decode import invalid_params

if TYPE_CHECKING:
    from trunkline.fleet.notify.channel_hub import ChannelHub

Form = TypeVar("Form", bound=Struct)
# An option that is missing or unknown is named only in the text of the error.
_UNNAMED = re.compile("(missing required|unknown) field `([^`]*)`")


class ChannelSettings(Struct, frozen=True, kw_only=True):
    """What a channel is made from: its name, its options in `hub.yaml`, and its way out.

    `variable` returns the value of an environment variable. `sign` returns the signature of an ID, a time in
    seconds and a body under the key of the server, or an empty text if the server has no key.
    """

    name: str
    options: Mapping[str, object]
    accepts_calls: bool
    http: Fetcher
    variable: Callable[[str], str | None]
    sign: Sign
    now_ms: Callable[[], int]

    def read_options(self, form: type[Form]) -> Form:
        """Return the options as a struct of the channel.

        Raises:
            Misuse: an option is missing, unknown, or of the wrong type.
        """
        try:
            return msgspec.convert(dict(self.options), form)
        except msgspec.ValidationError as error:
            if found := _UNNAMED.search(str(error)):
                what = "it is missing" if found[1] == "missing required" else "unknown option"
                raise Misuse(f"options.{found[2]}: {what}") from None
            raise Misuse(f"options.{invalid_params(error, '', form).message}") from None

    def read_secret(self, variable: str) -> str:
        """Return the value of an environment variable.

        Raises:
            Misuse: the variable is not set.
        """
        found = self.variable(variable)
        if not found:
            raise Misuse(f"the environment has no {variable}; set it, or name another")
        return found


class ChannelRequest(Struct, frozen=True):
    """An HTTP request to `/channels/NAME`. Header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes


class ChannelResponse(Struct, frozen=True):
    """The response to a request: its status, body and content type."""

    status: int = 200
    body: bytes = b"{}"
    content_type: bytes = JSON

    @staticmethod
    def of_json(content: object, status: int = 200) -> ChannelResponse:
        """Return a response with a JSON body."""
        return ChannelResponse(status, msgspec.json.encode(content))


class Channel:
    """Base class of channels. A subclass is made with `ChannelSettings` and performs no I/O when it is made.

    The constructor raises `Misuse` for options that cannot work; `trunkline hub check` reports it.
    """

    async def send(self, message: ChannelMessage) -> str:
        """Send a message; return why it was not sent, or an empty text if it was.

        The hub repeats a message that was not sent, always with the same `message.id`. The reason is logged,
        so it must contain no secret.
        """
        raise NotImplementedError

    def find_other(self, place: str) -> Channel | None:
        """Return a channel at another place that the same account reaches; None if there is no such place."""
        del place
        return None

    async def receive(self, request: ChannelRequest, hub: ChannelHub) -> ChannelResponse:
        """Handle a request to `/channels/NAME`, and prove first who sent it: the route needs no key.

        Raises:
            Unauthenticated: the request is not signed for this channel.
        """
        raise RouteNotFound("this channel receives no requests")

    async def run(self, hub: ChannelHub) -> None:
        """Work in the background until cancelled, for example to keep a connection open."""
        del hub


class EditableChannel(Channel):
    """Base class of channels whose messages can be changed, which `about: [progress]` needs."""

    async def show(self, content: str, nonce: str, message: str) -> tuple[str, str]:
        """Post a message, or replace the one with the ID `message`; return its ID and what went wrong.

        Two posts with the same nonce make one message.
        """
        raise NotImplementedError


# What a kind of channel is: a subclass of `Channel`, or a function that makes one.
ChannelFactory = Callable[[ChannelSettings], Channel]


def receives(channel: Channel) -> bool:
    """Return whether a channel handles requests or works in the background, so that people can call by it."""
    kind = type(channel)
    return kind.receive is not Channel.receive or kind.run is not Channel.run
