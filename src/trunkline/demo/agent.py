"""Agents that do what they are told: one by the first word of the text, for the tour, tests and benchmarks;
two for the official test kit, by the prefix of the message id.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from trunkline.agent.agent import Agent
from trunkline.agent.declaration import Effect
from trunkline.agent.turn import Turn
from trunkline.wire.card import Provider
from trunkline.wire.types import Message

PAD = " lorem ipsum dolor sit amet"
OUT = "out"

LONG_S = 8.0
_STREAMED = ("tck-stream-001", "tck-stream-003", "tck-stream-ordering-001", "tck-stream-artifact-text")
agent = Agent(
    "Trunkline demo",
    description="Does what the first word of your message says: echo, chunks, sleep, ask, fail and more",
    version="1.0.0",
    provider=Provider(organization="Trunkline", url="https://example.com/trunkline"),
)


class Gate:
    """Holds tasks until a release."""

    def __init__(self) -> None:
        self._open = asyncio.Event()

    async def wait(self) -> None:
        """Until the next release."""
        await self._open.wait()

    def release(self) -> None:
        """Free every task held so far."""
        self._open.set()
        self._open = asyncio.Event()


_gate = Gate()


async def _echo(turn: Turn, _argument: str) -> None:
    await turn.artifact(text=turn.text, name="echo")


async def _chunks(turn: Turn, argument: str) -> None:
    count = _number(turn, argument, "chunks K")
    for place in range(count):
        await turn.artifact(
            text=f"chunk-{place:06d}{PAD}",
            name=OUT,
            artifact_id=OUT,
            append=place > 0,
            last=place == count - 1,
        )


async def _hold(turn: Turn, argument: str) -> None:
    _number(turn, argument, "hold K")
    await _gate.wait()
    await _chunks(turn, argument)


async def _release(turn: Turn, argument: str) -> None:
    _gate.release()
    await _echo(turn, argument)


async def _sleep(turn: Turn, argument: str) -> None:
    seconds = _number(turn, argument, "sleep S", kind=float)
    await asyncio.sleep(seconds)
    await turn.artifact(text=f"slept {argument} s", name="sleep")


async def _count(turn: Turn, argument: str) -> None:
    numbers, pause_s = _pace(turn, argument, "count N MS")
    for number in numbers:
        await turn.write(f"{number} ")
        await asyncio.sleep(pause_s)


async def _ask(turn: Turn, argument: str) -> None:
    answer = await turn.ask(argument or "What is your answer?")
    await turn.artifact(text=answer, name="answer")


async def _auth(turn: Turn, argument: str) -> None:
    answer = await turn.need_auth(argument or "Please authorize access to the demo.")
    await turn.artifact(text="".join(part.text or "" for part in answer.parts), name="answer")


async def _fail(turn: Turn, argument: str) -> None:
    turn.fail(argument or "This task was asked to fail.")


async def _raise(_turn: Turn, argument: str) -> None:
    raise RuntimeError(argument or "raised on request")


async def _reject(turn: Turn, argument: str) -> None:
    turn.reject(argument or "This task was asked to be rejected.")


async def _toolerror(turn: Turn, _argument: str) -> None:
    await turn.status("calling the tool `lookup`")
    await asyncio.sleep(0.05)
    # A completed task means that the goal was reached; a tool's error text is not a result.
    turn.fail("The tool `lookup` failed: connection refused.")


async def _file(turn: Turn, _argument: str) -> None:
    await turn.artifact(file=b"Hello, file.\n", name="file", filename="hello.txt", media_type="text/plain")


async def _data(turn: Turn, _argument: str) -> None:
    await turn.artifact(data={"answer": 42, "list": [1, 2, 3], "nothing": None}, name="data")


async def _usage(turn: Turn, argument: str) -> None:
    turn.usage(input_tokens=120, output_tokens=40, cost_usd=0.0021)
    await asyncio.sleep(0.002)
    if argument == "fail":
        turn.fail("Tokens were used, and still it failed.")
    await turn.write("used some tokens")


async def _effect(turn: Turn, argument: str) -> None:
    turn.effect("demo", "counters.effects", 1)
    if argument == "fail":
        turn.fail("No effect took place.")
    await turn.write("counted up")


async def _confidence(turn: Turn, argument: str) -> None:
    try:
        value = float(argument)
    except ValueError:
        turn.reject("Usage: confidence X, with a number; what is below 0 or above 1 is clamped.")
    turn.confidence(value, "as the caller wished")
    await turn.write("said with confidence")


# Each is named as the word that asks for it.
_ACTIONS: dict[str, Callable[[Turn, str], Awaitable[None]]] = {
    action.__name__.removeprefix("_"): action
    for action in (
        _echo, _chunks, _hold, _release, _sleep, _count, _ask, _auth, _fail, _raise, _reject, _toolerror,
        _file, _data, _usage, _effect, _confidence,
    )
}  # fmt: skip


@agent.skill(
    id="demo",
    name="Demo",
    tags=["demo"],
    examples=["echo hello", "count 20 100", "ask", "sleep 2", "chunks 5", "usage"],
    input_modes=["text/plain"],
    default=True,
    emits=["cost-v1", "confidence-v1", "worldstate-delta-v1"],
)
async def act(turn: Turn) -> Message | None:
    """Do what the first word of the text says; anything unknown is echoed."""
    word, _, argument = turn.text.partition(" ")
    if word == "message":
        return turn.message(argument or "A direct message.")
    await _ACTIONS.get(word, _echo)(turn, argument.strip())
    return None


@agent.skill(tags=["demo", "durable"], examples=["8 100"], on_crash="resume")
async def steps(turn: Turn) -> None:
    """Take N steps, MS milliseconds apart; those that are recorded are not taken again after a crash."""
    numbers, pause_s = _pace(turn, turn.text, "N MS")
    for number in numbers:
        await turn.write(await turn.step("step", _take, number))
        await asyncio.sleep(pause_s)


def _take(number: int) -> str:
    return f"{number}@{os.getpid()} "


@agent.skill(
    tags=["demo", "effects"],
    examples=["hello"],
    effects=[Effect("demo", "counters.effects", delta=1, confidence=0.9)],
)
async def tally(turn: Turn) -> str:
    """Count up a number that the card names; declared and done are compared after each run."""
    turn.effect("demo", "counters.effects", 1)
    return "counted up"


@agent.skill(tags=["demo"], examples=["hello"])
def echo(text: str) -> str:
    """Give back what was sent."""
    return text


@agent.skill(tags=["demo", "typed"])
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers of a data part."""
    return {"sum": a + b}


