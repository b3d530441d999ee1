"""A receiver of notifications as `hub.yaml` describes it: its channel, and what it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.config import seconds

Topic = Literal["questions", "alerts", "progress"]
LIMIT = 50
_ADDRESSES = ("webhook", "webhook_env", "apprise", "apprise_env", "discord", "channel")


class NoticeReceiver(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of notifications through one channel.

    `channel` names the kind of channel and `options` what that kind needs. The members about webhooks,
    apprise and Discord are short forms of both. With `calls` people in the channel can open tasks. `after` is
    how long a question must have been open before this receiver is sent it. With `link` it is also sent a
    link to answer; an answer by the link is in the name of the receiver.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    webhook: str = ""
    webhook_env: str = ""
    apprise: str = ""
    apprise_env: str = ""
    about: tuple[Topic, ...] = ("questions", "alerts")
    tenants: Annotated[tuple[str, ...], Meta(min_length=1)] | Literal["all"] = (DEFAULT_TENANT,)
    after: float | str = 0.0
    link: bool = False
    discord: Annotated[str, Meta(pattern=r"^[0-9]{0,32}$")] = ""
    discord_token_env: str = ""
    discord_public_key: Annotated[str, Meta(pattern=r"^([0-9a-fA-F]{64})?$")] = ""
    discord_api: str = ""
    webhook_secret_env: str = ""
    channel: Annotated[str, Meta(max_length=256)] = ""
    options: dict[str, object] = {}
    calls: bool = False

    def __post_init__(self) -> None:
        given = [name for name in _ADDRESSES if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"{self.name}: give one of {', '.join(_ADDRESSES)}")
        if self.discord and not (self.discord_token_env and self.discord_public_key):
            raise ValueError(f"{self.name}: discord needs discord_token_env and discord_public_key")
        if self.options and not self.channel:
            raise ValueError(f"{self.name}: options belong to channel; give it too")
        if self.webhook_secret_env and not self.calls:
            raise ValueError(f"{self.name}: webhook_secret_env proves who calls; set calls: true too")
        if "progress" in self.about and not (self.discord or self.channel):
            raise ValueError(f"{self.name}: progress needs messages that can be edited, those of discord")
        try:
            seconds(self.after)
        except ValueError as error:
            raise ValueError(f"{self.name}: after: {error}") from None

    @property
    def after_ms(self) -> int:
        """Return how long a question waits before this receiver is sent it, in milliseconds."""
        return round(seconds(self.after) * 1000)

    @property
    def kind(self) -> str:
        """Return the name of the kind of channel."""
        if self.channel:
            return self.channel
        if self.discord:
            return "discord"
        return "apprise" if self.apprise or self.apprise_env else "webhook"

    @property
    def channel_options(self) -> Mapping[str, object]:
        """Return the options of the channel, also those that are written in a short form."""
        if self.channel:
            return self.options
        found = {
            "discord": {
                "channel": self.discord,
                "token_env": self.discord_token_env,
                "public_key": self.discord_public_key,
                "api": self.discord_api,
            },
            "apprise": {"url": self.apprise, "url_env": self.apprise_env},
            "webhook": {
                "url": self.webhook,
                "url_env": self.webhook_env,
                "secret_env": self.webhook_secret_env,
            },
        }[self.kind]
        return {name: value for name, value in found.items() if value}

    @property
    def home(self) -> str:
        """Return the tenant of the tasks that people in this channel open."""
        return DEFAULT_TENANT if self.tenants == "all" else self.tenants[0]

    @property
    def realm(self) -> str:
        """Return the prefix of the names of people in this channel: `discord` for `discord:ada`."""
        # A kind that is an object of a module has no name for people.
        return self.name if ":" in self.kind else self.kind

    def wants(self, topic: Topic, tenant: str) -> bool:
        """Return whether this receiver is sent a topic of a tenant."""
        return topic in self.about and (self.tenants == "all" or tenant in self.tenants)
