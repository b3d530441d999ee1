"""What a stream of chunks tells of artifacts that are appended to, replaced and compacted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from trunkline.fleet.openai.stream import CompletionStream
from trunkline.http.asgi import Scope
from trunkline.log.events import AnyEvent, Chunk, Compacted, Delta, Status, Submitted
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.store.url import store_from_url
from trunkline.wire.types import Artifact, Message, Part, Role, TaskState

ASKED = Message("m", "c", "t", Role.USER, (Part(text="x"),))


def told(*events: AnyEvent) -> list[Any]:
    """The data of a stream of a task to which all this has happened."""
    feed = Feed("north", State("t"))
    feed.take(0, [Submitted(ASKED, "c", "alice", "n"), *events], 1000, 0)
    sent: list[bytes] = []

    async def send(message: Scope) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Scope:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        stream = CompletionStream(
            store_from_url("memory:").log, feed, 0, 15.0, model="desk", with_usage=False
        )
        async with asyncio.timeout(30):
            await stream.serve(receive, send)

    asyncio.run(main())
    frames = [one.removeprefix("data: ") for one in b"".join(sent).decode().split("\n\n")]
    return [json.loads(one) for one in frames if one.startswith("{")]


def texts(*events: AnyEvent) -> list[str]:
    """The texts of that stream."""
    chunks = told(*events, Status(TaskState.COMPLETED))
    return [text for one in chunks if (text := one["choices"][0]["delta"].get("content"))]


def artifact(name: str, text: str) -> Artifact:
    return Artifact(artifact_id=name, parts=(Part(text=text),))


def test_a_text_that_goes_on_is_told_once() -> None:
    grown = [Delta("a", "one "), Delta("a", "two"), Chunk(artifact("a", "one two three"))]
    assert texts(*grown) == ["one ", "two", " three"]
    assert texts(Chunk(artifact("a", "one")), Chunk(artifact("a", " two"), append=True)) == ["one", " two"]
    assert texts(Compacted(1, (artifact("a", "one "),), ("a",)), Delta("a", "two")) == ["one ", "two"]


def test_another_text_stands_on_a_line_of_its_own() -> None:
    assert texts(Chunk(artifact("a", "one")), Chunk(artifact("b", "two"))) == ["one", "\ntwo"]
    assert texts(Delta("a", "one"), Delta("a", "two", append=False)) == ["one", "\ntwo"]


def test_a_task_that_ends_badly_says_so_in_the_stream() -> None:
    why = Message("w", "c", "t", Role.AGENT, (Part(text="it broke"),))
    first, last = told(Delta("a", "one"), Status(TaskState.FAILED, why))
    assert first["choices"][0]["delta"]["content"] == "one"
    assert (last["error"]["message"], last["metadata"]["taskState"]) == ("it broke", "failed")
