"""Push configs of tasks: checked, sealed, and set by an event of the task itself.

So a config cannot race the end of its task, survives whatever the task survives, and whoever posts
reads it from the log at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from trunkline.auth.vault import Vault
from trunkline.clock import Ids
from trunkline.errors import InvalidParams, Refused, TaskNotFound, Unavailable, Unreachable
from trunkline.log.events import PushTarget
from trunkline.log.fold import NOBODY
from trunkline.log.notifications import DeletePush, SetPush
from trunkline.net.fetch import FetcherOf
from trunkline.run.feed import Feed
from trunkline.run.tasks import Tasks
from trunkline.wire.types import PushConfig

_encode = msgspec.json.Encoder().encode


class Proof(Struct, frozen=True, omit_defaults=True):
    """What shows a receiver that it is us; kept sealed."""

    token: str = ""
    credentials: str = ""


_read_proof = msgspec.json.Decoder(Proof).decode


def proof_of(target: PushTarget, vault: Vault) -> Proof:
    """The secrets of a target, opened."""
    return _read_proof(vault.open(target.sealed, _about(target.id))) if target.sealed else Proof()


def _refusal(error: Unreachable, field: str) -> Refused:
    """Return the refusal of a URL that cannot be called."""
    if error.reason == "busy":
        return Unavailable(f"{field}: {error}; nothing was recorded, try again")
    return InvalidParams(f"{field}: {error}", field=field, reason="PUSH_URL_REFUSED")


def _about(config_id: str) -> str:
    return f"push config {config_id}"


class PushConfigs(Struct, frozen=True):
    """Sets, shows and deletes the push configs of tasks; without `show` their secrets stay unseen."""

    _tasks: Tasks
    _ids: Ids
    _poster_of: FetcherOf
    _vault: Vault
    show: bool

    async def target(
        self,
        tenant: str,
        config: PushConfig,
        version: str,
        field: str = "url",
        known: Mapping[str, PushTarget] = NOBODY,
    ) -> PushTarget:
        """A config of a tenant as the log keeps it; without an id in the place of a `known` one of that url.

        Raises:
            InvalidParams: nothing may be sent to its url.
            Unavailable: that cannot be found out now.
        """
        try:
            await self._poster_of(tenant).check(config.url)
        except Unreachable as error:
            raise _refusal(error, field) from None
        same = (one.id for one in known.values() if one.url == config.url)
        config_id = config.id or next(same, "") or self._ids.new()
        sealed = ""
        if config.token or config.credentials:
            proof = _encode(Proof(config.token, config.credentials)).decode()
            sealed = self._vault.seal(proof, _about(config_id))
        return PushTarget(config_id, config.url, version, config.scheme, sealed)

    async def set(self, feed: Feed, target: PushTarget, principal: str) -> PushConfig:
        """Have a target told of the task from here on."""
        await self._tasks.renew(feed)
        await self._tasks.change(feed, SetPush(target, principal))
        return self._shown(target)

    async def get(self, feed: Feed, config_id: str) -> PushConfig:
        """One config; without an id the first, as 0.3 has it.

        Raises:
            TaskNotFound: there is none.
        """
        await self._tasks.renew(feed)
        targets = feed.state.push
        found = targets.get(config_id) if config_id else next(iter(targets.values()), None)
        if found is None:
            raise TaskNotFound("the task has no such push config")
        return self._shown(found)

    async def list(self, feed: Feed) -> list[PushConfig]:
        """All configs of a task, oldest first."""
        await self._tasks.renew(feed)
        return [self._shown(target) for target in feed.state.push.values()]

    async def delete(self, feed: Feed, config_id: str, principal: str) -> None:
        """Tell a target nothing more, without an id all of them; who is not there is told nothing anyway."""
        await self._tasks.renew(feed)
        for one in (config_id,) if config_id else tuple(feed.state.push):
            await self._tasks.change(feed, DeletePush(one, principal))

    def _shown(self, target: PushTarget) -> PushConfig:
        proof = proof_of(target, self._vault) if self.show else Proof()
        return PushConfig(target.url, target.id, proof.token, target.scheme, proof.credentials)
