"""Row 64: each fault does to an answer what its name says, when its aim says, and only then."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mock.talk import Talk, replying, said, talking
from trunkline.errors import Misuse, Unreachable
from trunkline.mock import faults as f
from trunkline.mock.faults import FaultSchedule, MockFault
from trunkline.mock.scenario import Reply, Rule, Scenario, When

STREAM = Reply(stream=("a", "b", "c"))
COUNT = 6  # the task, working, three chunks, completed


def faulty(*faults: MockFault, reply: Reply = STREAM) -> Callable[[Callable[[Talk], Awaitable[None]]], None]:
    """Talk to a mock with these faults."""

    def run(what: Callable[[Talk], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(60):
                async with talking(replying(reply, *faults)) as talk:
                    await what(talk)

        asyncio.run(main())

    return run


def ids(answer: Any) -> list[int]:
    return [int(event.id) for event in answer.events]


@pytest.mark.parametrize("at", [0, 2, COUNT])
def test_cut_breaks_the_stream_off(at: int) -> None:
    @faulty(f.cut(at))
    async def _(talk: Talk) -> None:
        with pytest.raises(Unreachable) as broken:
            await talk.stream()
        assert broken.value.reason == "protocol"
        assert talk.mock.runs.total() == 1


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (f.end(0), []),
        (f.end(2), [1, 2]),
        (f.duplicate(2), [1, 2, 2, 3, 4, 5, 6]),
        (f.reorder(2), [1, 3, 2, 4, 5, 6]),
        (f.reorder(COUNT), [1, 2, 3, 4, 5, 6]),
        (f.stall(2, 0.01), [1, 2, 3, 4, 5, 6]),
        (f.slow(0.001), [1, 2, 3, 4, 5, 6]),
        (f.huge(100_000, 2), [1, 2, 3, 4, 5, 6]),
        (f.huge(100_000, 9), [1, 2, 3, 4, 5, 6]),
        (f.empty(), []),
    ],
)
def test_frames_go_astray(fault: MockFault, seen: list[int]) -> None:
    @faulty(fault)
    async def _(talk: Talk) -> None:
        assert ids(await talk.stream()) == seen


def test_a_stall_lasts_until_the_caller_leaves() -> None:
    @faulty(f.stall(1))
    async def _(talk: Talk) -> None:
        for method in ("SendStreamingMessage", "SendMessage"):
            before = talk.mock.runs.total()
            asking = asyncio.create_task(talk.rpc(method, said()))
            while talk.mock.runs.total() == before:  # noqa: ASYNC110 - nothing there to wait on
                await asyncio.sleep(0)
            await asyncio.wait([asking], timeout=0.05)
            assert not asking.done()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


def test_nothing_is_sent_to_a_caller_who_left_during_a_stall() -> None:
    @faulty(f.stall(1, on=("card",)))
    async def _(talk: Talk) -> None:
        sent: list[Any] = []
        came: asyncio.Queue[Any] = asyncio.Queue()
        came.put_nowait({"type": "http.disconnect"})

        async def send(message: Any) -> None:
            sent.append(message)

        path = "/.well-known/agent-card.json"
        await talk.mock({"type": "http", "method": "GET", "path": path, "headers": []}, came.get, send)
        assert sent == []


@pytest.mark.parametrize(
    ("fault", "status", "header"),
    [
        (f.unauthorized('Bearer realm="x"'), 401, ("www-authenticate", 'Bearer realm="x"')),
        (f.status(403), 403, None),
        (f.status(404), 404, None),
        (f.busy(3), 429, ("retry-after", "3")),
        (f.status(500), 500, None),
        (f.html(502), 502, ("content-type", "text/html")),
        (f.status(503, seconds=0.5), 503, ("retry-after", "0.5")),
        (f.redirect("http://169.254.169.254/"), 307, ("location", "http://169.254.169.254/")),
        (f.redirect("/elsewhere", 302), 302, ("location", "/elsewhere")),
    ],
)
def test_http_refuses_before_the_work(fault: MockFault, status: int, header: tuple[str, str] | None) -> None:
    @faulty(fault)
    async def _(talk: Talk) -> None:
        answer = await talk.send()
        assert answer.status == status
        if header:
            assert answer.headers[header[0]] == header[1]
        assert talk.mock.runs.total() == 0
        assert len(talk.mock.messages) == 1


@pytest.mark.parametrize("fault", [f.status(502, worked=True), f.html(504, worked=True), f.lose(), f.empty()])
def test_the_answer_is_lost_after_the_work(fault: MockFault) -> None:
    @faulty(fault)
    async def _(talk: Talk) -> None:
        try:
            answer = await talk.send()
            assert answer.status > 500 or answer.body == b""
        except Unreachable as error:
            assert error.reason == "sent"
        assert talk.mock.runs.total() == 1


def test_a_dropped_request_was_never_worked_on() -> None:
    @faulty(f.drop(requests=[1]))
    async def _(talk: Talk) -> None:
        with pytest.raises(Unreachable):
            await talk.send()
        assert talk.mock.runs.total() == 0
        assert (await talk.send()).task


def test_a_truncated_body() -> None:
    @faulty(f.truncate(2))
    async def _(talk: Talk) -> None:
        for method in ("SendMessage", "SendStreamingMessage"):
            with pytest.raises(Unreachable):
                await talk.rpc(method, said())


def test_garbage_is_no_json() -> None:
    @faulty(f.garbage(2))
    async def _(talk: Talk) -> None:
        with pytest.raises(msgspec.DecodeError):
            _ = (await talk.send()).json
        streamed = await talk.stream()
        assert streamed.events[1].data.startswith("<<<")
        assert ids(streamed) == [1, 1, 3, 4, 5, 6]


def test_the_right_answer_under_wrong_names() -> None:
    @faulty(f.media_type("text/plain"), f.wrong_id())
    async def _(talk: Talk) -> None:
        sent = await talk.send()
        assert sent.headers["content-type"] == "text/plain"
        assert sent.json["id"] == "of-another-request"
        assert sent.task
        streamed = await talk.stream()
        assert streamed.headers["content-type"] == "text/plain"
        assert len(streamed.frames) == COUNT


def test_the_other_version_answers() -> None:
    @faulty(f.dialect())
    async def _(talk: Talk) -> None:
        assert (await talk.send()).result["kind"] == "task"
        assert "task" in (await talk.rpc("message/send", said())).result


def test_the_version_is_refused() -> None:
    @faulty(f.version(on=["send"]))
    async def _(talk: Talk) -> None:
        assert (await talk.send()).error["code"] == -32009
        assert talk.mock.runs.total() == 0
        assert (await talk.stream()).frames


def test_packed_bodies() -> None:
    @faulty(f.gzip())
    async def _(talk: Talk) -> None:
        sent = await talk.send()
        assert sent.headers["content-encoding"] == "gzip"
        assert b'"result"' in zlib.decompress(sent.body, wbits=31)
        streamed = await talk.stream()
        assert zlib.decompress(streamed.body, wbits=31).count(b"data: ") == COUNT


def test_packed_slow_and_huge_at_once() -> None:
    @faulty(f.gzip(), f.slow(0), f.huge(100_000, 2))
    async def _(talk: Talk) -> None:
        streamed = await talk.stream()
        unpacked = zlib.decompress(streamed.body, wbits=31)
        assert (unpacked.count(b"data: "), len(unpacked) > 100_000) == (COUNT, True)


def test_a_status_without_a_body() -> None:
    @faulty(f.status(204))
    async def _(talk: Talk) -> None:
        answer = await talk.send()
        assert (answer.status, answer.body) == (204, b"")


def test_a_huge_body_is_still_the_answer() -> None:
    @faulty(f.huge(300_000))
    async def _(talk: Talk) -> None:
        sent = await talk.send()
        assert len(sent.body) > 300_000
        assert sent.task


def test_cards_lie() -> None:
    lies = (
        f.lie({"url": "http://127.0.0.1:1/", "capabilities": {"streaming": False}, "skills": None}),
        f.status(404, on=["card"], path="/.well-known/agent.json"),
    )

    @faulty(*lies)
    async def _(talk: Talk) -> None:
        card = (await talk.card()).json
        assert (card["url"], card["capabilities"]["streaming"]) == ("http://127.0.0.1:1/", False)
        assert "skills" not in card
        assert card["capabilities"]["pushNotifications"] is False
        assert (await talk.card("/.well-known/agent.json")).status == 404


@pytest.mark.parametrize("fault", [f.garbage(on=["card"]), f.empty(on=["card"]), f.status(500, on=["card"])])
def test_cards_break(fault: MockFault) -> None:
    @faulty(fault)
    async def _(talk: Talk) -> None:
        answer = await talk.card()
        assert answer.status == 500 or not answer.body.startswith(b'{"name"')
        assert (await talk.send()).task


def test_faults_of_a_rule_strike_its_messages_only() -> None:
    rules = (
        Rule(when=When(text="bad"), reply="x", faults=(f.status(500, requests=[2]),)),
        Rule(reply="y"),
    )

    async def main() -> None:
        async with talking(Scenario(rules=rules)) as talk:
            texts = ("bad", "good", "bad", "bad")
            assert [(await talk.send(text)).status for text in texts] == [200, 200, 500, 200]

    asyncio.run(main())


def test_an_aim_counts_its_own_requests() -> None:
    schedule = FaultSchedule((f.status(500, on=["get"], requests=[2]), f.cut(1)), seed=0)
    asked = ["get", "send", "get", "stream", "get"]
    assert [len(schedule.due(each, "/a2a")) for each in asked] == [0, 0, 1, 1, 0]


def test_chance_is_repeatable() -> None:
    def drawn(seed: int) -> list[int]:
        schedule = FaultSchedule((f.status(500, chance=0.5),), seed)
        return [len(schedule.due("send", "/")) for _ in range(50)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert 10 < sum(drawn(1)) < 40


@pytest.mark.parametrize(
    "make",
    [
        lambda: f.cut(-1),
        lambda: f.cut(chance=2),
        lambda: f.cut(requests=[0]),
        lambda: f.status(99),
    ],
)
def test_a_fault_that_cannot_be_is_refused(make: Callable[[], MockFault]) -> None:
    with pytest.raises(ValueError, match="from 1|between|status"):
        make()


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(Misuse, match="'fetch' is no operation"):
        f.cut(on=["fetch"])  # type: ignore[list-item]


DRAWN = st.one_of(
    st.builds(f.cut, st.integers(0, 7)),
    st.builds(f.end, st.integers(0, 7)),
    st.builds(f.duplicate, st.integers(1, 7)),
    st.builds(f.reorder, st.integers(1, 7)),
    st.builds(f.garbage, st.integers(1, 7)),
    st.builds(f.truncate, st.integers(1, 7)),
    st.builds(f.status, st.sampled_from([401, 404, 429, 500, 503]), worked=st.booleans()),
    st.sampled_from([f.empty(), f.wrong_id(), f.gzip(), f.lose(), f.drop(), f.dialect(), f.media_type()]),
)


@given(st.lists(DRAWN, max_size=4), st.sampled_from(["SendMessage", "SendStreamingMessage"]))
def test_any_schedule_comes_to_an_end(faults: list[MockFault], method: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), talking(replying(STREAM, *faults)) as talk:
            try:
                await talk.rpc(method, said())
            except Unreachable:
                pass
            assert talk.mock.runs.total() <= 1

    asyncio.run(main())
