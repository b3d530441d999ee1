"""What went wrong, as the contract tells it: a code, a message, the next step and an exit code.

What the protocol names has the protocol's name; what is the tool's own has `A2ACLI_ERR_…`; what neither
names, because only we tell it apart, has `TRUNKLINE_…`.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import typer.main
from msgspec import Struct
from msgspec.structs import replace

from trunkline import errors as e
from trunkline.cli.configuration import is_json_configured
from trunkline.cli.console import clear_progress, escape_controls, print_json, print_notice
from trunkline.wire.codes import CODES
from trunkline.wire.peer_card import PeerCard, PeerScheme

EXITS = {
    "A2ACLI_ERR_USAGE": 2,
    "A2ACLI_ERR_CARD_NOT_FOUND": 3,
    "A2ACLI_ERR_CARD_INVALID": 1,
    "A2ACLI_ERR_UNREACHABLE": 3,
    "A2ACLI_ERR_CREDENTIALS_MISSING": 4,
    "A2ACLI_ERR_AUTH_FAILED": 4,
    "A2ACLI_ERR_TIMEOUT": 5,
    "A2ACLI_ERR_INTERNAL": 1,
    # A store that cannot be opened is mostly a wrong --store.
    "TRUNKLINE_STORE": 2,
}
# Names that the protocol has and our server has no use for.
_FURTHER = {-32006: "InvalidAgentResponseError", -32008: "ExtensionSupportRequiredError"}
# Refusals that A2A has no name for.
_UNNAMED: dict[type[e.TrunklineError], str] = {
    e.TooManyRequests: "TRUNKLINE_TOO_MANY_REQUESTS",
    e.Unavailable: "TRUNKLINE_UNAVAILABLE",
    e.TooLarge: "TRUNKLINE_TOO_LARGE",
    e.RouteNotFound: "TRUNKLINE_ROUTE_NOT_FOUND",
    e.PeerError: "TRUNKLINE_PEER_ERROR",
}
# What is no refusal; the first that fits.
_CODES: tuple[tuple[type[e.TrunklineError], str], ...] = (
    (e.Misuse, "A2ACLI_ERR_USAGE"),
    (e.Uncertain, "TRUNKLINE_UNCERTAIN"),
    (e.Unreachable, "A2ACLI_ERR_UNREACHABLE"),
    (e.Unreadable, "A2ACLI_ERR_INTERNAL"),
    (e.StoreError, "TRUNKLINE_STORE"),
)
_SECRET_OPTIONS = ("--key", "--api-key", "--bearer", "--client-secret", "--token", "--credentials")
# Settings that --set may give.
_SECRET_SETTING = re.compile(
    r"(?:--set=)?[\w-]*(?:key|secret|token|password|issuer|store)[\w-]*=", re.IGNORECASE
)
# Commands that act on what `list` shows, and the errors of an ID that it does not show.
_LISTED = ("agent", "ceremony", "deliveries", "inbox", "keys", "task", "tenant")
# The hint that names a list, and the options that say of which hub or store.
_LISTING = re.compile(r"trunkline ([a-z]+) list")
_PLACES = ("--store", "--hub", "--tenant")
# A URL with a password, such as that of a store.
_LOGIN_IN_URL = re.compile(r"://[^/\s@]*:[^/\s@]*@")
_LOCATED = re.compile(r"(\S+?)(?:(?:, line |:)([0-9]+)|: invalid JSON)")
# The command with which an error about a missing extra ends.
_EXTRA = re.compile(r"pip install 'trunkline\[[a-z-]+\]'")
_UNKNOWN_ID = ("A2ACLI_ERR_USAGE", "InvalidParamsError", "TaskNotFoundError", "TRUNKLINE_ROUTE_NOT_FOUND")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_LOGIN = {"oauth2", "openIdConnect"}
KEY_HINT, _TOKEN_HINT = "export A2ACLI_API_KEY=KEY", "export A2ACLI_BEARER=TOKEN"
# A hint that ends so has the same command behind it.
THEN = " &&"
# How a program gives credentials; here the hint says how.
_IN_PYTHON = re.compile(r" \(give [^()]*(?:\([^()]*\)[^()]*)?\)|; (?:give|try) api_key=… or bearer=…")


class CommandFailure(Struct, frozen=True):
    """An error as the command line reports it."""

    code: str
    message: str
    hint: str = ""
    a2a_code: int | None = None

    @property
    def exit(self) -> int:
        """The exit code that goes with the error code."""
        return EXITS.get(self.code, 1)


def failure_of(
    error: BaseException, *, finding_card: bool = False, has_credentials: bool = False
) -> CommandFailure:
    """Return the failure that an exception stands for, with the hint that the exception has.

    `finding_card` says that the card was not yet found, `has_credentials` that the request had credentials.
    """
    failure = _translate(error, finding_card=finding_card, has_credentials=has_credentials)
    return replace(failure, hint=error.hint) if isinstance(error, e.TrunklineError) else failure


def _translate(error: BaseException, *, finding_card: bool, has_credentials: bool) -> CommandFailure:
    text = str(error) or type(error).__name__
    if isinstance(error, e.Unauthenticated | e.Forbidden):
        code = "A2ACLI_ERR_AUTH_FAILED" if has_credentials else "A2ACLI_ERR_CREDENTIALS_MISSING"
        number = 401 if isinstance(error, e.Unauthenticated) else 403
        return CommandFailure(code, _IN_PYTHON.sub("", text), a2a_code=number)
    if isinstance(error, e.Refused):
        return _refusal(error, finding_card=finding_card)
    if isinstance(error, e.FlowRefused):
        return CommandFailure(error.code, text)
    if isinstance(error, e.TimedOut) and error.reason != "connect":
        return CommandFailure("A2ACLI_ERR_TIMEOUT", text)
    if isinstance(error, e.Unreadable) and finding_card:
        return CommandFailure("A2ACLI_ERR_CARD_INVALID", text)
    known = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if known is None:
        return CommandFailure("A2ACLI_ERR_INTERNAL", f"{type(error).__name__}: {text}")
    return CommandFailure(known, text)


def _refusal(error: e.Refused, *, finding_card: bool) -> CommandFailure:
    if finding_card:
        return CommandFailure("A2ACLI_ERR_CARD_NOT_FOUND", error.message)
    code = CODES[type(error)]
    number = error.code if isinstance(error, e.PeerError) else code.rpc
    name = _FURTHER.get(number) or _UNNAMED.get(type(error)) or code.name_03
    return CommandFailure(name, error.message, a2a_code=number)


def print_failure(failure: CommandFailure, *, as_json: bool, compact: bool = False) -> None:
    """Print a failure: where a program reads, in place of the result; else on standard error."""
    clear_progress()
    if as_json:
        error = {
            "code": failure.code,
            "message": failure.message,
            "hint": failure.hint or None,
            "a2aCode": failure.a2a_code,
        }
        print_json(msgspec.json.encode({"error": error}), compact=compact)
        return
    print_notice("Error", failure.message)
    print(f"Code: {failure.code}", file=sys.stderr)
    if failure.hint:
        print(f"Hint: {escape_controls(failure.hint)}", file=sys.stderr)


def print_error(error: e.TrunklineError, typed: Sequence[str]) -> int:
    """Print the error of a command that calls no agent, and return the exit code; `typed` are its words."""
    failure = failure_of(error)
    failure = replace(failure, hint=failure.hint or retry_hint(error))
    if isinstance(error, e.StoreInUse) and error.pid and typed[:1] == ["store"]:
        # These commands maintain this store; another one does not help.
        failure = replace(failure, hint=f"kill {error.pid}")
    print_failure(complete_hint(failure, typed), as_json=is_json_typed(typed))
    return failure.exit


def complete_hint(failure: CommandFailure, typed: Sequence[str]) -> CommandFailure:
    """Return the failure with a command as its hint, made of the words that were typed."""
    hint = failure.hint
    listing = _LISTING.fullmatch(hint)
    if extra := _EXTRA.search(failure.message):
        hint = extra[0]
    elif hint.endswith(THEN):
        hint += f" {_retyped(typed, '')}".rstrip()
    elif hint.startswith("--") or hint in ("URL", "TEXT"):
        hint = _retyped(typed, hint)
    elif not hint and (place := _show_place(failure.message)):
        hint = place
    elif not hint and failure.code in _UNKNOWN_ID and typed[:1] and typed[0] in _LISTED:
        is_list_useless = typed[1:2] and typed[1] in ("create", "add", "list")
        hint = _help(typed) if is_list_useless else _listing(typed[0], typed)
    elif listing is not None:
        hint = _listing(listing[1], typed)
    elif not hint and failure.code == "A2ACLI_ERR_USAGE":
        hint = _help(typed)
    return replace(failure, hint=hint)


def _help(typed: Sequence[str]) -> str:
    """Return the command that shows how the command that was typed is used."""
    from trunkline.cli.main import app

    command: Any = typer.main.get_group(app)
    words: list[str] = []
    for word in typed:
        known = getattr(command, "commands", {})
        if word not in known:
            break
        command = known[word] if words else command.loaded(word)
        words.append(word)
    return shlex.join(["trunkline", "help", *words])


def _listing(group: str, typed: Sequence[str]) -> str:
    """Return the command that lists what a group of commands acts on, at the place that was typed."""
    words = ["trunkline", group, "list"]
    for place, word in enumerate(typed):
        name, equals, value = word.partition("=")
        if name in _PLACES and not _LOGIN_IN_URL.search(word):
            words += [name, value] if equals else typed[place : place + 2]
    return shlex.join(words)


def _show_place(message: str) -> str:
    """Return the command that shows the line of a file with which a message begins, or an empty text."""
    located = _LOCATED.match(message)
    if located is None or not Path(located[1]).is_file():
        return ""
    if located[2] is None:
        return shlex.join(["python", "-m", "json.tool", located[1]])
    return shlex.join(["sed", "-n", f"{located[2]}p", located[1]])


def has_secret(typed: Sequence[str]) -> bool:
    """Return whether the words may contain a secret, which no hint may repeat."""
    return any(
        [
            word.startswith(_SECRET_OPTIONS) or _SECRET_SETTING.match(word) or _LOGIN_IN_URL.search(word)
            for word in typed
        ]
    )


def _retyped(typed: Sequence[str], option: str) -> str:
    """Return the command line with one option set, or only its first word where it may hold a secret."""
    if has_secret(typed):
        return f"trunkline {typed[0]} … {option}"
    name = option.partition(" ")[0]
    words: list[str] = []
    for word in typed:
        if words and words[-1] == name:
            words.pop()
        elif not word.startswith(f"{name}="):
            words.append(word)
    return f"{shlex.join(['trunkline', *words])} {option}"


def is_json_asked(flags: Mapping[str, Any]) -> bool:
    """Whether JSON is asked for, when the configuration as a whole cannot be read."""
    return flags["output"] == "json" if "output" in flags else is_json_configured()


def is_json_typed(typed: Sequence[str]) -> bool:
    """Whether JSON is asked for, when the flags themselves cannot be read."""
    for place, word in enumerate(typed):
        following = typed[place + 1] if place + 1 < len(typed) else ""
        if word == "--json":
            return True
        if word in {"-o", "--output"}:
            return following == "json"
        if word.startswith(("-o", "--output=")) and not word.startswith("--output-"):
            return word.removeprefix("--output=").removeprefix("-o") == "json"
    return is_json_configured()


if TYPE_CHECKING:
    from trunkline.cli.session import Session


def hint_for(failure: CommandFailure, error: Exception, session: Session | None) -> str:
    """Return the command to run after a failure, or an option to repeat it with; empty if none is useful."""
    if session is None or failure.code == "A2ACLI_ERR_USAGE":
        return ""
    match failure.code:
        case "A2ACLI_ERR_CREDENTIALS_MISSING" | "A2ACLI_ERR_AUTH_FAILED":
            return _credentials_hint(session)
        case "A2ACLI_ERR_TIMEOUT":
            return session.wait_command(session.task_id) if session.task_id else "--timeout 15m"
        case "A2ACLI_ERR_UNREACHABLE":
            if session.message_id and session.task_id:
                return session.wait_command(session.task_id)
            return hint_for_unreachable(session.target.url, error)
        case "TRUNKLINE_UNCERTAIN":
            return session.command("task list")
        case "TRUNKLINE_TOO_MANY_REQUESTS" | "TRUNKLINE_UNAVAILABLE":
            return retry_hint(error)
        case "A2ACLI_ERR_CARD_NOT_FOUND":
            return _session_card_hint(session, error)
        case "InvalidParamsError" | "ContentTypeNotSupportedError" if session.message_id:
            # It prints each skill with the schema of its parameters.
            return shlex.join(["trunkline", "tools", session.target.url])
        case "VersionNotSupportedError":
            return session.command("send", "<text>")
        case "TaskNotFoundError":
            return session.command("task list")
        case "UnsupportedOperationError" if session.message_id and session.config.text("task-id"):
            # The task has ended, so a new one is started.
            return session.command("send", "<text>")
        case _:
            return "" if session.config.flag("debug") else "--debug"


def retry_hint(error: BaseException) -> str:
    """Return the start of a command that repeats a request once it may be admitted, or an empty text."""
    if not isinstance(error, e.TooManyRequests | e.Unavailable):
        return ""
    return f"sleep {getattr(error, 'retry_after_s', 1):.0f}{THEN}"


def _credentials_hint(session: Session) -> str:
    card = session.known_card
    kinds = {} if card is None else {scheme.kind: scheme for scheme in _accepted_schemes(card)}
    if session.logged_in or kinds.keys() & _LOGIN:
        return session.command("auth login")
    is_token_tried = session.config.values["bearer"].value is not None and "http" in kinds
    return _TOKEN_HINT if is_token_tried or {*kinds} == {"http"} else KEY_HINT


def _accepted_schemes(card: PeerCard) -> list[PeerScheme]:
    names = [name for one in card.requirements for name in one]
    chosen = [card.schemes[name] for name in names if name in card.schemes]
    return chosen or list(card.schemes.values())


def _session_card_hint(session: Session, error: Exception) -> str:
    try:
        url = session.target.url
    except e.TrunklineError:
        return "trunkline card get -a https://HOST/.well-known/agent-card.json"
    return _card_hint(url, error)


def _card_hint(url: str, error: Exception) -> str:
    parts = urlsplit(url)
    if isinstance(error, e.RouteNotFound) and error.missing:
        return shlex.join(["trunkline", "card", "get", "-a", f"{parts.scheme}://{parts.netloc}"])
    return shlex.join(["trunkline", "doctor", url])


def hint_for_address(failure: CommandFailure, error: Exception, url: str) -> str:
    """Return the command to run after a failure at an agent's URL, or an empty text if none is useful."""
    match failure.code:
        case "A2ACLI_ERR_UNREACHABLE":
            return hint_for_unreachable(url, error)
        case "A2ACLI_ERR_CARD_NOT_FOUND":
            return _card_hint(url, error)
        case "A2ACLI_ERR_CREDENTIALS_MISSING" | "A2ACLI_ERR_AUTH_FAILED":
            return KEY_HINT
        case _:
            return failure.hint


def hint_for_unreachable(url: str, error: Exception, serving: str = "serve MODULE:AGENT") -> str:
    """Return the command to run when nothing answers at a URL; `serving` is the command that serves there."""
    parts = urlsplit(url)
    is_local = (parts.hostname or "") in _LOOPBACK
    if isinstance(error, e.Unreachable) and error.reason == "plain":
        return shlex.join(["trunkline", "card", "get", "-a", parts._replace(scheme="http").geturl()])
    if is_local and isinstance(error, e.Unreachable) and error.reason == "tls":
        return "--insecure"
    if not is_local:
        return shlex.join(["trunkline", "doctor", url])
    port = f" --port {parts.port}" if parts.port else ""
    if Path("hub.yaml").is_file():
        return f"trunkline hub{port}"
    return f"trunkline {serving}{port}"
