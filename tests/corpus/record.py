"""Records the corpus of this version: `python -m tests.corpus.record` drives the demo agent and keeps its logs.

`VERSION.jsonl` is what `trunkline store export` writes; `VERSION.heads.jsonl` is what each task folded to
when it was recorded. A recording is never changed: the logs of an old version must give the same for ever.
What a version learned to write after that is in a part of its own, as `VERSION-push.jsonl`.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.chaos.history import Logged, collect
from tests.chaos.inside import Inside, inside
from tests.flow.documents import DELEGATE, flow_document
from trunkline import Agent, Turn, Unanswered
from trunkline.demo import agent
from trunkline.flow.local import LocalFlows
from trunkline.log.delegation import Notify
from trunkline.log.events import Candidate, ChildAsked, ChildEnded, QuestionClosed, Routed
from trunkline.log.fold import fold
from trunkline.log.head import Head
from trunkline.store.backup import export
from trunkline.store.base import Store
from trunkline.wire.types import TERMINAL, Message, Part, Role, SendRequest, Task, TaskState, TaskStatus
from trunkline.wire.writer import WRITERS, Dialect

HERE = Path(__file__).parent
COMMANDS = [
    "echo hello", "chunks 5", "count 7 1", "fail for a reason", "raise", "reject", "toolerror", "file", "data",
    "usage", "effect", "confidence", "échø ☃ \u2028 𝄞", "sleep 1", "count 80 1",
]  # fmt: skip

# Nobody listens there, and nobody needs to: what is recorded is who was to be told.
HOOK = "http://127.0.0.1:9/hook"
SET_PUSH = "CreateTaskPushNotificationConfig"


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


async def _record(name: str, store: str) -> int:
    async with inside(agent, store, coalesce_milliseconds=0) as app:
        await _drive(app)
        asked = await app.send("ask which one?")
    # Half of them as compaction leaves them, and one that was taken over.
    async with inside(agent, store, coalesce_milliseconds=0) as app:
        await app.store.maintenance.compact(await app.store.clock.now() + 1)
        await app.send("this one", taskId=asked["id"])
        await _drive(app)
    async with inside(steps, store) as app:
        await app.send("go")
        said = {"messageId": "hello", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        await app.ask("SendMessage", {"message": {**said, "metadata": {"skillHint": "reply"}}})
        return await _keep(name, app.store)


async def _record_push(name: str, store: str) -> int:
    """Targets set with the message, while a task waits, and after its end; replaced and deleted."""
    async with inside(agent, store, coalesce_milliseconds=0, dev=True, secret_key="of the recording") as app:
        inline = {"id": "inline", "url": HOOK, "token": "a token"}
        said = {"messageId": "push", "role": "ROLE_USER", "parts": [{"text": "count 3 1"}]}
        params = {"message": said, "configuration": {"taskPushNotificationConfig": inline}}
        counted = (await app.ask("SendMessage", params))["task"]
        asked = await app.send("ask which one?")
        basic = {"authentication": {"scheme": "Basic", "credentials": "bWU6aXQ="}}
        for task_id in (counted["id"], asked["id"]):
            for more in ({}, basic):
                await app.ask(SET_PUSH, {"taskId": task_id, "id": "later", "url": HOOK, **more})
        await app.send("this one", taskId=asked["id"])
        for task_id, config_id in ((counted["id"], "inline"), (asked["id"], "later")):
            await app.ask("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})
        return await _keep(name, app.store)


waiting = Agent("waiting", on_crash="resume")


@waiting.skill
async def wait(turn: Turn) -> str:
    """Sleeps, or asks."""
    if turn.text == "sleep":
        await turn.sleep(1)
        return "awake"
    return await turn.ask("Well?")


async def _record_waiting(name: str, store: str) -> int:
    """Parked by a moment and by a question, woken by time, an answer, a message, a child's end and a cancel."""
    async with inside(waiting, store, coalesce_milliseconds=0) as app:
        runner = app.runner
        runner._node.limits = replace(runner._node.limits, park_after_s=0.02)
        await app.send("sleep", wait=False)
        asked, canceled, _ = [await app.send("ask") for _ in range(3)]
        await _until(app, lambda logs: sum(bool(log.head and log.head.wake_at) for log in logs) == 4)
        message = Message(message_id="child", role=Role.USER, parts=(Part(text="sleep"),))
        origin, parent = runner.origin, asked["id"]
        _, opened = runner.submit("default", "anonymous", SendRequest(message), agent=origin, parent=parent)
        await opened
        await _until(app, lambda logs: _is_told(logs, ChildEnded))
        await app.send("yes", taskId=parent)
        await app.ask("CancelTask", {"id": canceled["id"]})
        # One question stays open, parked.
        await _until(
            app, lambda logs: sum(not (log.head and log.head.state in TERMINAL) for log in logs) == 1
        )
        return await _keep(name, app.store)


asking = Agent("asking")


@asking.skill
async def approve(turn: Turn) -> str:
    """Asks twice: what nobody answers in time, and then for one of two words."""
    try:
        return await turn.ask("How much?", schema={"type": "integer"}, deadline=0.02)
    except Unanswered:
        return await turn.ask("Shall I?", choices=["yes", "no"], deadline=3600)


async def _record_questions(name: str, store: str) -> int:
    """Questions with a deadline and a wanted answer: one overdue, one answered, one open."""
    async with inside(asking, store, coalesce_milliseconds=0) as app:
        answered, _ = [await app.send("go", wait=False) for _ in range(2)]
        await _until(app, lambda logs: all(_is_second(log) for log in logs))
        await app.send("yes", taskId=answered["id"])
        return await _keep(name, app.store)


