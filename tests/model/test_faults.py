"""Whatever a remote agent gets wrong: a right answer or an error that says why, in time, and never a second run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.loops import leap
from tests.sample import at_most
from trunkline.client.client import Client
from trunkline.client.result import Result
from trunkline.client.stream import Stream
from trunkline.errors import TrunklineError
from trunkline.mock.app import Mock
from trunkline.mock.faults import Kind, MockFault
from trunkline.mock.quirks import Quirks
from trunkline.mock.scenario import Reply, Rule, Scenario, When
from trunkline.net.in_process import BASE, InProcessHttpClient
from trunkline.wire.types import ArtifactUpdate

SCHEDULES = at_most(10_000, 1_600)
SHARDS = 8
# What an answer may take beyond its deadline: the last look at a task that has ended.
GRACE_S = 1.0

REPLIES = {
    "text": Reply(text="an answer"),
    "chunks": Reply(stream=("one ", "two ", "three"), pause=0.01),
    "burst": Reply(stream=("one ", "two ", "three")),
    "data": Reply(data={"answer": 42}),
    "message": Reply(message="just a word"),
    "fail": Reply(fail="it broke"),
    "reject": Reply(reject="not here"),
    "late": Reply(text="at last", delay=0.5, receipt=True),
    "ask": Reply(ask="Which?", then=Reply(text="thanks")),
    "hold": Reply(hold=True),
}
# State, text, data and question of each as they are when nothing goes wrong.
RIGHT = {
    "text": ("COMPLETED", "an answer", None, ""),
    "chunks": ("COMPLETED", "one two three", None, ""),
    "burst": ("COMPLETED", "one two three", None, ""),
    "data": ("COMPLETED", "", {"answer": 42}, ""),
    "message": ("COMPLETED", "just a word", None, ""),
    "fail": ("FAILED", "it broke", None, ""),
    "reject": ("REJECTED", "not here", None, ""),
    "late": ("COMPLETED", "at last", None, ""),
    "ask": ("INPUT_REQUIRED", "Which?", None, "Which?"),
    "thanks": ("COMPLETED", "thanks", None, ""),
    "hold": ("CANCELED", "", None, ""),
}
RULES = tuple(Rule(when=When(text=word), reply=reply) for word, reply in REPLIES.items())
# What a mock may say of its card that is not so. It never lies about knowing a message that comes twice.
LIES: list[dict[str, Any]] = [
    {"capabilities": {"streaming": False}},
    {"name": None},
    {"supportedInterfaces": None},
    {"supportedInterfaces": [], "url": None},
    {"url": "http://127.0.0.1:9/a2a"},
    {"supportedInterfaces": [{"url": f"{BASE}/nowhere", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
    {"supportedInterfaces": [{"url": f"{BASE}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "9.0"}]},
    {"protocolVersion": "7", "supportedInterfaces": None},
]  # fmt: skip
ACTS = ("send", "stream", "subscribe", "leave", "chat", "get", "wait", "cancel", "list")
WORDS = ("text", "chunks", "burst", "data", "message", "fail", "reject", "late", "ask")
NOT_BEGUN = (404, 429)
# What never costs an answer, and what does not as long as it happens once or twice.
GENTLE = frozenset({"duplicate", "reorder", "close", "huge"})
MENDED = frozenset({"cut", "end"})


def _says_not_begun(fault: MockFault) -> bool:
    return fault.status in NOT_BEGUN or (fault.status == 503 and fault.seconds is not None)


class Plan(NamedTuple):
    """One schedule: what is asked of which agent by which client, and what goes wrong."""

    acts: list[tuple[str, str]]
    faults: list[MockFault]
    deduplicates: bool
    manner: Quirks
    version: str
    binding: str
    timeout_s: float
    idle_s: float
    retries: int
    seed: int


# The first of each is the simplest. Most faults can happen to any answer, those added only to a stream.
FAULT: dict[str, Sequence[Any]] = {
    "do": (*get_args(Kind), *["cut", "end", "duplicate", "reorder"] * 3),
    "at": (1, 0, 2, 3, 4, 6),
    "seconds": (None, 0.4, 7.0, 900.0),
    "status": (500, 401, 403, 404, 429, 502, 503, 504, 200, 204, 307),
    "worked": (False, True),
    "size": (1 << 16,),
    "to": ("/a2a", "text/plain", "http://elsewhere.example/a2a", "http://169.254.169.254/", ""),
    "card": LIES,
    "on": ((), ("send",), ("stream",), ("subscribe",), ("get",), ("cancel",), ("card",), ("send", "stream")),
    "requests": ((1,), (), (2,), (1, 2), (1, 2, 3), (3,)),
    "chance": (1.0, 0.5),
}
ACT = {"act": (*ACTS, "stream", "stream", "subscribe"), "word": WORDS}
REST: dict[str, Sequence[Any]] = {
    "deduplicates": (False, True),
    "manner": (Quirks(), Quirks(whole=True), Quirks(ids=False), Quirks(opening=False)),
    "version": ("", "1.0", "0.3"),
    "binding": ("", "JSONRPC", "HTTP+JSON"),
    "timeout_s": (60.0, 3.0, 300.0),
    "idle_s": (20.0, 1.0),
    "retries": (3, 0, 1),
    "seed": range(10),
}
MOST = 4
LENGTH = 2 + len(REST) + MOST * (len(ACT) + len(FAULT))


def plan_of(drawn: bytes) -> Plan:
    """A byte for each choice: drawn and shrunk as one, since fifty draws take longer than the schedule itself."""
    left = iter(drawn)

    def pick(choices: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        return {name: each[next(left) % len(each)] for name, each in choices.items()}

    acts, faults = 1 + next(left) % MOST, next(left) % (MOST + 1)
    rest = pick(REST)
    said = [pick(ACT) for _ in range(acts)]
    return Plan(
        [(each["act"], each["word"]) for each in said],
        [MockFault(**pick(FAULT)) for _ in range(faults)],
        **rest,
    )


PLANS = st.binary(min_size=LENGTH, max_size=LENGTH).map(plan_of)


@pytest.mark.parametrize("shard", range(SHARDS))
@settings(max_examples=SCHEDULES // SHARDS, database=None)
@given(plan=PLANS)
def test_a_right_answer_or_a_reason_and_never_a_second_run(shard: int, plan: Plan) -> None:
    leap(_play(plan))


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("word", WORDS)
def test_without_a_fault_there_is_no_error(act: str, word: str) -> None:
    leap(_play(Plan([(act, word)], [], False, Quirks(), "", "", 60.0, 20.0, 0, 0)))


async def _play(plan: Plan) -> None:
    # An agent that has done the work and says that it has not begun is believed: nobody can tell.
    honest = [
        replace(fault, worked=False) if _says_not_begun(fault) and not plan.deduplicates else fault
        for fault in plan.faults
    ]
    mock = Mock(
        Scenario(
            rules=RULES,
            faults=tuple(honest),
            deduplicates=plan.deduplicates,
            dialect=plan.manner,
            seed=plan.seed,
        )
    )
    http_client = InProcessHttpClient(mock)
    client = Client(
        BASE,
        http_client=http_client,
        version=plan.version,
        bindings=(plan.binding,) if plan.binding else (),
        timeout_s=plan.timeout_s,
        idle_s=plan.idle_s,
        retries=plan.retries,
    )
    loop = asyncio.get_running_loop()
    async with client:
        for act, word in plan.acts:
            deadline = loop.time() + plan.timeout_s * 2 + GRACE_S
            try:
                await _act(client, act, word)
            except TrunklineError as error:
                assert str(error).strip(), f"{type(error).__name__} without a word"
                assert type(error) is not TrunklineError
                assert not _is_survivable(plan), f"nothing was lost, but: {error!r}"
            assert loop.time() <= deadline, "it came too late"
    assert not [running for running in http_client._requests if not running._left.is_set()], (
        "a connection was kept"
    )
    assert not [each for each, count in mock.runs.items() if count > 1], "a message ran twice"
    await http_client.close()
    await mock.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=1)
    assert not [task for task in left if not task.done()], left


def _is_survivable(plan: Plan) -> bool:
    """Whether nothing goes wrong that could cost an answer."""
    breaks = [fault for fault in plan.faults if fault.do in MENDED]
    if any(fault.do not in GENTLE | MENDED for fault in plan.faults):
        return False
    # A frame that is to come after the next one never comes where that is the answer to a question.
    is_asked = not {("subscribe", "ask"), ("stream", "ask")}.isdisjoint(plan.acts)
    if is_asked and any(fault.do == "reorder" for fault in plan.faults):
        return False
    often = sum(len(fault.requests) or 99 for fault in breaks)
    return not breaks or (plan.retries == 3 and often <= 2 and all(fault.at for fault in breaks))


async def _act(client: Client, act: str, word: str) -> None:
    match act:
        case "send":
            _check(await client.send(word), word)
        case "stream":
            await _read(client.stream(word), word)
        case "leave":
            async with client.stream(word) as stream:
                async for _ in stream:
                    break
        case "chat":
            chat = client.chat()
            _check(await chat.say("ask"), "ask")
            _check(await chat.say("blue"), "thanks")
        case "list":
            assert all(task.id for task in (await client.list()).tasks)
        case "cancel":
            begun = await client.send("hold", wait=False)
            _check(await client.cancel(begun.task_id), "hold")
        case _:
            begun = await client.send(word, wait=False)
            if begun.task_id:
                await _again(client, act, begun.task_id, word)


async def _again(client: Client, act: str, task_id: str, word: str) -> None:
    """A task that is known already, by one of the ways to come back to it."""
    if act == "wait":
        _check(await client.wait(task_id), word)
    elif act == "get":
        found = await client.get(task_id)
        assert found.task_id == task_id
        if found.ended:
            _check(found, word)
    elif word == "ask":
        # A subscription goes on through questions: it is left, not read to its end.
        async with client.subscribe(task_id) as stream:
            async for update in stream:
                if update.state is not None and update.state.name == RIGHT[word][0]:
                    break
    else:
        await _read(client.subscribe(task_id), word)


async def _read(stream: Stream, word: str) -> None:
    """To its end; no word may be told twice on the way."""
    told = ""
    async for update in stream:
        answer = update.notice.answer
        # What contradicts what was told before is told as a whole.
        anew = isinstance(answer, ArtifactUpdate) and not answer.append and update.text == _whole(answer)
        told = update.text if anew else told + update.text
    found = await stream.finish()
    _check(found, word)
    if word in ("chunks", "burst", "text", "late"):
        assert told == found.text


def _whole(update: ArtifactUpdate) -> str:
    return "".join(part.text or "" for part in update.artifact.parts)


def _check(found: Result, word: str) -> None:
    assert (found.state.name, found.text, found.data, found.question) == RIGHT[word]
