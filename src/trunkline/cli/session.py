"""The session of one command with one agent: target, client, and what is known of the agent so far."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from urllib.parse import quote, urlsplit

from trunkline import errors as e
from trunkline.cli.configuration import DEFAULT, FLAG, ClientConfiguration
from trunkline.cli.console import print_notice
from trunkline.cli.oauth import TokenFile, origin_of
from trunkline.cli.parsing import Invocation
from trunkline.cli.target import (
    AgentTarget,
    binding_names,
    check_insecure,
    credentials_from,
    is_target_found,
    only_target,
    protocol_version,
    resolve_target,
    service_headers,
    split_target,
    warn_withheld,
    withhold_credentials,
)
from trunkline.cli.wire_trace import Redaction, WireTrace
from trunkline.client.client import Client
from trunkline.config import Secret
from trunkline.net.egress import Egress
from trunkline.net.http import HttpClient
from trunkline.net.http_client import SocketHttpClient
from trunkline.wire.peer_card import PeerCard


class Session:
    """All that a command works with. `task_id` is set as soon as it is known, for whoever is interrupted."""

    def __init__(
        self, invocation: Invocation, config: ClientConfiguration, *, agent_only: bool, use_login: bool = True
    ) -> None:
        self.invocation = invocation
        self._use_login = use_login
        self.task_id = ""
        self.message_id = ""
        self.finding_card = True
        self.has_credentials = False
        # Whether there is a token of an earlier login, good or not.
        self.logged_in = False
        self.known_card: PeerCard | None = None
        if agent_only:
            self.agent, self.arguments = only_target(invocation.arguments, invocation.flags, config), ()
        else:
            self.agent, self.arguments = split_target(invocation.arguments, invocation.flags, config)
        typed = len(self.arguments) < len(invocation.arguments)
        self._login_withheld = not typed and is_target_found(config)
        self.config = withhold_credentials(config, typed=typed)
        self._client: Client | None = None
        self._trace: HttpClient | None = None

    @cached_property
    def target(self) -> AgentTarget:
        """The agent that was named, and where it is."""
        return resolve_target(self.agent)

    @property
    def client(self) -> Client:
        """The client; there is one while the command runs."""
        assert self._client is not None
        return self._client

    async def card(self) -> PeerCard:
        """The agent's card, looked for once; where there is none, what follows fails as `finding`."""
        if self.known_card is None:
            self.known_card = await self._find_card()
            self.finding_card = False
        return self.known_card

    async def compatible_card(self) -> PeerCard:
        """The card of an agent that speaks the version that is wanted.

        Raises:
            VersionNotSupported: it does not; an older one is never spoken unless that is told.
        """
        card = await self.card()
        wanted, offered = self._wanted_version, _versions(card)
        if offered and wanted not in offered:
            raise e.VersionNotSupported(
                f"the agent speaks {', '.join(offered)}, and not {wanted}; say so with --a2a-version"
            )
        if not offered and self.config.values["a2a-version"].source == DEFAULT:
            # Neither the caller nor the card names a version: whichever is understood is spoken.
            await self.client.close()
            self._client = self._connect(version="", card=card)
        return card

    @property
    def _wanted_version(self) -> str:
        return protocol_version(self.config.text("a2a-version"))

    @property
    def _version_option(self) -> list[str]:
        """The version to say in a command that goes on: the one that was typed, or the agent's own."""
        offered = () if self.known_card is None else _versions(self.known_card)
        if self.config.values["a2a-version"].source == FLAG:
            return ["--a2a-version", self._wanted_version]
        return ["--a2a-version", offered[-1]] if offered and self._wanted_version not in offered else []

    async def _find_card(self) -> PeerCard:
        try:
            async with self.time_limit("no card within {seconds:g} seconds"):
                return await self.client.card()
        except e.RouteNotFound:
            if not self.config.items("transport"):
                raise
            # Who says how to speak to it needs no card; without one it is not known to stream.
            print_notice("Warning", "there is no card; it is spoken to as --transport says")
            return PeerCard(name="")

    @asynccontextmanager
    async def time_limit(self, late: str) -> AsyncGenerator[None]:
        """Ends what is done within after --timeout; `late` says what has not come by then.

        Raises:
            TimedOut: it took too long.
        """
        seconds = self.config.seconds("timeout")
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise e.TimedOut(late.format(seconds=seconds), reason="total") from None

    @property
    def explanation(self) -> tuple[str, ...]:
        """How the interface of the agent was chosen, step by step."""
        return () if self._client is None else self._client.explanation

    def argument(self, what: str) -> str:
        """The one argument that a command wants beside the agent.

        Raises:
            Misuse: it is missing, or there are more.
        """
        if len(self.arguments) != 1:
            raise e.Misuse(f"give {what}, and name the agent by its whole URL first or by -a")
        return self.arguments[0]

    def command(self, name: str, *arguments: str, flags: Sequence[str] = (), **options: str) -> str:
        """A command for this agent that can be copied; whatever an agent calls its task, it is no option."""
        words = [
            "trunkline",
            *name.split(),
            *_option("-a", "--agent-card", self.agent),
            *self._version_option,
        ]
        for option, value in {name: value for name, value in options.items() if value}.items():
            long = f"--{option.replace('_', '-')}"
            words += _option(long, long, value)
        hidden = any(one.startswith("-") for one in arguments)
        text = shlex.join([*words, *flags, "--", *arguments] if hidden else [*words, *arguments, *flags])
        # Ids are the agent's; what a terminal would act on is spelled out.
        return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])

    def wait_command(self, task_id: str) -> str:
        """The command that waits for a task."""
        return self.command("task get", task_id, flags=["--wait"])

    async def open(self) -> None:
        """Make the client, with the credentials that this agent may see."""
        config = self.config
        target = self.target
        headers = service_headers(config)
        bearer, api_key = credentials_from(config)
        check_insecure(config, logged_in=self._use_login and TokenFile().has(target.url))
        if bearer is None and api_key is None and self._use_login:
            bearer = await self._login_token(target)
        self.has_credentials = bearer is not None or api_key is not None
        if config.flag("insecure"):
            risk = "; the credential can be read by whoever answers" if self.has_credentials else ""
            print_notice("Warning", f"--insecure: TLS certificates are not checked{risk}")
        known = [one.reveal() for one in (bearer, api_key) if one is not None]
        # As a key looks in a URL.
        known += [quote(one, safe="") for one in known]
        if config.flag("debug"):
            self._trace = self.http_client(Redaction(known, headers))
        version = self._wanted_version
        if version.startswith("0"):
            # 0.3 itself has no such header; but the contract wants it said, and here it was asked for.
            headers = {"A2A-Version": version, **headers}
        # Made again without a version where the agent is to choose it.
        self._connect = partial(
            Client,
            target.url,
            bearer=bearer or "",
            api_key=api_key or "",
            headers=headers,
            bindings=binding_names(config.items("transport")),
            timeout_s=config.seconds("timeout"),
            poll_s=config.seconds("poll-interval"),
            verify_tls=not config.flag("insecure"),
            http_client=self._trace,
        )
        self._client = self._connect(version=version, card=target.card)

    async def close(self) -> None:
        """Close the client and what shows the wire."""
        if self._client is not None:
            await self._client.close()
        if self._trace is not None:
            await self._trace.close()

    async def _login_token(self, target: AgentTarget) -> Secret | None:
        """The token of an earlier `auth login`, made fresh where it is stale."""
        tokens = TokenFile()
        self.logged_in = tokens.has(target.url)
        if not self.logged_in:
            return None
        if self._login_withheld:
            warn_withheld(self.config, f"the login at {origin_of(target.url)}")
            return None
        http_client = self.http_client(Redaction([]))
        try:
            async with self.time_limit("no token within {seconds:g} seconds"):
                return await tokens.fresh(target.url, http_client, self.config.secret("client-secret"))
        finally:
            await http_client.close()

    def http_client(self, redaction: Redaction) -> HttpClient:
        """An HTTP client for the agent's host; with --debug it shows the wire without what is redacted."""
        # It may call the host that was named, and no other.
        egress = Egress(hosts=[urlsplit(self.target.url).hostname or ""])
        plain = SocketHttpClient(egress, verify=not self.config.flag("insecure"))
        return WireTrace(plain, redaction) if self.config.flag("debug") else plain


def _versions(card: PeerCard) -> list[str]:
    """The versions that a card offers, the oldest first."""
    return sorted({protocol_version(each.version) for each in card.interfaces if each.version})


def _option(short: str, long: str, value: str) -> list[str]:
    """An option and its value, as one word where the value could be taken for an option."""
    return [f"{long}={value}"] if value.startswith("-") else [short, value]
