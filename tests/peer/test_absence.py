"""What an error says of an agent elsewhere."""

from __future__ import annotations

import pytest

from trunkline.errors import TimedOut, TooManyRequests, TrunklineError, Uncertain, Unreachable
from trunkline.peer.absence import SILENT, is_away, is_silent, is_unsent


@pytest.mark.parametrize(
    ("error", "away", "unsent"),
    [
        (Unreachable("nobody", reason="connect"), True, True),
        # Left alone because it failed: an answer to a question of its waits until it is asked again.
        (Unreachable("left alone", reason="breaker"), True, True),
        (Unreachable("broke off", reason="sent"), True, False),
        (TooManyRequests("later", retry_after_s=1), True, True),
        (Uncertain("lost", reason="sent", message_id="m"), True, False),
        (TimedOut("gone", reason=SILENT), False, False),
    ],
)
def test_what_an_error_says(error: TrunklineError, away: bool, unsent: bool) -> None:
    assert (is_away(error), is_unsent(error)) == (away, unsent)
    assert is_silent(error) == (isinstance(error, TimedOut))
