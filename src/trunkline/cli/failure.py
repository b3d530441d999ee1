"""What went wrong, as the contract tells it: a code, a message, the next step and an exit code.

What the protocol names has the protocol's name; what is the tool's own has `A2ACLI_ERR_…`; what neither
names, because only we tell it apart, has `TRUNKLINE_…`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from trunkline import errors as e
from trunkline.cli.choices import is_json_chosen
from trunkline.cli.screen import clear, document, plain, remark
from trunkline.wire.codes import CODES

EXITS = {
    "A2ACLI_ERR_USAGE": 2,
    "A2ACLI_ERR_CARD_NOT_FOUND": 3,
    "A2ACLI_ERR_CARD_INVALID": 1,
    "A2ACLI_ERR_UNREACHABLE": 3,
    "A2ACLI_ERR_CREDENTIALS_MISSING": 4,
    "A2ACLI_ERR_AUTH_FAILED": 4,
    "A2ACLI_ERR_TIMEOUT": 5,
    "A2ACLI_ERR_INTERNAL": 1,
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
# How a program gives credentials; here the hint says how.
_IN_PYTHON = re.compile(r" \(give [^()]*(?:\([^()]*\)[^()]*)?\)|; (?:give|try) api_key=… or bearer=…")


class CommandFailure(Struct, frozen=True):
    """An error as it is told."""

    code: str
    message: str
    hint: str = ""
    a2a_code: int | None = None

    @property
    def exit(self) -> int:
        """The exit code that agrees with it."""
        return EXITS.get(self.code, 1)


def failure_of(error: BaseException, *, finding: bool, credentials: bool) -> CommandFailure:
    """How an exception is told. `finding` says that the card was still looked for, `credentials` that some
    were sent.
    """
    text = str(error) or type(error).__name__
    if isinstance(error, e.Unauthenticated | e.Forbidden):
        code = "A2ACLI_ERR_AUTH_FAILED" if credentials else "A2ACLI_ERR_CREDENTIALS_MISSING"
        number = 401 if isinstance(error, e.Unauthenticated) else 403
        return CommandFailure(code, _IN_PYTHON.sub("", text), a2a_code=number)
    if isinstance(error, e.Misuse):
        return CommandFailure("A2ACLI_ERR_USAGE", text)
    if isinstance(error, e.TimedOut) and error.reason != "connect":
        return CommandFailure("A2ACLI_ERR_TIMEOUT", text)
    if isinstance(error, e.Uncertain):
        return CommandFailure("TRUNKLINE_UNCERTAIN", text)
    if isinstance(error, e.Unreachable):
        return CommandFailure("A2ACLI_ERR_UNREACHABLE", text)
    if isinstance(error, e.Unreadable):
        return CommandFailure("A2ACLI_ERR_CARD_INVALID" if finding else "A2ACLI_ERR_INTERNAL", text)
    if isinstance(error, e.Refused):
        return _refusal(error, finding=finding)
    return CommandFailure("A2ACLI_ERR_INTERNAL", f"{type(error).__name__}: {text}")


def _refusal(error: e.Refused, *, finding: bool) -> CommandFailure:
    if finding:
        return CommandFailure("A2ACLI_ERR_CARD_NOT_FOUND", error.message)
    code = CODES[type(error)]
    told = error.code if isinstance(error, e.PeerError) else code.rpc
    name = _FURTHER.get(told) or _UNNAMED.get(type(error)) or code.name_03
    return CommandFailure(name, error.message, a2a_code=told)


def tell(failure: CommandFailure, *, as_json: bool, compact: bool = False) -> None:
    """Print it: where a program reads, in place of the result; else on standard error."""
    clear()
    if as_json:
        error = {
            "code": failure.code,
            "message": failure.message,
            "hint": failure.hint or None,
            "a2aCode": failure.a2a_code,
        }
        document(msgspec.json.encode({"error": error}), compact=compact)
        return
    remark("Error", failure.message)
    print(f"Code: {failure.code}", file=sys.stderr)
    if failure.hint:
        print(f"Hint: {plain(failure.hint)}", file=sys.stderr)


def wants_json(typed: Sequence[str]) -> bool:
    """Whether JSON is asked for, when the flags themselves cannot be read."""
    for place, word in enumerate(typed):
        following = typed[place + 1] if place + 1 < len(typed) else ""
        if word in {"-o", "--output"}:
            return following == "json"
        if word.startswith(("-o", "--output=")) and not word.startswith("--output-"):
            return word.removeprefix("--output=").removeprefix("-o") == "json"
    return is_json_chosen()
