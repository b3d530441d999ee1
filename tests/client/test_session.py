"""Retries, their budget, and a peer that is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import Context
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.client.agents import COMPLETED, HOME, Asked, Error, Http, Lost, Raw, Stand, card, stored, task
from tests.loops import leap
from trunkline.client.client import Client
from trunkline.demo.agent import agent
from trunkline.errors import PeerError, TaskNotFound, TooManyRequests, Unavailable, Unreachable, Unreadable
from trunkline.net.in_process import InProcessHttpClient
from trunkline.telemetry import traces
from trunkline.wire.peer_card import read_card

FOUND = stored(COMPLETED, "found")


async def _tried(client: Client, count: int) -> list[type[BaseException]]:
    met: list[type[BaseException]] = []
    for _ in range(count):
        try:
            await client.get("t1")
        except Exception as error:  # noqa: BLE001 - which one it was is what is asked
            met.append(type(error))
    return met


@pytest.mark.parametrize(
    "trouble", [Http(429), Http(502), Http(503), Http(504), Lost(), Raw(b"{", cut=True), Raw(b"oops")]
)
def test_what_may_be_asked_twice_is_asked_again(trouble: Any) -> None:
    stand = Stand([trouble, trouble, FOUND])

    async def main() -> None:
        async with stand.client() as client:
            assert (await client.get("t1")).text == "found"

    leap(main())
    assert len(stand.asked) == 3


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (3, 4)])
def test_no_more_often_than_is_said(retries: int, attempts: int) -> None:
    stand = Stand(lambda _: Http(503))

    async def main() -> None:
        async with stand.client(retries=retries) as client:
            with pytest.raises(Unavailable):
                await client.get("t1")

    leap(main())
    assert len(stand.asked) == attempts


def test_a_cancel_is_asked_again_and_so_is_a_list() -> None:
    stand = Stand(
        [Lost(), FOUND, Http(503), {"tasks": [], "nextPageToken": "", "pageSize": 5, "totalSize": 0}]
    )

    async def main() -> None:
        async with stand.client() as client:
            assert (await client.cancel("t1")).text == "found"
            assert (await client.list()).tasks == ()

    leap(main())


def test_a_dead_peer_gets_a_fifth_more_calls_not_four_times_as_many() -> None:
    stand = Stand(lambda _: Http(429))

    async def main() -> None:
        async with stand.client() as client:
            assert set(await _tried(client, 100)) == {TooManyRequests}

    leap(main())
    assert 100 < len(stand.asked) <= 100 + 10 + 20


def test_a_peer_that_fails_again_and_again_is_left_alone_for_a_while() -> None:
    answers = [Http(503)]
    stand = Stand(lambda _: answers[-1])

    async def main() -> None:
        async with stand.client(retries=0) as client:
            assert await _tried(client, 12) == [*[Unavailable] * 10, Unreachable, Unreachable]
            with pytest.raises(Unreachable, match=r"left alone for another \d+ seconds") as caught:
                await client.get("t1")
            assert caught.value.reason == "breaker"
            assert len(stand.asked) == 10
            answers.append(FOUND)
            await asyncio.sleep(11)
            assert (await client.get("t1")).text == "found"
            assert await _tried(client, 5) == []

    leap(main())


def test_refusals_and_failed_tasks_say_nothing_against_a_peer() -> None:
    answers: list[Any] = [Error(-32001), Http(400), task("TASK_STATE_FAILED")["task"], Http(429)]
    turns = iter(answers * 10)
    stand = Stand(lambda _: next(turns))

    async def main() -> None:
        async with stand.client(retries=0) as client:
            met = await _tried(client, 40)
        assert met.count(TaskNotFound) == 10
        assert Unreachable not in met

    leap(main())
    assert len(stand.asked) == 40


def test_a_refusal_shows_that_a_peer_is_back() -> None:
    answers: list[Any] = [Http(503)]
    stand = Stand(lambda _: answers[-1])

    async def main() -> None:
        async with stand.client(retries=0) as client:
            assert (await _tried(client, 11))[-1] is Unreachable
            answers.append(Error(-32001))
            await asyncio.sleep(11)
            assert await _tried(client, 3) == [TaskNotFound] * 3

    leap(main())


def test_a_success_between_failures_begins_the_count_anew() -> None:
    turns = iter([*[Http(503)] * 9, FOUND, *[Http(503)] * 9, FOUND])
    stand = Stand(lambda _: next(turns))

    async def main() -> None:
        async with stand.client(retries=0) as client:
            assert await _tried(client, 20) == [Unavailable] * 18

    leap(main())


def test_gateways_and_garbage_are_told_as_they_are() -> None:
    async def main() -> None:
        async with Stand(lambda _: Http(502, {}, b"upstream is down")).client(retries=0) as client:
            with pytest.raises(PeerError, match="upstream is down"):
                await client.get("t1")
        async with Stand(lambda _: Raw(b"<html>hello</html>")).client(retries=0) as client:
            with pytest.raises(Unreadable, match="hello"):
                await client.get("t1")

    leap(main())


def test_the_deadline_bounds_the_retries() -> None:
    def script(_: Asked) -> Any:
        return Http(429, {"retry-after": "20"})

    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with Stand(script).client(timeout_s=50, retries=9) as client:
            began = loop.time()
            with pytest.raises(TooManyRequests):
                await client.get("t1")
            return loop.time() - began

    assert leap(main()) == pytest.approx(40, abs=1)


def test_d_15_the_card_is_fetched_once_for_many_calls() -> None:
    stand = Stand(lambda _: FOUND)

    async def main() -> None:
        async with stand.client() as client:
            for _ in range(20):
                await client.get("t1")
            await client.card()

    leap(main())
    assert stand.cards == 1


def test_a_given_card_is_not_fetched() -> None:
    stand = Stand(lambda _: FOUND)

    async def main() -> None:
        async with stand.client(card=read_card(msgspec.json.encode(card(name="given")))) as client:
            await client.get("t1")
            assert (await client.card()).name == "given"
            assert (await client.card(refresh=True)).name == "stand"

    leap(main())
    assert stand.cards == 1


# Traces.


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()
    monkeypatch.undo()
    traces.find_tracer()


class Apart(InProcessHttpClient):
    """Serves as another process would: nothing of the caller's context is there."""

    async def open(self, request: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.create_task(super().open(request), context=Context())


def test_row_68_the_trace_goes_on_in_the_server_and_in_the_run(spans: InMemorySpanExporter) -> None:
    async def main() -> None:
        app: Any = agent.asgi(store="memory:", drain_limit=0)
        async with asyncio.timeout(60), app.lifespan():
            async with Client(HOME, http_client=Apart(app)) as client:
                with trace.get_tracer("caller").start_as_current_span("ask"):
                    await client.send("echo one")
                    await client.stream("echo two").finish()

    asyncio.run(main())
    found = spans.get_finished_spans()
    (asked,) = [span for span in found if span.name == "ask"]
    for name in ("SendMessage", "SendStreamingMessage", "run demo"):
        same = [span for span in found if span.name == name]
        assert same, [span.name for span in found]
        assert {span.context.trace_id for span in same if span.context} == {asked.context.trace_id}


def test_without_a_span_there_is_no_header() -> None:
    stand = Stand(lambda _: task(COMPLETED))

    async def main() -> None:
        async with stand.client() as client:
            await client.send("hi")

    asyncio.run(main())
    assert "traceparent" not in stand.asked[0].headers
