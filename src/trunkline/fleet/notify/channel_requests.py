"""The requests that channels receive, at `/channels/NAME`."""

from __future__ import annotations

from trunkline.errors import RouteNotFound, Unauthenticated
from trunkline.fleet.notify.channel import ChannelRequest, ChannelResponse
from trunkline.fleet.notify.notifications import Notifications
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.mounts import PUBLIC, App, Mount, Route
from trunkline.wire.codes import write_problem

PREFIX = "/channels"
# The address that applications of Discord were given before there were other channels.
DISCORD = "/discord"
_BODY_LIMIT = 256 << 10


class ChannelRequests:
    """An ASGI application. The channel of a request proves who sent it."""

    def __init__(self, notifications: Notifications) -> None:
        self._notifications = notifications

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI.

        Raises:
            RouteNotFound: there is no such channel, or it receives no requests.
            Unauthenticated: the channel did not recognize the sender.
        """
        path: str = scope["path"]
        name = DISCORD[1:] if path.startswith(f"{DISCORD}/") else path.removeprefix(f"{PREFIX}/")
        body: bytes = (await receive())["body"]
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        response = await self._respond(name, ChannelRequest(headers, body))
        sent = [
            (b"content-type", response.content_type),
            (b"content-length", b"%d" % len(response.body)),
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": sent})
        await send({"type": "http.response.body", "body": response.body, "more_body": False})

    async def _respond(self, name: str, request: ChannelRequest) -> ChannelResponse:
        """Return the response of a channel by its name, or of the first of a kind that knows the sender."""
        refused: Unauthenticated | None = None
        for hub in self._notifications.hubs(name):
            try:
                return await hub.channels[hub.receiver.name].receive(request, hub)
            except Unauthenticated as error:
                refused = error
        raise refused or RouteNotFound(f"channel {name[:64]!r} not found")


def channel_mounts(app: App) -> list[Mount]:
    """Return where channels receive requests. Each request proves its sender to its channel."""
    return [
        Mount(PREFIX, app, [Route("POST /{name}", PUBLIC, _BODY_LIMIT)], write_problem),
        Mount(DISCORD, app, [Route("POST /interactions", PUBLIC, _BODY_LIMIT)], write_problem),
    ]
