"""Row 53, H8: nobody reads another one's word, in answers, errors, streams, lists, caches or the log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from tests.harness import ServerProcess
from tests.hostile.canaries import TENANTS, WORD, Crowd, enrol

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("TRUNKLINE_TEST_SEED", "20260131"))
COUNT = 2_000


def test_no_answer_holds_the_word_of_another(make: Callable[..., ServerProcess]) -> None:
    print(f"seed {SEED}")
    server = make("--dev", "--metrics", "--log-level", "debug")
    members = asyncio.run(enrol(f"sqlite:///{server.directory}/tasks.db"))
    with server:
        crowd = Crowd(server.port, members, SEED)
        asyncio.run(crowd.run(COUNT))
        server.stop()
        log = server.text()
    assert crowd.leaks == [], f"{len(crowd.leaks)}: {crowd.leaks[:3]}"
    # Both sides of it happened: everybody has something, and much was refused.
    assert all(member.tasks and member.tokens for member in members)
    assert COUNT // 10 < crowd.refused < COUNT * 9 // 10
    assert all(f"tenant-{number}" in log for number in range(TENANTS))
    said = [line for line in log.splitlines() if WORD.search(line.encode()) and "path=" not in line]
    assert said == [], said[:3]
