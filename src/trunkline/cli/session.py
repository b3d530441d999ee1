"""The session of one command with one agent: target, client, and what is known of the agent so far.

The target is the agent that is meant (a host, a URL, a card's URL or a card in a file), and how it is called:
with which credentials and headers, over which transports, in which version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from trunkline.cli.configuration import DEFAULT, ENVIRONMENT, FLAG, ClientConfiguration
from trunkline.cli.console import print_notice
from trunkline.cli.next_command import command_line
from trunkline.cli.oauth import TokenFile, origin_of
from trunkline.cli.options import OPTIONS
from trunkline.cli.parsing import Invocation
from trunkline.cli.wire_trace import Redaction, WireTrace
from trunkline.client.client import Client
from trunkline.client.ranking import VERSIONS, plain_version
from trunkline.config import Secret, secret_text
from trunkline.errors import Misuse, RouteNotFound, TimedOut, Unreadable, VersionNotSupported
from trunkline.net.egress import Egress
from trunkline.net.http import HttpClient
from trunkline.net.http_client import SocketHttpClient
from trunkline.wire.peer_card import PeerCard, read_card

ADDRESSES = ("http://", "https://", "file://")
_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
_BINDINGS = {
    "jsonrpc": "JSONRPC",
    "json-rpc": "JSONRPC",
    "http+json": "HTTP+JSON",
    "rest": "HTTP+JSON",
    "grpc": "GRPC",
    "delegate": "DELEGATE",
}
_FIRST_STABLE = "1.0"
_CREDENTIAL_OPTIONS = ("bearer", "api-key", "svc-param", "client-secret")
MISSING = "no agent is named: give its URL first, or -a REF, or set A2ACLI_AGENT_CARD"


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
        # Whether the client chooses the version by the card.
        self._has_own_version = False
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
        """Return the card, once the client speaks a version that the agent offers.

        Unless the caller insists on a version, an agent that does not offer 1.0 is called in its own.

        Raises:
            VersionNotSupported: the agent does not offer the version that the caller insists on, or offers
                none that is spoken here.
        """
        card = await self.card()
        wanted, offered = self._wanted_version, _versions(card)
        if wanted in offered or self._has_own_version:
            return card
        spoken = [version for version in offered if plain_version(version)]
        if offered and self._insists_on_version:
            raise VersionNotSupported(
                f"the agent speaks {', '.join(offered)}, and not {wanted}; "
                "leave out --a2a-version to call it in its own version"
            )
        if offered and not spoken:
            raise VersionNotSupported(
                f"the agent speaks {', '.join(offered)}, "
                f"and none of {', '.join(VERSIONS)}, which are spoken here"
            )
        if not self._insists_on_version:
            self._has_own_version = True
            await self.client.close()
            self._client = self._connect(version="", card=card)
        if spoken:
            print_notice("Note", f"the agent does not speak {wanted}; it is called in {spoken[-1]}")
        return card

    @property
    def _wanted_version(self) -> str:
        return protocol_version(self.config.text("a2a-version"))

    @property
    def _insists_on_version(self) -> bool:
        return self.config.values["a2a-version"].source != DEFAULT

    @property
    def _version_option(self) -> str:
        """The version for a command that continues: the one that was typed, or one that the agent offers."""
        if not self._insists_on_version:
            return ""
        offered = () if self.known_card is None else _versions(self.known_card)
        if offered and self._wanted_version not in offered:
            return offered[-1]
        is_typed = self.config.values["a2a-version"].source == FLAG
        return self._wanted_version if is_typed else ""

    async def _find_card(self) -> PeerCard:
        try:
            async with self.time_limit("no card within {seconds:g} seconds"):
                return await self.client.card()
        except RouteNotFound as error:
            if error.missing or not self.config.items("transport"):
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
            raise TimedOut(late.format(seconds=seconds), reason="total") from None

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
            raise Misuse(f"give {what}, and name the agent by its whole URL first or by -a")
        return self.arguments[0]

    def command(self, name: str, *arguments: str, flags: Sequence[str] = (), **options: str) -> str:
        """Return a command for this agent that can be copied."""
        named = {"-a": self.agent, "--a2a-version": self._version_option}
        given = {f"--{option.replace('_', '-')}": value for option, value in options.items()}
        return command_line(name, *arguments, target={**named, **given}, flags=flags)

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


class AgentTarget(Struct, frozen=True):
    """The agent of a command: its URL, and its card where that was a file."""

    url: str
    card: PeerCard | None = None


def split_target(
    arguments: tuple[str, ...], flags: Mapping[str, Any], config: ClientConfiguration
) -> tuple[str, tuple[str, ...]]:
    """Return the agent and the other arguments. Without -a, a first argument that is a URL is the agent.

    Only what was typed decides which argument is which, never what is configured.

    Raises:
        Misuse: no agent is named.
    """
    if "agent_card" in flags:
        return str(flags["agent_card"]), arguments
    if arguments and arguments[0].startswith(ADDRESSES):
        return arguments[0], arguments[1:]
    agent = config.text("agent-card")
    if not agent and len(arguments) > 1:
        raise Misuse(
            f"{arguments[0]!r} is no whole URL: begin it with http:// or https://, or give -a {arguments[0]}",
            hint=command_line("card get", target={"-a": arguments[0]}),
        )
    if not agent:
        raise Misuse(MISSING, hint="--agent-card URL")
    return agent, arguments


def only_target(arguments: tuple[str, ...], flags: Mapping[str, Any], config: ClientConfiguration) -> str:
    """The agent of a command that takes no other argument, however it is spelled.

    Raises:
        Misuse: none is named, or two.
    """
    if len(arguments) > 1 or (arguments and "agent_card" in flags):
        raise Misuse(f"one agent at a time: {' '.join(arguments)!r} is too much")
    agent = arguments[0] if arguments else config.text("agent-card")
    if not agent:
        raise Misuse(MISSING, hint="URL")
    return agent


def resolve_target(agent: str) -> AgentTarget:
    """Find out where the named agent is.

    Raises:
        Misuse: it names no agent.
        RouteNotFound: the file it names is not there.
        Unreadable: the file holds no card.
    """
    if agent.startswith(("http://", "https://")):
        if not urlsplit(agent).hostname:
            raise Misuse(f"{agent!r} names no host")
        return AgentTarget(agent)
    path = _path(agent)
    if path is not None:
        return _from_file(path)
    host = urlsplit(f"//{agent}").netloc
    if not host or any(sign.isspace() for sign in agent):
        raise Misuse(f"{agent!r} is no agent: give a host, a URL or the file of a card")
    name = host.rpartition(":")[0] or host
    scheme = "http" if {host, name} & _LOOPBACK else "https"
    return AgentTarget(f"{scheme}://{agent}")


def _path(agent: str) -> Path | None:
    if agent.startswith("file://"):
        return Path(unquote(urlsplit(agent).path))
    path = Path(agent).expanduser()
    looks = agent.startswith((".", "/", "~")) or agent.endswith(".json")
    return path if looks or path.is_file() else None


def _from_file(path: Path) -> AgentTarget:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RouteNotFound(f"{path}: {error.strerror}") from None
    card = read_card(raw)
    if not card.interfaces:
        raise Unreadable(f"{path}: the card names no interface")
    return AgentTarget(card.interfaces[0].url, card)


def service_headers(config: ClientConfiguration) -> dict[str, str]:
    """The service parameters, as headers.

    Raises:
        Misuse: one has no name.
    """
    found: dict[str, str] = {}
    # A file may be a stranger's, and must not name a variable.
    reveal = secret_text if config.values["svc-param"].source in (FLAG, ENVIRONMENT) else str
    for each in config.items("svc-param"):
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise Misuse("--svc-param is NAME:VALUE, for example x-trace-id:abc123")
        found[name.strip()] = reveal(value.strip())
    return found


def withhold_credentials(config: ClientConfiguration, *, typed: bool) -> ClientConfiguration:
    """The configuration without credentials of others, where a file found here names the agent.

    Whoever works in a folder from elsewhere has not read every file in it; `typed` agents are one's own, and
    so are credentials that are typed.
    """
    if typed or not is_target_found(config):
        return config
    given = {name: one for name in _CREDENTIAL_OPTIONS if (one := config.values[name]).value}
    withheld = {name: one for name, one in given.items() if one.source not in (FLAG, config.found_file)}
    for name, one in withheld.items():
        whose = f"{OPTIONS[name].variable} of the environment"
        warn_withheld(config, whose if one.source == ENVIRONMENT else f"the {name} of {one.source}")
    return config.without(withheld)


def is_target_found(config: ClientConfiguration) -> bool:
    """Whether a file that nobody named says which agent is meant, unless one is typed."""
    return bool(config.found_file) and config.values["agent-card"].source == config.found_file


def warn_withheld(config: ClientConfiguration, whose: str) -> None:
    """Say that a credential is not shown to an agent, and what to do if it is meant to be."""
    agent = config.text("agent-card")
    told = f"{whose} is not shown to {agent}, which {config.found_file} names"
    print_notice("Warning", f"{told}; name the agent with -a if it may see it")


def check_insecure(config: ClientConfiguration, *, logged_in: bool) -> None:
    """Accept --insecure only from whoever gave the credentials.

    Raises:
        Misuse: a file found here says so, and the credentials are not its own.
    """
    if not config.flag("insecure") or config.values["insecure"].source != config.found_file:
        return
    sources = [one.source for name in _CREDENTIAL_OPTIONS if (one := config.values[name]).value]
    if any(source != config.found_file for source in sources) or (logged_in and not sources):
        raise Misuse(
            f"{config.found_file} has TLS certificates unchecked, for credentials that are not its own; "
            "say --insecure if that is meant"
        )


def credentials_from(config: ClientConfiguration) -> tuple[Secret | None, Secret | None]:
    """A bearer token or an API key: of two, the one that was said more directly."""
    bearer, api_key = config.values["bearer"], config.values["api-key"]
    if bearer.value is None or api_key.value is None or bearer.rank == api_key.rank:
        return bearer.value, api_key.value
    return (bearer.value, None) if bearer.rank < api_key.rank else (None, api_key.value)


def binding_names(given: tuple[str, ...]) -> tuple[str, ...]:
    """Transports by the names that cards use."""
    names = [one.strip() for each in given for one in each.split(",") if one.strip()]
    for name in names:
        if name.lower() not in _BINDINGS:
            near = _BINDINGS[(get_close_matches(name.lower(), _BINDINGS, 1) or ["jsonrpc"])[0]]
            choices = ", ".join(dict.fromkeys(_BINDINGS.values()))
            raise Misuse(f"transport {name!r} is unknown; choose {choices}", hint=f"--transport {near}")
    return tuple([_BINDINGS.get(name.lower(), name) for name in names])


def protocol_version(given: str) -> str:
    """A protocol version without its patch number, as cards write it."""
    return (
        ".".join(given.split(".")[:2]) if given.count(".") > 1 else _FIRST_STABLE if given == "1" else given
    )