def _is_second(log: Logged) -> bool:
    closed = any(isinstance(one.event, QuestionClosed) for one in log.records)
    return closed and log.head is not None and log.head.state is TaskState.INPUT_REQUIRED


async def _record_children(name: str, store: str) -> int:
    """A child that asks while its parent waits, and ends once it has its answer."""
    async with inside(waiting, store, coalesce_milliseconds=0) as app:
        parent = (await app.send("ask"))["id"]
        message = Message(message_id="child", role=Role.USER, parts=(Part(text="ask"),))
        runner = app.runner
        child, opened = runner.submit(
            "default", "anonymous", SendRequest(message), agent=runner.origin, parent=parent
        )
        await opened
        await _until(app, lambda logs: _is_told(logs, ChildAsked))
        await app.send("no", taskId=child.state.task_id)
        await _until(app, lambda logs: _is_told(logs, ChildEnded))
        await app.send("yes", taskId=parent)
        return await _keep(name, app.store)


async def _record_routed(name: str, store: str) -> int:
    """A task that was routed to an agent, and one that nobody could be given."""
    others = (
        Candidate("steps", 1.9, {"weight": 0.9, "success": 1.9}),
        Candidate("other", excluded="it is disabled"),
    )
    decisions = [
        Routed("steps does it: drawn by weight.", "steps", skill="count", candidates=others),
        Routed("There is no agent 'typo' here.", refusal="unknown_target", skill="count", targets=("typo",)),
    ]
    async with inside(steps, store, coalesce_milliseconds=0) as app:
        for place, routed in enumerate(decisions):
            message = Message(message_id=f"m{place}", role=Role.USER, parts=(Part(text="go"),))
            agent = routed.winner or "hub"
            request = SendRequest(message)
            _, opened = app.runner.submit("default", "anonymous", request, agent=agent, routed=routed)
            await opened
        await _until(app, lambda logs: all(log.head and log.head.state in TERMINAL for log in logs))
        return await _keep(name, app.store)


async def _record_notices(name: str, store: str) -> int:
    """Two tasks that hear of work elsewhere: that it goes on, and its end with what came of it."""
    async with inside(waiting, store, coalesce_milliseconds=0) as app:
        told = [(await app.send("ask"))["id"] for _ in range(2)]
        result = Task("remote", "c", TaskStatus(TaskState.COMPLETED), (), (), None)
        for task_id in told:
            feed = await app.runner.tasks.load("default", task_id)
            assert feed is not None
            await app.runner.notify(feed, Notify(TaskState.WORKING))
            await app.runner.notify(feed, Notify())
            await app.runner.notify(feed, Notify(TaskState.COMPLETED, result))
        await app.send("yes", taskId=told[0])
        return await _keep(name, app.store)


async def _record_flow(name: str, store: str) -> int:
    """Runs of workflows: one that delegates and ends, one that is signalled, one that is cancelled."""
    async with LocalFlows(store) as flows:
        await (await flows.start(flow_document(DELEGATE), {"task": "go"})).wait()
        waiting = flow_document({"id": "ask", "type": "wait", "config": {"kind": "signal", "signal": "go"}})
        for finish in (True, False):
            run = await flows.start(waiting, {})
            await run.wait()
            await (run.signal("go", {"by": "somebody"}) if finish else run.cancel("not needed"))
        return await _keep(name, flows.store)


async def _record_crashes(name: str, store: str) -> int:
    """Two tasks whose executors are lost while they wait: resumed, they say that they only wait, and are parked."""
    async with inside(waiting, store, coalesce_milliseconds=0) as app:
        runner = app.runner
        runner._node.limits = replace(runner._node.limits, park_after_s=0.2)
        for text in ("sleep", "sleep"):
            await app.send(text, wait=False)
        await _until(app, lambda logs: sum(len(log.records) > 2 for log in logs) == 2)
        for owner in list(runner._owners):
            owner.abandon()
        for _ in range(2):
            await runner._takeover.own_round()
        await _until(app, lambda logs: all(log.head and log.head.state in TERMINAL for log in logs))
        return await _keep(name, app.store)


def _is_told(logs: list[Logged], kind: type[ChildAsked | ChildEnded]) -> bool:
    return any(isinstance(one.event, kind) for log in logs for one in log.records)


async def _until(app: Inside, reached: Callable[[list[Logged]], bool]) -> None:
    while not reached(await app.logs()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _keep(name: str, store: Store) -> int:
    pages = b"".join([page async for page in export(store, importlib.metadata.version("trunkline"))])
    logs = await collect(store)
    (HERE / f"{name}.jsonl").write_bytes(pages)
    lines = [msgspec.json.encode(kept(log)) for log in sorted(logs, key=lambda log: log.task_id)]
    (HERE / f"{name}.heads.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return len(logs)


def main() -> None:
    """Record what was not recorded before."""
    version = importlib.metadata.version("trunkline")
    parts = {
        version: _record,
        f"{version}-push": _record_push,
        f"{version}-waiting": _record_waiting,
        f"{version}-questions": _record_questions,
        f"{version}-children": _record_children,
        f"{version}-routed": _record_routed,
        f"{version}-notices": _record_notices,
        f"{version}-flow": _record_flow,
        f"{version}-crashes": _record_crashes,
    }
    left = {name: record for name, record in parts.items() if not (HERE / f"{name}.jsonl").exists()}
    if not left:
        raise SystemExit(f"{version} is recorded already, and a recording is never changed")
    for name, record in left.items():
        with tempfile.TemporaryDirectory() as folder:
            count = asyncio.run(record(name, f"sqlite:///{folder}/tasks.db"))
        print(f"{count} tasks of {name}")


if __name__ == "__main__":
    main()