def _pace(turn: Turn, argument: str, usage: str) -> tuple[range, float]:
    """The numbers from 1 to N, and the seconds that MS milliseconds are."""
    how_many, _, pause = argument.partition(" ")
    count = _number(turn, how_many, usage)
    return range(1, count + 1), _number(turn, pause or "0", usage, kind=float) / 1000


def _number(turn: Turn, text: str, usage: str, kind: type[int] | type[float] = int) -> int:
    try:
        value = kind(text)
        if 0 <= value <= 100_000:
            return value  # type: ignore[return-value]
    except ValueError:
        pass
    turn.reject(f"Usage: {usage}, with numbers from 0 to 100000.")


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


async def _generated_file(turn: Turn, content: bytes | str = b"Generated file content") -> None:
    await turn.artifact(file=content, filename="output.txt", media_type="text/plain")


async def _artifact(turn: Turn, kind: str) -> None:
    if kind.startswith("file-url"):
        await _generated_file(turn, "https://example.com/output.txt")
    elif kind.startswith("file"):
        await _generated_file(turn)
    elif kind.startswith("data"):
        await turn.artifact(data={"key": "value", "count": 42})
    else:
        await turn.artifact(text="Generated text content")


async def _stream(turn: Turn, message_id: str) -> None:
    await _pause()
    if message_id.startswith("tck-stream-artifact-file"):
        await _generated_file(turn)
    elif message_id.startswith("tck-stream-artifact-chunked"):
        await turn.artifact(text="chunk 1 ", artifact_id="chunked", last=False)
        await _pause()
        await turn.artifact(text="chunk 2", artifact_id="chunked", append=True, last=True)
    elif message_id.startswith(_STREAMED):
        await turn.artifact(text="Stream hello from TCK")


@tck.skill(id="tck", name="Test kit", description="Does what the message id says", tags=["tck"])
async def act10(turn: Turn) -> Message | None:
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
