"""Bounds on wrong keys and tokens: of one address, and of all of them together.

Whoever has none left is refused before its key is looked at, so that nobody guesses any further. A key that
is right, from an address that sent no wrong one of late, is always let in: a stranger locks out nobody else.
"""

from __future__ import annotations

from collections.abc import Callable

from trunkline.errors import TooManyRequests
from trunkline.run.limits import Quota

# A second, and together after a pause. People mistype keys, and programs that have an old one try it again.
PER_PLACE, PLACE_BURST = 1.0, 1000
IN_ALL, ALL_BURST = 20.0, 5000
_ALL = ("", "", "")


class FailedAttempts:
    """Counts wrong keys by the address they come from. Each process counts for itself."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._of_place = Quota(PER_PLACE, PLACE_BURST, 0, clock)
        self._of_all = Quota(IN_ALL, ALL_BURST, 0, clock)

    def __bool__(self) -> bool:
        return bool(self._of_place)

    def check(self, place: str) -> None:
        """Whether a key from here may be looked at.

        Raises:
            TooManyRequests: too many were wrong: of here, or of all and some of them of here.
        """
        caller = ("", "", place)
        wait_s = self._of_place.wait_s(caller)
        if self._of_place.is_used(caller):
            wait_s = max(wait_s, self._of_all.wait_s(_ALL))
        if wait_s:
            raise _refusal(wait_s)

    def count(self, place: str) -> None:
        """A key from here was wrong.

        Raises:
            TooManyRequests: it was one too many.
        """
        try:
            self._of_place.enter(("", "", place))
            self._of_all.enter(_ALL)
        except TooManyRequests as error:
            raise _refusal(error.retry_after_s) from None


def _refusal(wait_s: float) -> TooManyRequests:
    seconds = max(1.0, wait_s)
    return TooManyRequests("too many wrong keys; try again in a while", retry_after_s=seconds)
