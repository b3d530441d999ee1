"""Webhooks of the remote agents that do tasks of ours; each is let in by the token of its task."""

from __future__ import annotations

from trunkline.errors import TaskNotFound
from trunkline.fleet.call import ApiCall, ApiStruct
from trunkline.fleet.route import api_route
from trunkline.peer.callbacks import Callbacks, read_callback, refusal
from trunkline.run.runner import Runner


class CallbackTaken(ApiStruct, frozen=True):
    """The webhook was heard, now or before."""

    success: bool


class CallbackApi:
    """The operation of the API by which remote agents tell of tasks."""

    def __init__(self, runner: Runner, callbacks: Callbacks) -> None:
        self._runner = runner
        self._callbacks = callbacks

    @api_route("POST /a2a/callback/{id}", None)
    async def take(self, call: ApiCall, body: bytes) -> CallbackTaken:
        """Tell of a task that a remote agent does."""
        tenant = self._callbacks.tenant(call.id, _token(call))
        told = read_callback(body)
        try:
            feed = await self._runner.tasks.load(tenant, call.id)
            if feed is None:
                raise refusal()
            await self._runner.notify(feed, told)
        except TaskNotFound:
            raise refusal() from None
        return CallbackTaken(success=True)


def _token(call: ApiCall) -> str:
    """The token of a webhook: a bearer token, or else the header that A2A has for it."""
    headers = dict(call.headers)
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get(b"x-a2a-notification-token", b"").decode("latin-1").strip()
