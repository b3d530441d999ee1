"""Rows 37 to 39 for push configs, chains, extensions, credentials, pages of others and operators.

A share of the cases; `make chaos` plays them all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.harness import Agent, ServerProcess
from tests.hostile.conftest import survivor
from tests.hostile.reach import at_random, everything, share
from tests.hostile.shapes import Case
from tests.hostile.sockets import flood
from tests.hostile.verdict import AT_THE_DOOR, all_wrong
from tests.sample import at_most

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

SEED = int(os.environ.get("TRUNKLINE_TEST_SEED", "20260131"))
SHARE, RANDOM = at_most(100_000, 1_500), at_most(1_000, 500)
FLAGS = (
    "--dev", "--metrics", "--log-level", "warning", "--set", "cors_origins=https://app.example", "--set", "trust_forwarded=true",
)  # fmt: skip


class Reached(NamedTuple):
    """A server that pushes, with a task to speak of and the operator's token."""

    server: ServerProcess
    task: str
    token: bytes


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    directory = tmp_path_factory.mktemp("reach")
    with survivor(directory, "trunkline.demo:agent", *FLAGS) as server:
        agent = Agent(server.base)
        task = agent.send("echo to be told of")["id"]
        agent.close()
        endpoint = json.loads((directory / "tasks.db.admin").read_text())
        yield Reached(server, task, endpoint["token"].encode())


def test_everything_new_that_can_be_spoiled(reached: Reached) -> None:
    print(f"seed {SEED}: set TRUNKLINE_TEST_SEED for another one")
    every = everything(reached.task, reached.token)
    assert len(every) >= 30_000
    _run(reached.server, share(every, SHARE, SEED))


def test_spoiled_at_random(reached: Reached) -> None:
    _run(reached.server, list(at_random(reached.task, reached.token, RANDOM, SEED)))


def _run(server: ServerProcess, cases: list[Case]) -> None:
    wrong = all_wrong(cases, flood(server.port, [case.raw for case in cases]), AT_THE_DOOR)
    assert wrong == [], f"{len(wrong)} of {len(cases)}: {wrong[:10]}"
