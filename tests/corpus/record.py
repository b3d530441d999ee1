"""Records the corpus of this version: `python -m tests.corpus.record` drives the demo agent and keeps its logs.

`VERSION.jsonl` is what `trunkline store export` writes; `VERSION.heads.jsonl` is what each task folded to
when it was recorded. A recording is never changed: the logs of an old version must give the same for ever.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.history import Logged
from tests.chaos.inside import Inside, inside
from trunkline import Agent, Turn
from trunkline.demo import agent
from trunkline.log.fold import Head, fold
from trunkline.store.backup import export
from trunkline.wire.types import Message, Task
from trunkline.wire.writer import WRITERS, Dialect

HERE = Path(__file__).parent
COMMANDS = [
    "echo hello", "chunks 5", "count 7 1", "fail for a reason", "raise", "reject", "toolerror", "file", "data",
    "usage", "effect", "confidence", "échø ☃ \u2028 𝄞", "sleep 1", "count 80 1",
]  # fmt: skip


class Kept(msgspec.Struct, frozen=True):
    """What a task was when it was recorded: its listed fields and its 1.0 JSON."""

    head: Head
    task: msgspec.Raw


def kept(log: Logged) -> Kept:
    """What a log folds to now."""
    assert log.head is not None
    return Kept(log.head, msgspec.Raw(written(fold(log.task_id, log.records).task())))


def written(task: Task) -> bytes:
    """A task as 1.0 shows it."""
    return WRITERS[Dialect.V1].task(task)


steps = Agent("steps")


@steps.skill
async def count(turn: Turn) -> None:
    """Two steps, whose results are recorded."""
    for name in ("first", "second"):
        await turn.write(f"{await turn.step(name, _double, len(name))} ")


@steps.skill
async def reply(turn: Turn) -> Message:
    """A direct answer."""
    return turn.message("hello to you")


async def _double(number: int) -> int:
    return number * 2


async def _drive(app: Inside) -> None:
    for text in COMMANDS:
        await app.send(text)
    asked = await app.send("auth a key")
    await app.send("this one", taskId=asked["id"])
    await app.send("ask and nobody answers")
    held = await app.send("hold 3", wait=False)
    await app.ask("CancelTask", {"id": held["id"]})
    await app.send("echo in a context", contextId="a-context", metadata={"trace": {"deep": [1, 2.5, None]}})
    parts: list[Any] = [
        {"text": "a"},
        {"data": {"b": 1}},
        {"url": "https://example.org/c", "mediaType": "text/plain"},
    ]
    await app.send("", parts=parts, contextId="a-context")


async def _record(version: str, store: str) -> int:
    async with inside(agent, store, coalesce_milliseconds=0) as app:
        await _drive(app)
        asked = await app.send("ask which one?")
    # Half of them as compaction leaves them, and one that was taken over.
    async with inside(agent, store, coalesce_milliseconds=0) as app:
        await app.store.compact(await app.store.now() + 1)
        await app.send("this one", taskId=asked["id"])
        await _drive(app)
    async with inside(steps, store) as app:
        await app.send("go")
        said = {"messageId": "hello", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        await app.ask("SendMessage", {"message": {**said, "metadata": {"skillHint": "reply"}}})
        pages = b"".join([page async for page in export(app.store, version)])
        logs = await app.logs()
    (HERE / f"{version}.jsonl").write_bytes(pages)
    lines = [msgspec.json.encode(kept(log)) for log in sorted(logs, key=lambda log: log.task_id)]
    (HERE / f"{version}.heads.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return len(logs)


def main() -> None:
    """Record, unless it was done before."""
    version = importlib.metadata.version("trunkline")
    if (HERE / f"{version}.jsonl").exists():
        raise SystemExit(f"{version} is recorded already, and a recording is never changed")
    with tempfile.TemporaryDirectory() as folder:
        count = asyncio.run(_record(version, f"sqlite:///{folder}/tasks.db"))
    print(f"{count} tasks of {version}")


if __name__ == "__main__":
    main()
