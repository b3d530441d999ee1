"""A task as the chunks of a chat completion: the text of its artifacts as it comes, then how it rests."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from trunkline.client.result import Result, artifact_text
from trunkline.fleet.event_stream import EventStream
from trunkline.fleet.openai.completion import (
    ChunkChoice,
    ChunkDelta,
    CompletionChunk,
    completion_id,
    ending_text,
    metadata_of,
    usage_of,
)
from trunkline.fleet.openai.failure import failure_of
from trunkline.http.asgi import Send
from trunkline.log.events import Chunk, Compacted, Delta, Recorded
from trunkline.run.feed import Feed
from trunkline.store.base import Log
from trunkline.wire import sse
from trunkline.wire.types import Artifact

_DONE = sse.frame(None, b"[DONE]")


class CompletionStream(EventStream):
    """One reader of a task that hears chunks, until the task has ended or asks."""

    def __init__(
        self, log: Log, feed: Feed, after: int, keep_alive_s: float, *, model: str, with_usage: bool
    ) -> None:
        super().__init__(log, feed, after, keep_alive_s)
        self._model = model
        self._with_usage = with_usage
        # What was told of each artifact.
        self._told: dict[str, list[str]] = {}
        self._newest = ""
        self._has_begun = False
        self._role: Literal["assistant"] | UnsetType = "assistant"

    def _is_over(self) -> bool:
        return self._feed.state.resting

    def _frame(self, recorded: Recorded) -> bytes:
        match recorded.event:
            case Delta() as event:
                text = self._further(event.artifact_id, event.text, event.append)
            case Chunk() as event:
                text = self._whole(event.artifact, event.append)
            case Compacted(artifacts=artifacts):
                text = "".join([self._whole(one, False) for one in artifacts])
            case _:
                text = ""
        return self._text_frame(text) if text else b""

    def _whole(self, artifact: Artifact, append: bool) -> str:
        return self._further(artifact.artifact_id, artifact_text(artifact), append)

    def _further(self, artifact_id: str, text: str, append: bool) -> str:
        """What is to be told of a text that was appended to an artifact, or stands for all of it."""
        told = self._told.setdefault(artifact_id, [])
        if told and not append:
            # What was told cannot be taken back; a text that goes on from there is gone on with.
            before = "".join(told)
            if not text.startswith(before):
                told.clear()
                self._newest = ""
            else:
                text = text.removeprefix(before)
        if not text:
            return ""
        told.append(text)
        # Several artifacts stand on lines of their own.
        line = "\n" if self._has_begun and self._newest != artifact_id else ""
        self._newest, self._has_begun = artifact_id, True
        return line + text

    async def _end(self, send: Send) -> None:
        state = self._feed.state
        failed = failure_of(state)
        if failed is not None:
            await self._write(send, sse.frame(None, msgspec.json.encode(failed[1])))
            return
        result = Result(task=state.task(0))
        if state.interrupted or not self._has_begun:
            line = "\n" if self._has_begun else ""
            await self._write(send, self._text_frame(line + ending_text(state)))
        last = self._chunk(ChunkChoice(ChunkDelta(), "stop"))
        await self._write(send, _encoded(msgspec.structs.replace(last, metadata=metadata_of(state))))
        usage = usage_of(result.usage) if self._with_usage else UNSET
        if usage is not UNSET:
            await self._write(send, _encoded(msgspec.structs.replace(self._chunk(), usage=usage)))
        await self._write(send, _DONE)

    def _text_frame(self, text: str) -> bytes:
        # Who speaks is said once.
        role, self._role = self._role, UNSET
        return _encoded(self._chunk(ChunkChoice(ChunkDelta(role, text))))

    def _chunk(self, *choices: ChunkChoice) -> CompletionChunk:
        state = self._feed.state
        return CompletionChunk(
            id=completion_id(state), created=state.created_at // 1000, model=self._model, choices=choices
        )


def _encoded(chunk: CompletionChunk) -> bytes:
    return sse.frame(None, msgspec.json.encode(chunk))
