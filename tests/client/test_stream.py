"""Streams that break, repeat themselves, stall and lie: the result is right, and the work ran once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import msgspec
import pytest

from tests.client.agents import (
    COMPLETED,
    WORKING,
    Asked,
    Error,
    Frames,
    Http,
    Lost,
    Raw,
    Stand,
    card,
    chunk,
    deduplicating,
    event,
    hello,
    message,
    status,
    stored,
    task,
)
from tests.loops import leap
from trunkline.client.assembler import Update
from trunkline.client.result import Result
from trunkline.errors import (
    InternalError,
    InvalidParams,
    Misuse,
    TaskNotFound,
    TimedOut,
    TooManyRequests,
    Uncertain,
    Unreachable,
    Unreadable,
)
from trunkline.wire.types import TaskState

SEND, STREAM, GET, SUBSCRIBE = "SendMessage", "SendStreamingMessage", "GetTask", "SubscribeToTask"
WHOLE = stored(COMPLETED, "hello world")


def read(stand: Stand, **options: Any) -> tuple[Result, list[Update]]:
    """The result of a stream and what was told on the way."""

    async def main() -> tuple[Result, list[Update]]:
        async with stand.client(**options) as client:
            stream = client.stream("hi")
            updates = [update async for update in stream]
            return await stream.finish(), updates

    return leap(main())


def words(updates: list[Update]) -> str:
    return "".join(update.text for update in updates)


def test_a_stream_that_goes_well_asks_once() -> None:
    stand = Stand([Frames(hello())])
    result, updates = read(stand)
    assert (result.text, words(updates), stand.methods) == ("hello world", "hello world", [STREAM])
    assert (result.task_id, result.context_id, result.state) == ("t1", "c1", TaskState.COMPLETED)


@pytest.mark.parametrize("after", [1, 2, 3, 4, 5])
def test_a_break_is_resumed_after_the_last_id(after: int) -> None:
    frames = hello()
    stand = Stand([Frames(frames[:after], cut=True), Frames(frames[after:]), WHOLE])
    result, updates = read(stand)
    assert (result.text, words(updates)) == ("hello world", "hello world")
    assert stand.methods == [STREAM, SUBSCRIBE, GET]
    assert stand.asked[1].headers["last-event-id"] == str(after)


def test_a_stream_that_ends_before_its_task_is_broken_not_finished() -> None:
    stand = Stand([Frames(hello()[:3]), Frames(hello()[3:]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM, SUBSCRIBE, GET]


def test_without_ids_a_break_goes_on_from_a_snapshot() -> None:
    frames = hello(ids=False)
    stand = Stand([Frames(frames[:4], cut=True), Frames([task(WORKING, "hello w"), *frames[5:]]), WHOLE])
    result, updates = read(stand)
    assert (result.text, words(updates)) == ("hello world", "hello world")
    assert "last-event-id" not in stand.asked[1].headers


def test_where_resuming_is_refused_a_snapshot_is_asked_for_and_then_the_task() -> None:
    stand = Stand(
        [Frames(hello()[:3], cut=True), Error(-32602), Error(-32004), stored(WORKING, "hello"), WHOLE]
    )
    result, updates = read(stand)
    assert (result.text, words(updates)) == ("hello world", "hello world")
    assert stand.methods == [STREAM, SUBSCRIBE, SUBSCRIBE, GET, GET]
    assert ["last-event-id" in asked.headers for asked in stand.asked[1:3]] == [True, False]


def test_a_resumption_that_brings_something_is_resumed_again() -> None:
    frames = hello()
    stand = Stand([*[Frames([frame], cut=True) for frame in frames[:-1]], Frames(frames[-1:]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM, *[SUBSCRIBE] * 5, GET]


def test_an_agent_that_gives_snapshots_and_breaks_off_is_polled() -> None:
    snapshots = [Frames([task(WORKING, "hello")], cut=True)] * 2
    stand = Stand([Frames(hello(ids=False)[:3], cut=True), *snapshots[:1], stored(WORKING, "hello"), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM, SUBSCRIBE, GET, GET]


def test_a_server_that_is_away_for_a_while_is_waited_for() -> None:
    away = Http(503)
    stand = Stand([Frames(hello()[:3], cut=True), away, away, Frames(hello()[3:]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM, SUBSCRIBE, SUBSCRIBE, SUBSCRIBE, GET]


@pytest.mark.parametrize("trouble", [Http(503), Lost(), Http(502)])
def test_a_server_that_is_away_for_longer_is_asked_for_the_task_in_the_end(trouble: Any) -> None:
    away = iter([trouble] * 10)

    def script(asked: Asked) -> Any:
        return Frames(hello()[:3], cut=True) if asked.method == STREAM else next(away, WHOLE)

    stand = Stand(script)
    assert read(stand)[0].text == "hello world"
    assert stand.methods.count(STREAM) == 1


def test_a_server_that_never_comes_back_is_given_up_and_the_task_named() -> None:
    stand = Stand(lambda asked: Frames(hello()[:3], cut=True) if asked.method == STREAM else Lost())
    with pytest.raises(Unreachable, match="t1"):
        read(stand, timeout_s=1000)
    assert len(stand.asked) < 30


@pytest.mark.parametrize("last", [(), (Error(-32603, "enough"),)])
def test_a_stream_that_breaks_off_at_once_each_time_is_opened_ever_more_slowly(last: tuple[Any, ...]) -> None:
    def script(asked: Asked) -> Any:
        # Where it is opened again at once, no time passes.
        assert len(stand.asked) < 1000
        return Frames([task(WORKING), chunk("the same", append=False), *last], cut=True)

    stand = Stand(script)
    with pytest.raises((Unreachable, InternalError)):
        read(stand, timeout_s=600)
    assert 20 < len(stand.asked) < 300


def test_an_error_frame_does_not_speak_against_resuming() -> None:
    broken = Frames([*hello()[:3], Error(-32603, "the reader was too slow")])
    stand = Stand([broken, Frames(hello()[3:]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.asked[1].headers["last-event-id"] == "3"


def test_frames_that_come_twice_are_told_once() -> None:
    frames = hello()
    stand = Stand([Frames([frame for frame in frames for _ in "ab"])])
    result, updates = read(stand)
    assert (result.text, words(updates), stand.methods) == ("hello world", "hello world", [STREAM])


def test_frames_in_the_wrong_order_are_set_right_by_the_stored_task() -> None:
    one, two, three, four, five, six = hello()
    stand = Stand([Frames([one, two, three, five, four, six]), WHOLE])
    result, updates = read(stand)
    assert (result.text, stand.methods) == ("hello world", [STREAM, GET])
    assert updates[-1].text == "hello world"


def test_pieces_without_ids_are_checked_once() -> None:
    stand = Stand([Frames([frame for frame in hello(ids=False) for _ in "ab"]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM, GET]


def test_what_cannot_be_checked_is_what_came() -> None:
    stand = Stand([Frames(hello(ids=False)), Error(-32601)])
    assert read(stand)[0].text == "hello world"


def test_what_comes_after_the_end_still_counts() -> None:
    *frames, last, end = hello()
    stand = Stand([Frames([*frames, end, last]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM, GET]


def test_a_stream_that_is_not_closed_after_its_end_is_left() -> None:
    stand = Stand([Frames(hello(), stall=True), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.open_streams == 0


def test_a_stream_that_skips_an_id_is_checked() -> None:
    one, two, three, four, _, end = hello()
    stand = Stand([Frames([one, two, three, four, end]), WHOLE])
    result, updates = read(stand)
    assert (result.text, words(updates), stand.methods) == ("hello world", "hello world", [STREAM, GET])


def test_an_end_without_a_word_is_checked() -> None:
    stand = Stand([Frames([("x", task("TASK_STATE_SUBMITTED")), ("y", status(COMPLETED))]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM, GET]


def test_a_stream_that_breaks_after_its_end_is_checked() -> None:
    one, two, *_, end = hello()
    stand = Stand([Frames([one, two, end], cut=True), WHOLE])
    result, updates = read(stand)
    assert (result.text, words(updates), stand.methods) == ("hello world", "hello world", [STREAM, GET])


def test_a_garbage_frame_is_a_break() -> None:
    frames = hello()
    stand = Stand([Frames([*frames[:3], b"data: {nonsense\n\n", *frames[3:]]), Frames(frames[3:]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM, SUBSCRIBE, GET]


def test_frames_before_a_garbage_frame_of_the_same_piece_have_come() -> None:
    first = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "result": task("TASK_STATE_SUBMITTED")})
    both = b"id: 1\ndata: %b\n\ndata: {nonsense\n\n" % first
    stand = Stand([Frames([both]), Frames(hello()[1:]), WHOLE])
    assert read(stand)[0].text == "hello world"
    assert stand.asked[1].headers["last-event-id"] == "1"


def test_an_error_in_a_frame_is_a_break_when_the_task_is_known() -> None:
    stand = Stand(
        [Frames([*hello()[:3], Error(-32603, "the reader was too slow")]), Frames(hello()[3:]), WHOLE]
    )
    assert read(stand)[0].text == "hello world"


def test_comments_and_unknown_events_are_passed_over() -> None:
    frames = hello()
    odd = [b": alive\n\n", b"event: ping\ndata: {}\n\n", b"retry: 100\n\n"]
    stand = Stand([Frames([odd[0], frames[0], odd[1], *frames[1:4], odd[2], *frames[4:]])])
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [STREAM]


def test_frames_without_kind_and_without_wrapper_are_understood() -> None:
    bare = [frame[1].popitem()[1] for frame in hello()]
    stand = Stand([Frames(bare), WHOLE])
    assert read(stand)[0].text == "hello world"


def test_a_direct_message_is_the_end() -> None:
    stand = Stand([Frames([message("at once")])])
    result, updates = read(stand)
    assert (result.text, result.state, words(updates)) == ("at once", TaskState.COMPLETED, "at once")


def test_plain_json_instead_of_a_stream_is_one_frame() -> None:
    stand = Stand([task(COMPLETED, "hello world")])
    assert read(stand)[0].text == "hello world"
    receipt = Stand([task("TASK_STATE_SUBMITTED"), Frames(hello()[1:]), WHOLE])
    assert read(receipt)[0].text == "hello world"
    assert receipt.methods == [STREAM, SUBSCRIBE, GET]


def test_a_question_ends_the_stream_of_a_send() -> None:
    stand = Stand([Frames([task("TASK_STATE_SUBMITTED"), status("TASK_STATE_INPUT_REQUIRED", "which?")])])
    result, _ = read(stand)
    assert (result.question, stand.methods) == ("which?", [STREAM])


# Before the first frame nothing is known.


@pytest.mark.parametrize("code", [-32004, -32601])
def test_who_has_no_streams_is_sent_the_same_message_plainly(code: int) -> None:
    stand = Stand([Error(code), Error(-32001), task(COMPLETED, "whole")])
    result, updates = read(stand)
    assert (result.text, words(updates)) == ("whole", "whole")
    assert [method for method in stand.methods if method != GET] == [STREAM, SEND]
    sends = [asked for asked in stand.asked if asked.method != GET]
    assert sends[0].params["message"] == sends[1].params["message"]


def test_whose_card_has_no_streams_is_not_asked_for_one() -> None:
    stand = Stand([task(WORKING), stored(WORKING), WHOLE], card(capabilities={"streaming": False}))
    assert read(stand)[0].text == "hello world"
    assert stand.methods == [SEND, GET, GET]
    assert stand.asked[0].params.get("configuration", {}).get("returnImmediately") in (None, False)


@pytest.mark.parametrize("trouble", [Http(429), Http(503, {"retry-after": "3"})])
def test_what_was_not_taken_is_sent_again_with_the_same_id(trouble: Http) -> None:
    stand = Stand([trouble, trouble, Frames(hello())])
    assert read(stand)[0].text == "hello world"
    assert len({asked.message_id for asked in stand.asked}) == 1
    assert stand.methods == [STREAM] * 3


@pytest.mark.parametrize(
    "trouble", [Lost(), Frames([], cut=True), Frames([]), Http(502), Http(503), Http(504)]
)
def test_a_lost_send_is_uncertain_and_never_a_second_run(trouble: Any) -> None:
    stand = Stand([trouble])
    with pytest.raises(Uncertain) as caught:
        read(stand)
    assert caught.value.message_id == stand.asked[0].message_id
    assert caught.value.message_id in str(caught.value)
    assert stand.methods == [STREAM]


def test_a_lost_send_to_who_knows_it_again_is_sent_again() -> None:
    stand = Stand([Lost(), Frames([], cut=True), Frames(hello())], deduplicating())
    assert read(stand)[0].text == "hello world"
    assert len({asked.message_id for asked in stand.asked}) == 1
    assert {asked.headers["idempotency-key"] for asked in stand.asked} == {stand.asked[0].message_id}


def test_the_operator_may_know_better_than_the_card() -> None:
    stand = Stand([Lost(), Frames(hello())])
    assert read(stand, deduplicates=True)[0].text == "hello world"
    silent = Stand([Lost()], deduplicating())
    with pytest.raises(Uncertain):
        read(silent, deduplicates=False)


def test_garbage_before_anything_is_known_says_what_came() -> None:
    stand = Stand([Raw(b"<html>oops</html>")])
    with pytest.raises(Unreadable, match="oops"):
        read(stand)
    assert stand.methods == [STREAM]


def test_a_refusal_is_raised_as_it_is() -> None:
    stand = Stand([Error(-32602, "message.parts is empty")])
    with pytest.raises(InvalidParams, match="is empty"):
        read(stand)
    assert stand.methods == [STREAM]


def test_too_many_requests_until_after_the_deadline_is_not_waited_for() -> None:
    stand = Stand([Http(429, {"retry-after": "1000"})])
    with pytest.raises(TooManyRequests):
        read(stand, timeout_s=30)
    assert stand.methods == [STREAM]


# Deadlines.


def test_pk_12_each_way_a_stream_fails_is_an_error_of_its_own() -> None:
    options = {"retries": 0, "idle_s": 5, "timeout_s": 30}
    with pytest.raises(InternalError):
        read(Stand([Error(-32603)]), **options)
    with pytest.raises(TimedOut) as idle:
        read(Stand([Frames(hello()[:2], stall=True)]), **options)
    assert idle.value.reason == "idle"
    assert "t1" in str(idle.value)
    with pytest.raises(Unreachable) as cut:
        read(Stand([Frames(hello()[:2], cut=True)]), **options)
    assert cut.value.reason == "protocol"
    big = b"data: " + b"x" * (17 << 20)
    with pytest.raises(Unreadable, match="16777216"):
        read(Stand([Frames([*hello()[:2], big])]), **options)


def test_a_stalled_stream_is_left_and_the_task_found_again() -> None:
    stand = Stand([Frames(hello()[:3], stall=True), Frames(hello()[3:]), WHOLE])
    assert read(stand, idle_s=5)[0].text == "hello world"
    assert stand.open_streams == 0


def test_the_total_deadline_names_the_task_and_how_to_go_on() -> None:
    stand = Stand(lambda asked: Frames(hello()[:2], stall=True) if asked.method != GET else stored(WORKING))
    with pytest.raises(TimedOut) as caught:
        read(stand, timeout_s=100, idle_s=5)
    assert caught.value.reason == "total"
    assert "t1" in str(caught.value)
    assert "wait" in str(caught.value)
    assert stand.open_streams == 0


def test_the_total_deadline_holds_while_frames_keep_coming() -> None:
    async def main() -> None:
        async with Drip().client(timeout_s=10) as client:
            stream = client.stream("hi")
            with pytest.raises(TimedOut) as caught:
                async for _ in stream:
                    pass
            assert caught.value.reason == "total"

    class Drip(Stand):
        def __init__(self) -> None:
            super().__init__([None])

        async def _answer(self, answer: Any, request_id: Any, receive: Any, send: Any) -> None:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send(
                {"type": "http.response.body", "body": event(hello()[0], request_id), "more_body": True}
            )
            place = 1
            while True:
                place += 1
                body = event((place, status()), request_id)
                await send({"type": "http.response.body", "body": body, "more_body": True})
                await asyncio.sleep(1)

    leap(main())


def test_an_end_that_is_known_is_not_too_late() -> None:
    async def main() -> None:
        async with Stand([Frames(hello())]).client(timeout_s=10) as client:
            stream = client.stream("hi")
            async for update in stream:
                if update.state is TaskState.COMPLETED:
                    await asyncio.sleep(20)
            assert (await stream.finish()).text == "hello world"

    leap(main())


def test_cancelling_the_reader_is_not_a_timeout() -> None:
    async def main() -> None:
        stand = Stand([Frames(hello()[:2], stall=True)])
        async with stand.client(timeout_s=10) as client:

            async def read_all() -> None:
                await client.stream("hi").finish()

            reading = asyncio.create_task(read_all())
            await asyncio.sleep(1)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await asyncio.sleep(0)
            assert stand.open_streams == 0

    leap(main())


# Who leaves, and who reads.


async def _settled(stand: Stand) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    assert stand.open_streams == 0
    assert len(asyncio.all_tasks()) == 1


def test_pk_5_leaving_a_stream_closes_it() -> None:
    async def main() -> None:
        stand = Stand(lambda _: Frames(hello()[:3], stall=True))
        async with stand.client() as client:
            for _ in range(50):
                async with client.stream("hi") as stream:
                    async for update in stream:
                        assert update.kind == "task"
                        break
            await _settled(stand)
            for _ in range(50):
                async for _ in client.stream("hi"):
                    break
            gc.collect()
            await _settled(stand)

    leap(main())


def test_a_stream_has_one_reader_and_an_end() -> None:
    async def main() -> None:
        async with Stand([Frames(hello(), stall=True)]).client() as client:
            stream = client.stream("hi")
            await anext(stream)
            assert stream.result is not None
            assert stream.result.task_id == "t1"
            await stream.close()
            await stream.close()
            assert await anext(stream, None) is None
            unread = client.stream("hi")
            assert unread.result is None
            await unread.close()
            with pytest.raises(Misuse, match="closed before"):
                await unread.finish()

    leap(main())


def test_two_readers_at_once_are_a_mistake() -> None:
    async def main() -> None:
        async with Stand([Frames(hello()[:1], stall=True)]).client() as client:
            stream = client.stream("hi")
            await anext(stream)

            async def step() -> None:
                await anext(stream)

            reading = asyncio.create_task(step())
            await asyncio.sleep(0)
            with pytest.raises(Misuse, match="one reader"):
                await anext(stream)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

    leap(main())


# Subscriptions, and tasks that take their time.


def _followed(stand: Stand, after: str = "", **options: Any) -> Result:
    async def main() -> Result:
        async with stand.client(**options) as client:
            return await client.subscribe("t1", after=after).finish()

    return leap(main())


def test_a_subscription_goes_through_questions() -> None:
    asked = status("TASK_STATE_INPUT_REQUIRED", "which?")
    stand = Stand(
        [
            Frames(
                [
                    task(WORKING),
                    (2, asked),
                    (3, status()),
                    (4, chunk("x", append=False)),
                    (5, status(COMPLETED)),
                ]
            )
        ]
    )
    assert _followed(stand).text == "x"


def test_a_subscription_stays_open_while_nobody_answers() -> None:
    asked = status("TASK_STATE_INPUT_REQUIRED", "which?")
    stand = Stand([Frames([task(WORKING), (2, asked)], stall=True)])

    async def main() -> None:
        async with stand.client() as client, client.subscribe("t1") as stream:
            await anext(stream)
            await anext(stream)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(30):
                    await anext(stream)

    leap(main())
    assert stand.methods == [SUBSCRIBE]


def test_a_subscription_resumes_after_a_given_id() -> None:
    stand = Stand([Frames(hello()[4:]), WHOLE])
    assert _followed(stand, after="4").text == "hello world"
    assert stand.asked[0].headers["last-event-id"] == "4"


def test_a_subscription_to_a_finished_task_gives_the_task() -> None:
    stand = Stand([Error(-32004), WHOLE])
    assert _followed(stand, retries=0).text == "hello world"


def test_a_subscription_to_an_unknown_task_is_refused() -> None:
    with pytest.raises(TaskNotFound):
        _followed(Stand(lambda _: Error(-32001)))


def test_a_task_that_is_forgotten_is_not_polled_for_ever() -> None:
    known = [task(WORKING), stored(WORKING)]
    stand = Stand([*known, *[Error(-32001)] * 10], card(capabilities={"streaming": False}))
    with pytest.raises(TaskNotFound):
        read(stand)
    assert stand.methods == [SEND, *[GET] * 4]


def test_polls_slow_down_and_speed_up_again() -> None:
    moments: list[float] = []

    def script(asked: Asked) -> Any:
        moments.append(asyncio.get_running_loop().time())
        if asked.method == SEND:
            return task(WORKING)
        return WHOLE if len(moments) > 12 else stored(WORKING, said="again" if len(moments) == 9 else "")

    stand = Stand(script, card(capabilities={"streaming": False}))
    assert read(stand, poll_s=2)[0].text == "hello world"
    pauses = [round(later - earlier, 2) for earlier, later in zip(moments[1:], moments[2:], strict=False)]
    assert pauses[0] == 3.0
    assert max(pauses) <= 20
    assert pauses == sorted(pauses[:7]) + pauses[7:]
    assert pauses[7] < pauses[6]


def test_a_poll_that_fails_for_good_names_the_task() -> None:
    stand = Stand(
        lambda asked: task(WORKING) if asked.method == SEND else Http(504),
        card(capabilities={"streaming": False}),
    )
    with pytest.raises(Exception, match="HTTP 504"):
        read(stand)
    lost = Stand(
        lambda asked: task(WORKING) if asked.method == SEND else Lost(),
        card(capabilities={"streaming": False}),
    )
    with pytest.raises(Unreachable, match="t1"):
        read(lost)


def test_a_poll_that_is_too_large_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def get(*_: Any) -> Any:
        asked.append(GET)
        raise Unreachable("the answer is over its limit", reason="size")

    monkeypatch.setattr("trunkline.client.rpc.JsonRpcTransport.get", get)
    stand = Stand([task(WORKING)], card(capabilities={"streaming": False}))
    with pytest.raises(Unreachable, match="over its limit"):
        read(stand, retries=3)
    assert len(asked) == 1


def test_the_stream_of_an_answer_does_not_end_with_the_question_that_it_answers() -> None:
    asked = status("TASK_STATE_INPUT_REQUIRED", "which?")
    stand = Stand(
        [Frames([(2, asked), (3, status()), (4, chunk("x", append=False)), (5, status(COMPLETED))])]
    )

    async def main() -> Result:
        async with stand.client() as client:
            return await client.stream("this", task_id="t1").finish()

    assert leap(main()).text == "x"
    assert stand.methods == [STREAM]


def test_many_first_calls_find_the_card_once() -> None:
    async def main() -> int:
        stand = Stand(lambda _: Frames(hello()))
        async with stand.client() as client:
            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(client.stream("hi").finish())
        return stand.cards

    assert leap(main()) == 1
