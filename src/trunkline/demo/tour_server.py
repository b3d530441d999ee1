"""The server process of the tour, its client, and what it has acknowledged so far."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from trunkline.client.result import Result
from trunkline.client.sync import SyncClient
from trunkline.demo.tour_process import READY_S, Gone, StepFailed, TourProcess
from trunkline.net.egress import Egress, target
from trunkline.net.http import HttpRequest
from trunkline.net.http_client import SocketHttpClient
from trunkline.wire.spellings import plain_state

_KEYS_LIMIT = 1 << 16


class DemoServer(TourProcess):
    """The demo agent in a process of its own, on a SQLite file."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(
            directory, port,
            ["serve", "trunkline.demo:agent", "--store", f"sqlite:///{directory / 'tasks.db'}",
             # The tour's webhook is on this machine.
             "--set", "egress_networks=127.0.0.0/8"],
        )  # fmt: skip
        self.client = self._connect()

    def stop(self) -> None:
        """End the server in order."""
        self.client.close()
        super().stop()

    def await_end(self) -> None:
        """After something went wrong: wait a while for the server's end.

        Raises:
            Gone: it has ended.
        """
        try:
            super().await_end()
        except Gone:
            # The next server is not to blame for what this one left unanswered.
            self.client.close()
            self.client = self._connect()
            raise

    def signing_keys(self) -> bytes:
        """The public keys that its webhooks are signed with."""
        return asyncio.run(_read(f"{self.base}/.well-known/jwks.json"))

    def _connect(self) -> SyncClient:
        # Little patience: a restart of the tour's own needs none, and somebody else's kill is noticed soon.
        return SyncClient(
            self.base, timeout_s=READY_S, idle_s=READY_S / 2, connect_s=2, poll_s=0.2, retries=1
        )


class Acknowledged:
    """The newest answer for each task, to be held against the server whenever it comes back."""

    def __init__(self) -> None:
        self._answers: dict[str, Result] = {}

    def note(self, result: Result) -> None:
        """Keep an answer as the newest of its task."""
        self._answers[result.task_id] = result

    def compare(self, client: SyncClient) -> str:
        """Ask for every task again; gives what became of them, in words.

        Raises:
            StepFailed: something that was acknowledged is not there.
        """
        now: Counter[str] = Counter()
        for task_id, answered in self._answers.items():
            found = client.get(task_id)
            # What had ended stays as it was. A question may have been answered, and what ran may have ended.
            if answered.ended and describe(found) != describe(answered):
                raise StepFailed(f"task {task_id} was {describe(answered)} and is {describe(found)}")
            now[plain_state(found.state)] += 1
        states = ", ".join(f"{count} {state}" for state, count in now.items())
        return f"nothing acknowledged was lost: {states or 'there was nothing yet'}"


def describe(result: Result) -> str:
    """The state and the text of an answer, in words."""
    return f"{plain_state(result.state)} {result.text!r}"


async def _read(url: str) -> bytes:
    caller = SocketHttpClient(Egress(hosts=[target(url).host]))
    try:
        reply = await caller.open(HttpRequest("GET", url))
        return await reply.read(_KEYS_LIMIT)
    finally:
        await caller.close()
