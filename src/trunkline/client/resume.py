"""Where a stream goes on after a break. Pure decisions; `stream` does what they say.

First from the last id that came, then from a snapshot, then by polling. A step that brought something new is
tried again; one that brought nothing, or is refused, is left for the next.
"""

from __future__ import annotations

from enum import Enum

from trunkline.client.retry import Fate, fate_of
from trunkline.errors import (
    MethodNotFound,
    PeerError,
    RouteNotFound,
    TaskNotFound,
    TrunklineError,
    UnsupportedOperation,
)

# How often one and the same poll may not know its task before the task counts as gone.
LOST_TIMES = 3
_SLOWER = 1.5
_SLOWEST = 10.0
_NO_SUCH_VERB = 405


class ResumeStep(Enum):
    """How a task is followed."""

    # Send it, and read the stream of it.
    STREAM = "stream"
    # Send it, and have the whole answer at once.
    SEND = "send"
    # Subscribe after the last id.
    RESUME = "resume"
    # Subscribe from a snapshot.
    SUBSCRIBE = "subscribe"
    # Ask now and then.
    POLL = "poll"


class ResumePoint:
    """The step that a stream is at, and which are left."""

    __slots__ = ("_resumes", "_retries", "_streams", "_tries", "moved", "step")

    def __init__(self, step: ResumeStep, streams: bool, retries: int) -> None:
        self.step = step
        # Whether anything new came by this step.
        self.moved = False
        self._streams = streams
        self._resumes = True
        self._retries = retries
        self._tries = 0

    def broken(self, error: TrunklineError | None, last_id: str) -> bool:
        """The step is over before the task is; goes to the next. Says whether to wait first."""
        moved, self.moved = self.moved, False
        if error is not None and fate_of(error) is Fate.UNTAKEN and self.step is not ResumeStep.POLL:
            # Nobody is there now: that says nothing against the step.
            self._tries += 1
            if self._tries <= self._retries:
                return True
        if moved:
            self._tries = 0
        self.step = self._next(moved, is_refusal(error), last_id)
        return not moved

    def _next(self, moved: bool, refused: bool, last_id: str) -> ResumeStep:
        # An error after something came is the end of that stream, not of all streams.
        if refused and not moved and self.step in (ResumeStep.RESUME, ResumeStep.SUBSCRIBE):
            self._resumes = False
            self._streams = self._streams and self.step is not ResumeStep.SUBSCRIBE
        if not self._streams or self.step is ResumeStep.POLL:
            return ResumeStep.POLL
        again = ResumeStep.RESUME if last_id and self._resumes else ResumeStep.SUBSCRIBE
        if self.step in (ResumeStep.STREAM, ResumeStep.SEND) or moved:
            return again
        return ResumeStep.SUBSCRIBE if self.step is ResumeStep.RESUME else ResumeStep.POLL


def is_refusal(error: TrunklineError | None) -> bool:
    """Whether the agent has answered that it will not do this, now or later."""
    return error is not None and fate_of(error) is Fate.ANSWERED


def cannot_stream(error: TrunklineError) -> bool:
    """Whether the agent says that it has no streams: it has not looked at the message then."""
    if isinstance(error, PeerError):
        return error.code == _NO_SUCH_VERB
    return isinstance(error, UnsupportedOperation | MethodNotFound | RouteNotFound)


def keeps_nothing(error: TrunklineError) -> bool:
    """Whether the agent says that it keeps no tasks to look at, or not this one any longer."""
    return isinstance(error, TaskNotFound | MethodNotFound | UnsupportedOperation)


def poll_pause_s(poll_s: float, times: int) -> float:
    """How long to wait before a poll: longer with every one that brought nothing new."""
    return poll_s * min(_SLOWEST, _SLOWER ** min(times, 32))
