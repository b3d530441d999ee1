"""Agents for the official test kit: what they do is told by the prefix of the message id."""

from __future__ import annotations

import asyncio

from trunkline.agent.agent import Agent
from trunkline.agent.turn import Turn
from trunkline.wire.types import Message

LONG_S = 8.0
_STREAMED = ("tck-stream-001", "tck-stream-003", "tck-stream-ordering-001", "tck-stream-artifact-text")

tck = Agent("Trunkline test-kit agent", description="Behaves as the 1.0 test kit expects", version="1.0.0")
tck03 = Agent(
    "Trunkline test-kit agent 0.3",
    description="Behaves as the 0.3 test kit expects",
    version="1.0.0",
    # The kit looks for its own words beside the media types; without them it leaves out files and data.
    input_modes=["text/plain", "application/json", "text", "file", "data"],
)


async def _pause() -> None:
    # Lets the kit see the working state before the end.
    await asyncio.sleep(0.05)


async def _keep_running(turn: Turn) -> None:
    for step in range(int(LONG_S * 4)):
        await turn.status(f"step {step}")
        await asyncio.sleep(0.25)


async def _file(turn: Turn, content: bytes | str = b"Generated file content") -> None:
    await turn.artifact(file=content, filename="output.txt", media_type="text/plain")


async def _artifact(turn: Turn, kind: str) -> None:
    if kind.startswith("file-url"):
        await _file(turn, "https://example.com/output.txt")
    elif kind.startswith("file"):
        await _file(turn)
    elif kind.startswith("data"):
        await turn.artifact(data={"key": "value", "count": 42})
    else:
        await turn.artifact(text="Generated text content")


async def _stream(turn: Turn, message_id: str) -> None:
    await _pause()
    if message_id.startswith("tck-stream-artifact-file"):
        await _file(turn)
    elif message_id.startswith("tck-stream-artifact-chunked"):
        await turn.artifact(text="chunk 1 ", artifact_id="chunked", last=False)
        await _pause()
        await turn.artifact(text="chunk 2", artifact_id="chunked", append=True, last=True)
    elif message_id.startswith(_STREAMED):
        await turn.artifact(text="Stream hello from TCK")


@tck.skill(id="tck", name="Test kit", description="Does what the message id says", tags=["tck"])
async def act(turn: Turn) -> Message | None:
    """Do what the message id says."""
    message = turn.request
    while message.message_id.startswith("tck-input-required"):
        message = await turn.ask_message("More input, please.")
    message_id = message.message_id
    if message_id.startswith("tck-message-response"):
        return turn.message("Direct message response")
    if message_id.startswith("tck-reject-task"):
        turn.reject("Rejected as asked.")
    if message_id.startswith("test-resubscribe-message-id"):
        await _keep_running(turn)
    elif message_id.startswith("tck-artifact-"):
        await _artifact(turn, message_id.removeprefix("tck-artifact-"))
    elif message_id.startswith("tck-stream-"):
        await _stream(turn, message_id)
    else:
        turn.finish("Hello from TCK")
    return None


@tck03.skill(id="tck", name="Test kit", description="Works, then asks", tags=["tck"])
async def act03(turn: Turn) -> None:
    """Work, then ask; never end by itself but after a long run."""
    if turn.request.message_id.startswith("test-resubscribe-message-id"):
        await _keep_running(turn)
        return
    while True:
        await turn.status("working on it")
        await _pause()
        await turn.ask_message("More input, please.")
