"""What an error in a call to a remote agent says: whether it is away, and whether it was told anything.

Pure.
"""

from __future__ import annotations

from trunkline.client.retry import Fate, fate_of, is_peer_failure
from trunkline.errors import TimedOut, TooManyRequests, TrunklineError, Unreachable

# In the metadata of what is said of a task whose agent is away.
AWAY_KEY = "trunkline.away"
# Waiting changes nothing: our own rules refuse it, or what it has to say is too much.
_FINAL = frozenset({"refused", "url", "size"})
_BUSY = "accepts no more requests now"
# The reason of an agent that is given up because it says nothing more.
SILENT = "silent"


def is_away(error: TrunklineError) -> bool:
    """Whether an agent cannot be reached or takes nothing now, and may later."""
    if is_silent(error) or (isinstance(error, Unreachable) and error.reason in _FINAL):
        return False
    return isinstance(error, Unreachable | TooManyRequests) or is_peer_failure(error)


def absence_of(error: TrunklineError) -> str:
    """Return what a caller is shown of an agent that is away; addresses and causes stay out of it."""
    if isinstance(error, TooManyRequests):
        return f"accepts no more requests for {error.retry_after_s:.0f} s" if error.retry_after_s else _BUSY
    return "cannot be reached now"


def is_unsent(error: TrunklineError) -> bool:
    """Whether nothing of a message has left: nobody took it, or an agent that fails is left alone for now."""
    return fate_of(error) is Fate.UNTAKEN or (isinstance(error, Unreachable) and error.reason == "breaker")


def is_silent(error: TrunklineError) -> bool:
    """Whether an agent is given up because it says nothing more."""
    return isinstance(error, TimedOut) and error.reason == SILENT
