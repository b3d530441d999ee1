"""Who comes back to a task that was compacted gets its artifacts anew, then its end; in every dialect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.run.desk import run
from tests.server.test_streams import Line
from trunkline import Agent, Turn
from trunkline.auth.principal import CALLER, Principal
from trunkline.clock import now_ms
from trunkline.host import Application
from trunkline.log.events import Compacted
from trunkline.server.caller import Caller
from trunkline.server.streams import StreamEncoding
from trunkline.wire import sse
from trunkline.wire.types import Message, Part, Role, TaskQuery
from trunkline.wire.writer import Dialect

agent = Agent("writer", coalesce_milliseconds=0)


@agent.skill
async def write(turn: Turn) -> None:
    """Write many pieces of two artifacts."""
    for place in range(100):
        await turn.write(f"word {place}, ")
        await turn.artifact(text=f"row {place}", artifact_id="table", append=place > 0)


def _frames(line: Line) -> list[sse.SseEvent]:
    return list(sse.SseParser().feed(b"".join(body for body, _ in line.sent)))


@pytest.mark.parametrize("dialect", [Dialect.V1, Dialect.V03], ids=str)
@pytest.mark.parametrize("after", [0, 2, 57])
def test_a_resume_into_a_range_gets_what_is_whole(dialect: Dialect, after: int) -> None:
    async def case() -> None:
        client = agent.test_client()
        application = client._inside._app
        assert isinstance(application, Application)
        async with client:
            task = await client.send("go")
            store = application.host.store
            assert await store.maintenance.compact(now_ms() + 1000) == 1
            application.host.runner.tasks._feeds.clear()
            application.host.router.origin.operations._cache._entries.clear()
            stored = await store.log.read("default", task["id"], after)
            assert 1 <= sum(isinstance(one.event, Compacted) for one in stored) <= 3
            assert (await client.get(task["id"]))["artifacts"] == task["artifacts"]

            caller = Caller(Principal("default", "anonymous", CALLER), dialect, last_event_id=str(after))
            subscription = await application.host.router.origin.operations.operations.subscribe(
                caller, TaskQuery(task["id"])
            )
            line = Line()
            line.writable.set()
            await application.host.streams.serve(line, subscription, StreamEncoding(dialect))  # type: ignore[arg-type]
            frames = _frames(line)
            ids = [int(frame.id) for frame in frames if frame.id]
            assert ids == sorted(ids)
            assert ids[-1] == stored[-1].seq
            written, table, end = [frame.data for frame in frames[-3:]]
            for whole, last in ((written, "word 99"), (table, "row 99")):
                assert last in whole
                assert '"append":true' not in whole
            assert "completed" in end.lower()

    run(case())


CLOSING = Agent("closing", coalesce_milliseconds=0)


@CLOSING.skill
async def say(turn: Turn, text: str) -> None:
    """Write a text in two pieces."""
    await turn.write(text[:2])
    await turn.write(text[2:])


@pytest.mark.parametrize(
    ("settings", "limit", "last"),
    [
        ({}, 5, ("hello", False)),
        ({}, 4, ("", True)),
        ({"stream_close": "last"}, 5, ("", True)),
    ],
    ids=["whole", "too long", "as set"],
)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_written_answer_closes_with_the_whole_of_it(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    limit: int,
    last: tuple[str, bool],
    version: str,
) -> None:
    monkeypatch.setattr("trunkline.server.site.WHOLE_LIMIT", limit)

    async def case() -> None:
        message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}
        method = "SendStreamingMessage" if version == "1.0" else "message/stream"
        async with CLOSING.test_client(**settings) as client:
            frames = [one async for one in client.frames(method, {"message": message})]
        told = [one.get("artifactUpdate", one) for one in frames]
        updates = [one for one in told if "artifact" in one]
        assert [(one["artifact"]["parts"][0]["text"], one.get("append", False)) for one in updates] == [
            ("he", False),
            ("llo", True),
            last,
        ]
        assert updates[-1]["lastChunk"]

    run(case())


ASKING = Agent("asking", coalesce_milliseconds=0)


@ASKING.skill
async def inquire(turn: Turn, text: str) -> Message | None:
    """Write and ask, or reply with a message."""
    if text == "reply":
        return Message("r", role=Role.AGENT, parts=(Part(text="hi"),))
    await turn.write("one ")
    await turn.write("two")
    await turn.ask("Which?")
    return None


def flat(text: str) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "user", "parts": [{"text": text}]}}


def test_a_stream_of_a_flat_task_has_only_updates() -> None:
    async def case() -> None:
        async with ASKING.test_client() as client:
            frames = [one async for one in client.frames("message/stream", flat("ask"))]
            assert [one["kind"] for one in frames] == [
                *["status-update"] * 2, *["artifact-update"] * 2, "status-update",
            ]  # fmt: skip
            assert {one["taskId"] for one in frames} == {frames[0]["taskId"]}
            pieces = [one["artifact"]["parts"] for one in frames if "artifact" in one]
            assert pieces == [[{"text": "one "}], [{"text": "two"}]]
            status = frames[-1]["status"]
            assert (status["state"], status["message"]["parts"]) == ("input_required", [{"text": "Which?"}])
            # A client that comes later gets what there is by now, also as updates.
            query = {"id": frames[0]["taskId"]}
            again = client.frames("tasks/subscribe", query)
            later = [await anext(again) for _ in range(2)]
            assert later[0]["artifact"]["parts"] == [{"text": "one two"}]
            assert later[1]["status"]["state"] == "input_required"
            await again.aclose()
            await client.call("tasks/cancel", query)
            ended = [one async for one in client.frames("tasks/subscribe", query)]
            assert [one["kind"] for one in ended] == ["artifact-update", "status-update"]
            assert ended[-1]["status"]["state"] == "canceled"
            assert (await client.get(frames[0]["taskId"]))["status"]["state"] == "TASK_STATE_CANCELED"

    run(case())


def test_a_direct_reply_reaches_a_flat_caller_as_a_task() -> None:
    async def case() -> None:
        async with ASKING.test_client() as client:
            task = await client.call("message/send", flat("reply"))
            assert (task["kind"], task["status"]["message"]["parts"]) == ("task", [{"text": "hi"}])
            frames = [one async for one in client.frames("message/stream", flat("reply"))]
            assert frames[-1]["status"]["state"] == "completed"
            assert frames[-1]["status"]["message"]["parts"] == [{"text": "hi"}]

    run(case())


@pytest.mark.parametrize(
    ("v03_parts", "kinds"),
    [("auto", (None, "text")), ("kind", ("text", "text")), ("flat", (None, None))],
)
def test_a_setting_overrides_the_detected_form(v03_parts: str, kinds: tuple[str | None, ...]) -> None:
    kinded = {"text": "reply", "kind": "text"}

    async def case() -> None:
        found: list[str | None] = []
        async with ASKING.test_client(v03_parts=v03_parts) as client:
            for part in ({"text": "ask"}, {**kinded, "text": "ask"}):
                body = {"message": {"messageId": "m", "role": "user", "parts": [part]}}
                task = await client.call("message/send", body)
                (shown,) = (await client.call("tasks/get", {"id": task["id"]}))["history"]
                found.append(shown["parts"][0].get("kind"))
                plain = await client.call("SendMessage", flat("ask"))
                assert plain["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert tuple(found) == kinds

    run(case())
