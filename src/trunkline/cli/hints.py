"""The next step after a failure, from what is known of the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trunkline import errors as e
from trunkline.cli.failure import CommandFailure
from trunkline.wire.peer_card import PeerCard

if TYPE_CHECKING:
    from trunkline.cli.session import Session

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_LOGIN = {"oauth2", "openIdConnect"}
_WAYS = {"apiKey": "A2ACLI_API_KEY to a key", "http": "A2ACLI_BEARER to a token"}


def hint_for(failure: CommandFailure, error: Exception, session: Session | None) -> str:
    """What to do, as a command where there is one; empty if nothing useful can be said."""
    if session is None or failure.code == "A2ACLI_ERR_USAGE":
        return "trunkline help"
    match failure.code:
        case "A2ACLI_ERR_CREDENTIALS_MISSING" | "A2ACLI_ERR_AUTH_FAILED":
            return _credentials(session)
        case "A2ACLI_ERR_TIMEOUT":
            return (
                session.command("task get", session.task_id, "--wait") if session.task_id else "--timeout 15m"
            )
        case "A2ACLI_ERR_UNREACHABLE":
            return _unreached(session, error)
        case "TRUNKLINE_UNCERTAIN":
            return session.command("task list")
        case "TRUNKLINE_TOO_MANY_REQUESTS" | "TRUNKLINE_UNAVAILABLE":
            return "it is busy: call again later"
        case "A2ACLI_ERR_CARD_NOT_FOUND":
            return "give the card's whole URL or its file: trunkline card get -a https://host/path/agent-card.json"
        case "VersionNotSupportedError":
            return "an agent of an older version is spoken to with --a2a-version 0.3"
        case "TaskNotFoundError" if not session.given.flags.get("task_id"):
            return session.command("task list")
        case _:
            return "" if session.choices.flag("debug") else "--debug shows what went over the wire"


def _credentials(session: Session) -> str:
    card = session.known_card
    kinds = {} if card is None else {scheme.kind: scheme for scheme in _wanted(card)}
    if session.logged_in or kinds.keys() & _LOGIN:
        return session.command("auth login")
    ways = [way for kind, way in _WAYS.items() if kind in kinds]
    return f"set {' or '.join(ways)}" if ways else "set A2ACLI_BEARER or A2ACLI_API_KEY"


def _wanted(card: PeerCard):  # noqa: ANN202
    names = [name for one in card.requirements for name in one]
    chosen = [card.schemes[name] for name in names if name in card.schemes]
    return chosen or list(card.schemes.values())


def _unreached(session: Session, error: Exception) -> str:
    if session.message_id and session.task_id:
        return session.command("task get", session.task_id, "--wait")
    host = urlsplit(session.told if "//" in session.told else f"//{session.told}").hostname or ""
    if isinstance(error, e.Unreachable) and error.reason == "tls":
        return "a certificate of your own is accepted with --insecure, for development only"
    if host in _LOOPBACK:
        return "is it running? trunkline serve MODULE:AGENT"
    return "check the host and the port; --debug shows each step"
