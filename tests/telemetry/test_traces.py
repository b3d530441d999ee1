"""Spans, with the real SDK: who is whose parent, what they say, and that nothing happens without it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.harness import V1, message
from trunkline import Agent, Turn
from trunkline.host import Application
from trunkline.http.exchange import Disconnected
from trunkline.telemetry import traces

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What an SDK gets to see; it is gone again afterwards."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with monkeypatch.context() as patched:
        # Set by hand: the API lets a process set its provider only once.
        patched.setattr(trace, "_TRACER_PROVIDER", provider)
        traces.find_tracer()
        yield exporter
    traces.find_tracer()


def _agent(seen: list[str]) -> Agent:
    agent = Agent("traced", allowed_hosts=("localhost",))

    @agent.skill()
    async def work(turn: Turn) -> str:
        """Do something, and look at the trace."""
        seen.append(traces.traceparent(""))
        if "break" in turn.text:
            raise ValueError("planted in an exception")
        if "ask" in turn.text:
            await turn.ask("What?")
        return "done"

    return agent


def _client(app: Application) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost", headers=V1)


async def _send(client: httpx2.AsyncClient, text: str, headers: dict[str, str], **more: Any) -> Any:
    answer = await client.post("/message:send", json={"message": message(text, **more)}, headers=headers)
    return answer.json()


def _serve(texts: list[str], headers: dict[str, str], seen: list[str]) -> list[Any]:
    async def main() -> list[Any]:
        app = Application(_agent(seen), {"store": "memory:"})
        async with app.lifespan(), _client(app) as client:
            return [await _send(client, text, headers) for text in texts]

    return asyncio.run(main())


def _named(spans: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind is kind]


def test_a_request_is_a_span_of_its_callers_trace(spans: InMemorySpanExporter) -> None:
    (answer,) = _serve(["go"], {"traceparent": PARENT, "tracestate": "vendor=1"}, [])
    (span,) = _named(spans, SpanKind.SERVER)
    assert span.name == "SendMessage"
    assert span.parent is not None and span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.context.trace_state.get("vendor") == "1"
    assert span.attributes == {
        "rpc.system": "a2a",
        "rpc.method": "SendMessage",
        "a2a.tenant": "default",
        "a2a.outcome": "OK",
        "a2a.task_id": answer["task"]["id"],
    }
    assert span.status.status_code is StatusCode.UNSET


def test_a_run_is_a_child_of_the_request_that_opened_its_task(spans: InMemorySpanExporter) -> None:
    seen: list[str] = []
    (answer,) = _serve(["go"], {"traceparent": PARENT}, seen)
    (request,), (run,) = _named(spans, SpanKind.SERVER), _named(spans, SpanKind.INTERNAL)
    assert run.context is not None and request.context is not None and run.parent is not None
    assert run.parent.span_id == request.context.span_id
    # The skill runs inside its span: whatever it calls is told of it.
    assert seen == [f"00-{TRACE_ID}-{run.context.span_id:016x}-01"]
    assert run.attributes is not None and run.attributes["a2a.task_id"] == answer["task"]["id"]


def test_requests_without_a_trace_begin_one_each(spans: InMemorySpanExporter) -> None:
    _serve(["go", "go"], {}, [])
    ids = {span.context.trace_id for span in spans.get_finished_spans() if span.context is not None}
    assert len(ids) == 2 and len(spans.get_finished_spans()) == 4


def test_a_run_after_a_restart_is_in_the_same_trace(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    seen: list[str] = []

    async def main() -> None:
        task_id = ""
        for headers in ({"traceparent": PARENT}, {}):
            app = Application(_agent(seen), {"store": f"sqlite:///{tmp_path}/tasks.db"})
            async with app.lifespan(), _client(app) as client:
                answer = await _send(client, "ask", headers, **({"taskId": task_id} if task_id else {}))
                task_id = answer["task"]["id"]
        assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

    asyncio.run(main())
    runs = _named(spans, SpanKind.INTERNAL)
    assert len(runs) == 2
    assert {f"{run.context.trace_id:032x}" for run in runs if run.context is not None} == {TRACE_ID}
    parents = [run.parent for run in runs if run.parent is not None]
    assert len({(parent.trace_id, parent.span_id) for parent in parents}) == 1 and len(parents) == 2


def test_a_broken_run_tells_the_kind_of_its_error_and_no_more(spans: InMemorySpanExporter) -> None:
    _serve(["break"], {}, [])
    (run,) = _named(spans, SpanKind.INTERNAL)
    assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "ValueError")
    assert not run.events
    assert "planted" not in run.to_json()


@pytest.mark.parametrize(
    ("verb", "path", "name", "outcome"),
    [
        ("GET", "/tasks/0190a1b2-0000-7000-8000-000000000000", "GetTask", "TASK_NOT_FOUND"),
        ("GET", "/.well-known/agent-card.json", "AgentCard", "OK"),
        ("GET", "/delegate/x", "Delegate", "ROUTE_NOT_FOUND"),
        ("GET", "/nowhere", "unknown", "ROUTE_NOT_FOUND"),
        ("POST", "/a2a", "unknown", "CONTENT_TYPE_NOT_SUPPORTED"),
    ],
)
def test_a_refusal_is_no_error_of_ours(
    spans: InMemorySpanExporter, verb: str, path: str, name: str, outcome: str
) -> None:
    async def main() -> None:
        app = Application(_agent([]), {"store": "memory:"})
        async with app.lifespan(), _client(app) as client:
            await client.request(verb, path)
            await client.get("/healthz")

    asyncio.run(main())
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    assert (span.name, span.attributes["a2a.outcome"]) == (name, outcome)
    assert span.status.status_code is StatusCode.UNSET


def test_a_host_that_traces_is_the_parent(spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("host").start_as_current_span("host") as outer:
        _serve(["go"], {"traceparent": PARENT}, [])
    (request,) = _named(spans, SpanKind.SERVER)
    assert request.parent is not None
    assert request.parent.span_id == outer.get_span_context().span_id


def test_a_caller_that_left_was_not_answered(spans: InMemorySpanExporter) -> None:
    with pytest.raises(Disconnected), traces.request({}, traces.TraceSeen()):
        raise Disconnected
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None and span.attributes["a2a.outcome"] == "DISCONNECTED"


def test_a_plain_function_runs_inside_its_span_too(spans: InMemorySpanExporter) -> None:
    agent = Agent("plain")
    seen: list[str] = []

    @agent.skill()
    def work(text: str) -> str:
        """Look at the trace, in a thread."""
        seen.append(traces.traceparent(""))
        return text

    async def main() -> None:
        app = Application(agent, {"store": "memory:"})
        async with app.lifespan(), _client(app) as client:
            await _send(client, "go", {"traceparent": PARENT})

    asyncio.run(main())
    (run,) = _named(spans, SpanKind.INTERNAL)
    assert run.context is not None
    assert seen == [f"00-{TRACE_ID}-{run.context.span_id:016x}-01"]


def test_our_own_fault_is_an_error(spans: InMemorySpanExporter) -> None:
    seen = traces.TraceSeen()
    with traces.request({}, seen):
        seen.outcome = "UNAVAILABLE"
    assert spans.get_finished_spans()[0].status.status_code is StatusCode.ERROR


GOOD = [PARENT, PARENT.replace("00-", "01-", 1), PARENT.replace("00-", "cc-", 1) + "-more", PARENT[:-1] + "0"]
BAD = [
    "", "x", PARENT[:-1], PARENT + "0", PARENT + "-x", PARENT.upper(), PARENT.replace("00-", "ff-", 1), PARENT.replace(TRACE_ID, "0" * 32),
    f"00-{TRACE_ID}-{'0' * 16}-01", PARENT + "\n", " " + PARENT, PARENT.replace("-", "_"), f"cc{PARENT[2:]}0", "00-" + "\xb2" * 32 + PARENT[35:],
]  # fmt: skip


@pytest.mark.parametrize("given", GOOD)
def test_without_an_sdk_the_callers_trace_is_passed_on(given: str) -> None:
    seen: list[str] = []
    assert traces.recorded({b"traceparent": given.encode()}) == given[:55]
    with traces.request({}, traces.TraceSeen()), traces.running(given, "skill", "task", "context"):
        assert not trace.get_current_span().get_span_context().is_valid
        seen.append(traces.traceparent(given))
    assert seen == [given]


@pytest.mark.parametrize("given", BAD)
def test_a_trace_that_is_none_is_left_out(given: str) -> None:
    assert traces.recorded({b"traceparent": given.encode("latin-1")}) == ""
    assert traces.recorded({}) == ""
