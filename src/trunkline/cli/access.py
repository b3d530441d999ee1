"""How an agent is called: with which credentials and headers, over which transports, in which version."""

from __future__ import annotations

from urllib.parse import urlsplit

from trunkline.cli.choices import ENVIRONMENT, Choices
from trunkline.cli.options import OPTIONS
from trunkline.cli.reference import Reference
from trunkline.cli.screen import remark
from trunkline.config import Secret
from trunkline.errors import Misuse
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient

_BINDINGS = {
    "jsonrpc": "JSONRPC",
    "json-rpc": "JSONRPC",
    "http+json": "HTTP+JSON",
    "rest": "HTTP+JSON",
    "grpc": "GRPC",
    "delegate": "DELEGATE",
}
_FLOOR = "1.0"
_SECRET = ("bearer", "api-key", "svc-param", "client-secret")


def caller_for(reference: Reference, choices: Choices) -> SocketHttpClient:
    """A carrier to the host that was named."""
    host = urlsplit(reference.url).hostname or ""
    return SocketHttpClient(Egress(hosts=[host]), verify=not choices.flag("insecure"))


def parameters_of(choices: Choices) -> dict[str, str]:
    """The service parameters, as headers.

    Raises:
        Misuse: one has no name.
    """
    found: dict[str, str] = {}
    for each in choices.items("svc-param"):
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise Misuse("--svc-param is NAME:VALUE, for example x-trace-id:abc123")
        found[name.strip()] = value.strip()
    return found


def at_home(choices: Choices, *, typed: bool) -> Choices:
    """The choices without the credentials of the global file, where the agent is named by a file found here.

    Whoever works in a folder from elsewhere has not read every file in it; `typed` agents are one's own.
    """
    agent = choices.of("agent-card")
    if typed or not choices.found or agent.source != choices.found:
        return choices
    given = {name: one for name in _SECRET if (one := choices.of(name)).value}
    for name, one in given.items():
        if one.source == ENVIRONMENT:
            remark(
                "Warning", f"{OPTIONS[name].variable} is shown to {agent.value}, which {agent.source} names"
            )
    withheld = {name: one for name, one in given.items() if one.rank > agent.rank}
    for name, one in withheld.items():
        whose = f"the {name} of {one.source} is not shown to {agent.value}, which {agent.source} names"
        remark("Warning", f"{whose}; name the agent with -a if it may see it")
    return choices.without(withheld)


def check_insecure(choices: Choices, *, logged_in: bool) -> None:
    """Let TLS go unchecked where that is said by whoever has the credentials.

    Raises:
        Misuse: a file found here says so, and the credentials are not its own.
    """
    if not choices.flag("insecure") or choices.of("insecure").source != choices.found:
        return
    sources = [one.source for name in _SECRET if (one := choices.of(name)).value]
    if any(source != choices.found for source in sources) or (logged_in and not sources):
        raise Misuse(
            f"{choices.found} has TLS certificates unchecked, for credentials that are not its own; "
            "say --insecure if that is meant"
        )


def credentials_of(choices: Choices) -> tuple[Secret | None, Secret | None]:
    """A bearer token or an API key: of two, the one that was said more directly."""
    bearer, api_key = choices.of("bearer"), choices.of("api-key")
    if bearer.value is None or api_key.value is None or bearer.rank == api_key.rank:
        return bearer.value, api_key.value
    return (bearer.value, None) if bearer.rank < api_key.rank else (None, api_key.value)


def bindings_of(told: tuple[str, ...]) -> tuple[str, ...]:
    """Transports by the names that cards use."""
    names = [one.strip() for each in told for one in each.split(",") if one.strip()]
    return tuple([_BINDINGS.get(name.lower(), name) for name in names])


def version_of(told: str) -> str:
    """A version without its patch."""
    return ".".join(told.split(".")[:2]) if told.count(".") > 1 else _FLOOR if told == "1" else told
