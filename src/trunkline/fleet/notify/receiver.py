"""Who is told of what: a receiver as `hub.yaml` describes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.config import seconds
from trunkline.errors import Misuse

Topic = Literal["questions", "alerts", "progress"]
LIMIT = 50
_ADDRESSES = ("webhook", "webhook_env", "apprise", "apprise_env", "discord")


class NoticeReceiver(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of notices at one address, which a variable may hold: a webhook, or a URL of apprise.

    Or a channel of Discord by its id, with the token of a bot and the public key of its application.

    `after` is how long a question must have been open before this receiver hears of it. With `link` it gets
    one by which it can answer, and whoever has that link answers in its name.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    webhook: str = ""
    webhook_env: str = ""
    apprise: str = ""
    apprise_env: str = ""
    about: tuple[Topic, ...] = ("questions", "alerts")
    tenants: tuple[str, ...] | Literal["all"] = (DEFAULT_TENANT,)
    after: float | str = 0.0
    link: bool = False
    discord: Annotated[str, Meta(pattern=r"^[0-9]{0,32}$")] = ""
    discord_token_env: str = ""
    discord_public_key: Annotated[str, Meta(pattern=r"^([0-9a-fA-F]{64})?$")] = ""
    discord_api: str = "https://discord.com/api/v10"

    def __post_init__(self) -> None:
        given = [name for name in _ADDRESSES if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"{self.name}: give one of {', '.join(_ADDRESSES)}")
        if self.discord and not (self.discord_token_env and self.discord_public_key):
            raise ValueError(f"{self.name}: discord needs discord_token_env and discord_public_key")
        if "progress" in self.about and not self.discord:
            raise ValueError(f"{self.name}: progress needs messages that can be edited, those of discord")
        try:
            seconds(self.after)
        except ValueError as error:
            raise ValueError(f"{self.name}: after: {error}") from None

    @property
    def after_ms(self) -> int:
        """How long a question waits for others before this receiver is told, in milliseconds."""
        return round(seconds(self.after) * 1000)

    @property
    def by_apprise(self) -> bool:
        """Whether its address is a URL of apprise, and no webhook."""
        return bool(self.apprise or self.apprise_env)

    def wants(self, topic: Topic, tenant: str) -> bool:
        """Whether this receiver is told of such things of a tenant."""
        return topic in self.about and (self.tenants == "all" or tenant in self.tenants)

    def address(self, variable: Callable[[str], str | None]) -> str:
        """The address of the receiver, from the file or from the variable that it names; of a bot its token.

        Raises:
            Misuse: the variable is not set.
        """
        named = self.webhook_env or self.apprise_env or self.discord_token_env
        found = variable(named) if named else self.webhook or self.apprise
        if not found:
            raise Misuse(f"the environment has no {named}; set it, or name another")
        return found
