"""The tour of CONTRIBUTING.md is short, and the behaviours that it lists are where it says."""

from __future__ import annotations

import re

from tests.architecture.source import PACKAGE, ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TOUR_LINES = 1_800
# For each file of the list a name in it that does the thing: a file that lost it has a stale row.
SHOWN = {
    "http/connection.py": "HEAD_S",
    "http/server.py": "drain",
    "agent/turn.py": "coalesce",
    "auth/key_store.py": "def rotate",
    "run/notification.py": "class OutgoingNotification",
    "run/hops.py": "hop_limit",
    "run/takeover.py": "class Takeover",
    "run/retention.py": "class Retention",
    "net/pool.py": "class ConnectionPool",
    "client/resume.py": "class ResumePoint",
    "store/group_commit.py": "class GroupCommit",
    "net/egress.py": "class Egress",
    "run/retry.py": "class RetrySchedule",
    "peer/remote_run.py": "def _recall",
    "server/streams.py": "keep_alive",
    "run/limits.py": "class Quota",
}


def test_the_tour_is_short() -> None:
    files = re.findall(r"^\| \d \| `src/trunkline/([a-z_/]+\.py)`", PAGE, re.M)
    lines = {name: (PACKAGE / name).read_text(encoding="utf-8").count("\n") for name in files}
    assert len(files) == 7
    assert sum(lines.values()) <= TOUR_LINES, lines


def test_the_behaviours_are_where_the_page_says() -> None:
    section = PAGE.split("## Where is it?")[1].split("\n## ")[0]
    files = re.findall(r"\| `([a-z_/]+\.py)` \|$", section, re.M)
    assert sorted(files) == sorted(SHOWN)
    stale = [name for name in files if SHOWN[name] not in (PACKAGE / name).read_text(encoding="utf-8")]
    assert stale == []
