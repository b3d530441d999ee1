"""Row 62: how long a refusal takes tells nothing of what was almost right.

Whole requests are timed, as a caller would: two kinds of wrong word, in an order of chance, each sample with
a word of its own.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import sqrt
from statistics import fmean, median, variance
from time import perf_counter_ns
from typing import Any, NamedTuple

from tests.chaos.rows import SQLITE, Result, Run, row
from trunkline import Agent
from trunkline.net import webhook_signature
from trunkline.server import admission
from trunkline.webhook import Notification, Receiver

LIMIT = 4.5
SAMPLES = 50_000
# Where a process happens to have its objects can look like a leak; a leak is there in every round. All are
# played and told, and the one in the middle counts.
ROUNDS = 3
BATCH = 1_000
# The slowest are interrupts, not comparisons.
KEPT = 0.9
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
FIXED = "fixed-key-of-some-length-with-letters"
TOKEN = "token-of-some-length-with-letters"
SECRET = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
BODY = b'{"kind":"status-update","taskId":"%b","contextId":"c","status":{"state":"completed"},"final":true}'
Scope = dict[str, Any]
# From chance to a request that is refused.
Wrong = Callable[[random.Random], tuple[Scope, bytes]]
Asgi = Callable[..., Awaitable[None]]


class Pair(NamedTuple):
    """Two kinds of wrong requests to one application."""

    application: Asgi
    near: Wrong
    far: Wrong


@row(62, "the time that a wrong key, token or signature takes", "|t| < 4.5 at 50 000 samples each, the middle one of three rounds", SQLITE, name="timing")  # fmt: skip
async def row_62(run: Run) -> Result:
    """Each kind of wrong word against another one that is nearer to the right one."""
    samples = run.count(SAMPLES, 2_000)
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        async with _server() as pairs:
            for name, pair in {**pairs, **_receivers()}.items():
                t = _welch(*await _times(pair, samples, run.random))
                found.setdefault(name, []).append(t)
                run.say(f"{name}: t = {t:.2f}")
    told = ", ".join(f"{name} {' '.join(f'{t:+.2f}' for t in each)}" for name, each in found.items())
    return Result(all(abs(median(each)) < LIMIT for each in found.values()), f"{samples} samples; t: {told}")


def _spoiled(text: str, place: int, chance: random.Random) -> str:
    """The text with another letter there."""
    place %= len(text)
    letter = chance.choice(LETTERS.replace(text[place], ""))
    return text[:place] + letter + text[place + 1 :]


@asynccontextmanager
async def _server() -> AsyncGenerator[dict[str, Pair]]:
    agent = Agent("Timed", version="1.0.0")
    agent.skill(id="echo")(_echo)
    # What is to be timed is how a key is looked at: nobody is refused before that here.
    admission.PLACE_BURST = admission.ALL_BURST = 10**12
    application = agent.asgi(store="memory:", keys=[FIXED], log_level="error")
    async with application.lifespan():
        made = await application.host.key_store.create("somebody")
        token, start = made.token, len("tl_") + len(made.key.id) + 1
        operator = application.host.admin.token.reveal()

        def key(word: Callable[[random.Random], str], path: str = "/tasks") -> Wrong:
            return lambda chance: (_scope("GET", path, {"x-api-key": word(chance)}), b"")

        def at(text: str, place: int, path: str = "/tasks") -> Wrong:
            return key(lambda chance: _spoiled(text, place, chance), path)

        def unknown(chance: random.Random) -> str:
            stranger = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz234567", k=len(made.key.id)))
            return _spoiled(f"tl_{stranger}_{token[start:]}", -1, chance)

        yield {
            "fixed key": Pair(application, at(FIXED, -1), at(FIXED, 0)),
            "stored key, its secret": Pair(application, at(token, -1), at(token, start)),
            "stored key, its id": Pair(application, at(token, -1), key(unknown)),
            "operator's token": Pair(
                application, at(operator, -1, "/admin/keys"), at(operator, 0, "/admin/keys")
            ),
        }


def _echo(text: str) -> str:
    return text


def _receivers() -> dict[str, Pair]:
    plain = Receiver(tokens=[TOKEN]).asgi(_heard)
    of_tasks = Receiver(tokens={"known": TOKEN}.get).asgi(_heard)
    signed = Receiver(keys=[SECRET], clock=lambda: 1_000_000).asgi(_heard)
    right = webhook_signature.sign(webhook_signature.signing_key(SECRET), "id", 1_000, BODY % b"known")

    def token(place: int, task: bytes = b"known") -> Wrong:
        return lambda chance: _posted({"authorization": f"Bearer {_spoiled(TOKEN, place, chance)}"}, task)

    def signature(place: int) -> Wrong:
        def made(chance: random.Random) -> tuple[Scope, bytes]:
            word = "v1," + _spoiled(right.removeprefix("v1,"), place, chance)
            return _posted(
                {
                    webhook_signature.ID: "id",
                    webhook_signature.TIMESTAMP: "1000",
                    webhook_signature.SIGNATURE: word,
                },
                b"known",
            )

        return made

    return {
        "webhook token": Pair(plain, token(-1), token(0)),
        "token of a task": Pair(of_tasks, token(-1), token(-1, b"nobod")),
        "webhook signature": Pair(signed, signature(-2), signature(0)),
    }


async def _heard(notification: Notification) -> None:
    raise AssertionError(f"a wrong one was taken for right: {notification}")


def _posted(headers: dict[str, str], task: bytes) -> tuple[Scope, bytes]:
    body = BODY % task
    return _scope("POST", "/hook", {"content-type": "application/json", **headers}), body


def _scope(verb: str, path: str, headers: dict[str, str]) -> Scope:
    lines = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
    return {
        "type": "http", "method": verb, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": lines, "client": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip


async def _times(pair: Pair, samples: int, chance: random.Random) -> tuple[list[int], list[int]]:
    """Both in an order of chance, so that whatever else the machine does falls on both alike."""
    taken: tuple[list[int], list[int]] = ([], [])
    kinds = (pair.near, pair.far)
    for turn in range(-1, -(-samples // BATCH)):
        order = [0, 1] * BATCH
        chance.shuffle(order)
        # Made beforehand: how a word was made must not be timed with it.
        requests = [(which, kinds[which](chance)) for which in order]
        gc.collect()
        gc.disable()
        try:
            for which, (scope, body) in requests:
                nanoseconds = await _timed(pair.application, scope, body)
                if turn >= 0:
                    taken[which].append(nanoseconds)
        finally:
            gc.enable()
        await asyncio.sleep(0)
    return taken


async def _timed(application: Asgi, scope: Scope, body: bytes) -> int:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if "status" in message:
            statuses.append(message["status"])

    began = perf_counter_ns()
    await application(scope, receive, send)
    taken = perf_counter_ns() - began
    assert statuses == [401], statuses
    return taken


def _welch(one: list[int], other: list[int]) -> float:
    """Welch's t of the two, without what is slow for reasons of its own."""
    limit = sorted(one + other)[int(len(one + other) * KEPT)]
    kept = [[value for value in each if value <= limit] for each in (one, other)]
    spread = sqrt(sum(variance(each) / len(each) for each in kept))
    return (fmean(kept[0]) - fmean(kept[1])) / spread
