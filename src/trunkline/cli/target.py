"""Which agent is meant (a host, a URL, a card's URL or a card in a file), and how it is called: with which
credentials and headers, over which transports, in which version.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from trunkline.cli.configuration import ENVIRONMENT, FLAG, ClientConfiguration
from trunkline.cli.console import print_notice
from trunkline.cli.options import OPTIONS
from trunkline.config import Secret, secret_text
from trunkline.errors import Misuse, RouteNotFound, Unreadable
from trunkline.wire.peer_card import PeerCard, read_card

_SCHEMES = ("http://", "https://", "file://")
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


class AgentTarget(Struct, frozen=True):
    """The agent of a command: its URL, and its card where that was a file."""

    url: str
    card: PeerCard | None = None


def split_target(
    arguments: tuple[str, ...], flags: Mapping[str, Any], config: ClientConfiguration
) -> tuple[str, tuple[str, ...]]:
    """The agent and the other arguments. Without -a, a first argument that is a URL is the agent.

    Only what was typed decides which argument is which, never what is configured.

    Raises:
        Misuse: no agent is named.
    """
    if "agent_card" in flags:
        return str(flags["agent_card"]), arguments
    if arguments and arguments[0].startswith(_SCHEMES):
        return arguments[0], arguments[1:]
    agent = config.text("agent-card")
    if not agent and len(arguments) > 1:
        raise Misuse(
            f"{arguments[0]!r} is no whole URL: begin it with http:// or https://, or give -a {arguments[0]}"
        )
    if not agent:
        raise Misuse(MISSING)
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
        raise Misuse(MISSING)
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
    return tuple([_BINDINGS.get(name.lower(), name) for name in names])


def protocol_version(given: str) -> str:
    """A protocol version without its patch number, as cards write it."""
    return (
        ".".join(given.split(".")[:2]) if given.count(".") > 1 else _FIRST_STABLE if given == "1" else given
    )
