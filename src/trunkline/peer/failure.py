"""Why a remote agent did not do its work, for those who asked for it: a stable reason, and words about it.

The words hold nothing of where and how the agent is called, nor of what it says of its own insides: that is
the operator's, whose log has the whole error. Pure.
"""

from __future__ import annotations

from msgspec import Struct

from trunkline.errors import (
    ContentTypeNotSupported,
    Forbidden,
    InvalidParams,
    MethodNotFound,
    Refused,
    RouteNotFound,
    TaskNotCancelable,
    TaskNotFound,
    TimedOut,
    TooLarge,
    TooManyRequests,
    TrunklineError,
    Unauthenticated,
    Unreachable,
    Unreadable,
    UnsupportedOperation,
    VersionNotSupported,
)
from trunkline.peer.absence import is_silent

# Beside those that errors have: what there is no error for.
UNCERTAIN, UNLISTED, UNCALLABLE, UNANSWERED = "uncertain", "unlisted", "uncallable", "unanswered"
# An agent's own words in these are about the message, and meant for whoever wrote it.
_SPOKEN = (
    ContentTypeNotSupported,
    InvalidParams,
    TaskNotCancelable,
    TaskNotFound,
    TooLarge,
    TooManyRequests,
    UnsupportedOperation,
)
# What our reader of errors says in the place of an agent that said nothing; it names the agent's host.
_OURS = "HTTP "
_BY_REASON = {
    "size": ("too-large", "failed: its answer is larger than is read"),
    "refused": ("not-allowed", "is where this host may not call"),
    "url": ("not-allowed", "is where this host may not call"),
}


class PeerFailure(Struct, frozen=True):
    """Why: `reason` is for programs and never changes, `words` follow the name of the agent."""

    reason: str
    words: str


def explain(error: TrunklineError, *, has_task: bool) -> PeerFailure:
    """What an error says to whoever asked for the work; `has_task`: the agent had taken it."""
    if isinstance(error, Refused):
        return _refusal(error, has_task=has_task)
    if isinstance(error, Unreadable):
        return PeerFailure("unreadable", "failed: what it answered is no A2A")
    if is_silent(error):
        return PeerFailure("silent", f"failed: {error}")
    if isinstance(error, Unreachable) and error.reason in _BY_REASON:
        return PeerFailure(*_BY_REASON[error.reason])
    if isinstance(error, TimedOut):
        return PeerFailure("timed-out", "failed: it did not answer in time")
    return PeerFailure("unreachable", "cannot be reached")


def _refusal(error: Refused, *, has_task: bool) -> PeerFailure:
    if isinstance(error, Unauthenticated | Forbidden):
        return PeerFailure("not-let-in", "does not let this host in")
    if isinstance(error, TaskNotFound) and has_task:
        return PeerFailure("forgotten", f"no longer knows its task{_said(error)}")
    if isinstance(error, MethodNotFound | UnsupportedOperation) and has_task:
        return PeerFailure("unfollowable", "has no way to ask what became of its task")
    if isinstance(error, RouteNotFound) and error.missing:
        return PeerFailure("misaddressed", "has no card at its URL; the card found there is another agent's")
    if isinstance(error, RouteNotFound | VersionNotSupported | MethodNotFound):
        return PeerFailure("incompatible", "speaks no A2A that is spoken here")
    if isinstance(error, _SPOKEN):
        return PeerFailure("refused", f"does not take it{_said(error)}")
    return PeerFailure("agent-error", "failed with an error of its own")


def _said(error: Refused) -> str:
    said = error.message
    return f": {said}" if said and not said.startswith(_OURS) else ""
