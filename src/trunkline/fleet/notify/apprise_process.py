"""Tells one notice by apprise, in a process of its own: the URL, the title and the text come as JSON.

Apprise takes as long as a receiver does and reads all that it answers. So it is run where both are bounded,
and without the rest of this package, which would take longer to load than to tell.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

import apprise

# A receiver that answers more than this leaves room for is not told; the process ends after so many seconds.
_MEMORY, _SECONDS = 512 << 20, 60


def main() -> int:
    """Tell the notice that stands on standard input; 0 if it was told."""
    signal.alarm(_SECONDS)
    # Some systems have no such limit, and some processes one that is lower.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    url, title, text = json.load(sys.stdin)
    teller: Any = apprise.Apprise()
    return 0 if teller.add(url) and teller.notify(title=title, body=text) else 1


if __name__ == "__main__":
    sys.exit(main())
