"""Row 67: who changed a task, when, for which tenant and why, told by the log alone.

The reader here knows the kinds of events and nothing else of the product; a kind without a rule fails.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from tests.conformance.wire.routes import Ask, Probe, ask, rpc
from tests.conftest import Shelf
from trunkline import Agent, Turn
from trunkline.log import events as ev
from trunkline.store.base import Store
from trunkline.store.records import START, TailRecord
from trunkline.wire.types import TERMINAL, TaskState

TENANT = "audited"
SECRET = "sixteen or more of them"


class Account(NamedTuple):
    """One change of one task."""

    task: str
    what: str
    who: str
    when: int
    tenant: str
    cause: str


class Auditor:
    """Reads the log of one task from its beginning."""

    def __init__(self) -> None:
        self.owner = self.node = self.canceled_by = self.last_said = ""

    def account(self, record: TailRecord) -> Account:
        """What an event tells."""
        event = record.recorded.event
        who, cause = self._judge(event)
        what = type(event).__name__
        if isinstance(event, ev.Status):
            what = event.state.name.lower()
        return Account(record.task_id, what, who, record.recorded.at, record.tenant, cause)

    def _judge(self, event: ev.AnyEvent) -> tuple[str, str]:
        match event:
            case ev.Submitted():
                self.owner, self.node = event.principal, event.node
                self.last_said = event.message.message_id
                return event.principal, f"message {event.message.message_id}"
            case ev.FollowUp():
                self.last_said = event.message.message_id
                return event.by or self.owner, f"message {event.message.message_id}"
            case ev.Claimed():
                before, self.node = self.node, event.node
                return event.node or before, f"taken from {before}" if event.node else "let go"
            case ev.ChildEnded() | ev.ChildAsked():
                return event.child, f"its end, {event.state.name.lower()}"
            case ev.Notified():
                return "the agent elsewhere", "told of it"
            case ev.CancelRequested():
                self.canceled_by = event.by
                return event.by, "asked to stop"
            case ev.PushSet():
                return event.by, f"config {event.target.id}"
            case ev.PushDeleted():
                # Without a name it was the target itself, and the cause is what it answered.
                return event.by or f"target {event.id}", event.cause or f"config {event.id}"
            case ev.Status():
                return self._judge_status(event)
            case ev.Replied():
                return self.node, f"answer to {self.last_said}"
            case (
                ev.Delta()
                | ev.Chunk()
                | ev.Stepped()
                | ev.FlowRows()
                | ev.AnswerRead()
                | ev.Parked()
                | ev.WaitBegun()
                | ev.Compacted()
            ):
                return self.node, "its run"
            case ev.Routed():
                return self.node, event.reason
            case ev.QuestionClosed():
                return self.node, "withdrawn" if event.withdrawn else "its deadline"
            case _:
                raise AssertionError(f"no rule for {event}")

    def _judge_status(self, event: ev.Status) -> tuple[str, str]:
        if event.state is TaskState.CANCELED and self.canceled_by:
            return self.canceled_by, "asked to stop"
        said = "".join(part.text or "" for part in event.message.parts) if event.message else ""
        if event.state in (TaskState.FAILED, TaskState.REJECTED):
            # Whoever reads the log must learn why without asking anybody.
            return self.node, said
        return self.node, said or f"message {self.last_said}"


def _agent() -> Agent:
    agent = Agent("Audited", description="Ends in every way", version="1.0.0")

    ran: set[str] = set()

    @agent.skill(id="act", on_crash="restart")
    async def act(turn: Turn) -> Any:
        """Do as told."""
        word = turn.text.split()[0]
        if word == "write":
            await turn.write("piece by piece")
        if word == "ask":
            await turn.ask("Which one?")
        if word == "auth":
            await turn.need_auth("A word, please")
        if word == "step":
            await turn.step("once", lambda: 1)
        if word == "hold" and turn.text not in ran:
            ran.add(turn.text)
            await asyncio.Event().wait()
        if word == "fail":
            turn.fail("It could not be done")
        if word == "raise":
            raise RuntimeError("broken on purpose")
        if word == "reject":
            turn.reject("Not with me")
        return turn.message("at once") if word == "reply" else turn.text

    return agent


def _open(store: str) -> Any:
    return _agent().asgi(
        store=store, secret_key=SECRET, dev=True, drain_limit=0.1, cancel_limit=0.2, log_level="error"
    )


def _say(text: str, **members: Any) -> Ask:
    said = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **members}
    waits = {"configuration": {"returnImmediately": text.startswith("hold")}}
    return rpc("SendMessage", Probe(message=said, query=waits))


async def _play(application: Any, key: tuple[bytes, bytes]) -> None:
    """Every operation that changes something, and every way in which a task ends."""

    async def send(text: str, **members: Any) -> str:
        result = json.loads((await ask(application, _say(text, **members), key)).body)["result"]
        return result.get("task", {}).get("id", "")

    async def call(method: str, probe: Probe) -> None:
        answer = await ask(application, rpc(method, probe), key)
        assert b'"result"' in answer.body, answer

    for word in ("echo", "write", "step", "fail", "raise", "reject", "reply"):
        await send(word)
    for word in ("ask", "auth"):
        await send(f"answer to {word}", taskId=await send(word))
    for word in ("ask again", "hold on"):
        await call("CancelTask", Probe(task=await send(word)))
    told = await send("ask for push")
    await call("CreateTaskPushNotificationConfig", Probe(task=told, config="c-1"))
    await call("DeleteTaskPushNotificationConfig", Probe(task=told, config="c-1"))
    await call("SendMessage", Probe(message={"messageId": "m-last", "role": "ROLE_USER", "taskId": told, "parts": [{"text": "done"}]}, config="c-2"))  # fmt: skip
    await send("hold through a restart")


async def _log(store: Store) -> list[TailRecord]:
    found: list[TailRecord] = []
    cursor = START
    while True:
        page, cursor = await store.log.tail(cursor)
        if not page:
            return found
        found += page


@pytest.mark.slow
def test_the_log_alone_tells_who_when_for_whom_and_why(shelf: Shelf, tmp_path: Path) -> None:
    url = shelf.store(f"sqlite:///{tmp_path}/tasks.db")

    async def play() -> tuple[list[TailRecord], set[str]]:
        application = _open(url)
        async with application.lifespan():
            made = await application.host.key_store.create("auditee", tenant=TENANT)
            await _play(application, (b"x-api-key", made.token.encode()))
            nodes = {application.host.runner.node}
        async with application.lifespan():
            nodes.add(application.host.runner.node)
            async with asyncio.timeout(60):
                while not _ended(records := await _log(application.host.store)):  # noqa: ASYNC110 - of another node
                    await asyncio.sleep(0.05)
        return records, nodes

    began = time.time() * 1000
    records, nodes = asyncio.run(play())
    auditors: dict[str, Auditor] = {}
    accounts = [auditors.setdefault(one.task_id, Auditor()).account(one) for one in records]
    for one in accounts:
        assert one.tenant == TENANT and one.cause, one
        assert one.who in {"auditee", *nodes}, one
        assert began - 1 <= one.when <= time.time() * 1000 + 1, one
    # Everything that can happen did, and was by whom it must be.
    kinds = {type(one.recorded.event) for one in records}
    # Compaction comes later, and nothing here writes piece by piece for long, waits or has children.
    rare = {
        ev.Routed,
        ev.Compacted,
        ev.Delta,
        ev.AnswerRead,
        ev.QuestionClosed,
        ev.Parked,
        ev.WaitBegun,
        ev.ChildEnded,
        ev.ChildAsked,
        ev.FlowRows,
        ev.Notified,
    }
    assert kinds >= set(get_args(ev.Known)) - rare, kinds
    ends = {one.what for one in accounts}
    assert {state.name.lower() for state in TERMINAL} <= ends
    by = {one.what: one.who for one in accounts}
    assert by["Submitted"] == by["CancelRequested"] == by["canceled"] == by["PushSet"] == "auditee"
    assert by["completed"] in nodes and by["PushDeleted"] == "auditee"


def _ended(records: list[TailRecord]) -> bool:
    """Whether the run that was interrupted has an end too."""
    last = {one.task_id: one.recorded.event for one in records}
    held = next(
        one.task_id
        for one in records
        if isinstance(one.recorded.event, ev.Submitted)
        and one.recorded.event.message.message_id == "m-hold through a restart"
    )
    event = last[held]
    return isinstance(event, ev.Status) and event.state in TERMINAL


def test_every_kind_of_event_has_a_rule() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [kind.__name__ for kind in get_args(ev.Known) if f"ev.{kind.__name__}()" not in text] == []
