"""A trace goes on from the caller's span through the server to the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import Context
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.client.agents import COMPLETED, HOME, Stand, task
from trunkline.client.client import Client
from trunkline.demo.agent import agent
from trunkline.net.inside import Inside
from trunkline.telemetry import traces


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


class Apart(Inside):
    """Serves as another process would: nothing of the caller's context is there."""

    async def open(self, request: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.create_task(super().open(request), context=Context())


def test_row_68_the_trace_goes_on_in_the_server_and_in_the_run(spans: InMemorySpanExporter) -> None:
    async def main() -> None:
        app: Any = agent.asgi(store="memory:", drain_limit=0)
        async with asyncio.timeout(20), app.lifespan():
            async with Client(HOME, carrier=Apart(app)) as client:
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
