"""Who comes back to a task that was compacted gets its artifacts anew, then its end; in every dialect."""

from __future__ import annotations

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
from trunkline.wire.types import TaskQuery
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
