"""The dialects of agents in use, each by what tells it from the specification."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from tests.mock.talk import Talk, replying, said, talking
from trunkline.mock.quirks import PRESETS, Quirks
from trunkline.mock.scenario import Persona, Reply, ScriptedFile
from trunkline.wire.answers import read_notice


def speaking(dialect: str | Quirks, reply: Reply, what: Callable[[Talk], Awaitable[None]]) -> None:
    async def main() -> None:
        async with talking(replying(reply, dialect=dialect, agent=Persona(push=True))) as talk:
            await what(talk)

    asyncio.run(main())


def test_promptkit() -> None:
    async def what(talk: Talk) -> None:
        assert (await talk.card()).status == 404
        card = (await talk.card("/.well-known/agent.json")).json
        assert "url" not in card
        wait = {"blocking": True}
        asked = (await talk.rpc("message/send", said(configuration=wait))).result
        assert asked["status"]["state"] == "input_required"
        assert b'"kind"' not in msgspec.json.encode(asked)
        assert asked["artifacts"][-1]["parts"] == [
            {"raw": "aGk=", "mediaType": "text/plain", "filename": "a"}
        ]
        streamed = await talk.rpc("message/stream", said())
        assert [event.id for event in streamed.events] == [""] * 5
        chunks = [frame["artifact"] for frame in streamed.frames if "artifact" in frame]
        assert [chunk["artifactId"] for chunk in chunks[:2]] == ["artifact-0", "artifact-1"]
        assert (await talk.rpc("SendMessage", said())).error["code"] == -32601
        ended = (await talk.rpc("tasks/cancel", {"id": asked["id"]})).result
        assert (await talk.rpc("tasks/cancel", {"id": ended["id"]})).error["code"] == -32001

    file = ScriptedFile(name="a", media_type="text/plain", text="hi")
    speaking("promptkit", Reply(stream=("x", "y"), file=file, ask="which?"), what)


def test_arbiter() -> None:
    async def what(talk: Talk) -> None:
        assert (await talk.card("/.well-known/agent.json")).status == 404
        streamed = await talk.rpc("message/stream", said(), a2a_version="1.0")
        assert streamed.body.startswith(b"event: message\ndata: ")
        assert [frame["kind"] for frame in streamed.frames][:2] == ["status-update", "artifact-update"]
        assert "timestamp" not in streamed.frames[0]["status"]
        refused = await talk.rpc("message/send", said(), a2a_version="2.0")
        assert refused.error["code"] == -32007

    speaking("arbiter", Reply(stream=("x", "y")), what)


def test_quinn() -> None:
    async def what(talk: Talk) -> None:
        card = (await talk.card()).json
        assert "supportedInterfaces" not in card
        sent = (await talk.rpc("message/send", said())).result
        assert (sent["kind"], sent["status"]["state"]) == ("task", "submitted")
        frames = (await talk.rpc("message/sendStream", said())).frames
        whole = [frame for frame in frames if frame["kind"] == "artifact-update"][-1]
        assert (whole["append"], whole["lastChunk"]) == (False, True)
        assert whole["artifact"]["parts"] == [{"kind": "text", "text": "xy"}]

    speaking("quinn", Reply(stream=("x", "y")), what)


def test_fasta2a() -> None:
    async def what(talk: Talk) -> None:
        assert (await talk.card()).json["url"] == "http://localhost/"
        sent = (await talk.rpc("message/send", said(), path="/")).result
        assert sent["status"]["state"] == "submitted"
        got = (await talk.rpc("tasks/get", {"id": sent["id"]}, path="/")).result
        assert got["status"]["state"] == "completed"
        assert (await talk.rpc("tasks/resubscribe", {"id": sent["id"]}, path="/")).error["code"] == -32601

    speaking("fasta2a", Reply(text="x"), what)


def test_frames_without_an_envelope() -> None:
    async def what(talk: Talk) -> None:
        events = (await talk.stream()).events
        assert all("jsonrpc" not in event.data for event in events)

    speaking(Quirks(envelope=False), Reply(text="x"), what)


def test_our_reader_understands_them_all() -> None:
    async def what(talk: Talk) -> None:
        manner = talk.mock.scenario.dialect
        path = PRESETS[str(manner)].path
        streamed = await talk.rpc("message/stream", said(), path=path)
        notices = [read_notice(msgspec.json.encode(frame)) for frame in streamed.frames]
        assert len(notices) >= 4

    for name in PRESETS:
        speaking(name, Reply(stream=("x", "y")), what)
