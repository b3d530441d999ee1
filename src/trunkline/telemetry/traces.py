"""Spans by OpenTelemetry and the W3C trace context. Free of cost when no SDK is set up.

Only the API is needed; what becomes of a span is the business of the SDK that the operator installs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from msgspec import Struct
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    NonRecordingSpan,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

OK = "OK"
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?![0-9a-f])")
_PARENT_LENGTH = 55
_OURS = ("INTERNAL", "UNAVAILABLE")
_NOTHING = nullcontext()
_NOBODY = Context()
_RECENT = 1024
_recent: dict[str, SpanContext] = {}
_w3c = TraceContextTextMapPropagator()
_tracer: Tracer | None = None


class TraceSeen(Struct, eq=False):
    """What a request turned out to be, what became of it, and for whom it counts while it lasts."""

    operation: str = "unknown"
    tenant: str = ""
    outcome: str = OK
    holds: tuple[str, str, str] | None = None


def find_tracer() -> None:
    """Look once, at the start, whether an SDK is set up."""
    global _tracer  # noqa: PLW0603 - OpenTelemetry's own provider is one per process too
    provider = trace.get_tracer_provider()
    absent = isinstance(provider, ProxyTracerProvider | NoOpTracerProvider)
    _tracer = None if absent else provider.get_tracer("trunkline")


def tracing() -> bool:
    """Whether anybody wants spans; to ask is cheaper than a context that does nothing."""
    return _tracer is not None


def request(headers: Mapping[bytes, bytes], seen: TraceSeen) -> AbstractContextManager[None]:
    """A server's span around a request, named by what it is found to be."""
    return _NOTHING if _tracer is None else _RequestSpan(_tracer, headers, seen)


class _Current:
    """A span that is the current one while it lasts. By hand: a generator costs as much as the span."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = attach(set_span_in_context(self._span))

    def _end(self) -> None:
        detach(self._token)
        self._span.end()


class _RequestSpan(_Current):
    __slots__ = ("_seen",)

    def __init__(self, tracer: Tracer, headers: Mapping[bytes, bytes], seen: TraceSeen) -> None:
        # Mounted in a host that traces, the host's span is the parent; else the caller's.
        known = get_current_span().get_span_context().is_valid
        super().__init__(
            tracer.start_span(seen.operation, None if known else _caller(headers), SpanKind.SERVER)
        )
        self._seen = seen

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        seen, span = self._seen, self._span
        if error is not None:
            # The caller has left, or the server ends.
            seen.outcome = type(error).__name__.upper()
        if span.is_recording():
            span.update_name(seen.operation)
            told = {"rpc.system": "a2a", "rpc.method": seen.operation, "a2a.outcome": seen.outcome}
            span.set_attributes({**told, "a2a.tenant": seen.tenant} if seen.tenant else told)
            if seen.outcome in _OURS:
                span.set_status(StatusCode.ERROR, seen.outcome)
        self._end()


def about(task_id: str) -> None:
    """The current request is about this task."""
    if _tracer is not None:
        get_current_span().set_attribute("a2a.task_id", task_id)


def recorded(headers: Mapping[bytes, bytes]) -> str:
    """The `traceparent` that a task opened by the current request is recorded with, or nothing."""
    if _tracer is not None:
        return _remember(get_current_span().get_span_context())
    given = headers.get(b"traceparent")
    if given is None:
        return ""
    text = given.decode("latin-1")
    # A later version may have more after these fields; version 00 may not.
    good = _PARENT.match(text) and (len(text) == _PARENT_LENGTH or not text.startswith("00"))
    return text[:_PARENT_LENGTH] if good else ""


class _Running(_Current):
    __slots__ = ()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            # Not its text, which may quote what people said.
            self._span.set_status(StatusCode.ERROR, type(error).__name__)
        self._end()


def running(parent: str, skill: str, task_id: str, context_id: str) -> AbstractContextManager[None]:
    """A span around a run of an executor, in the trace of the request that opened its task."""
    if _tracer is None:
        return _NOTHING
    remote = _parent(parent)
    if remote is not None and not remote.trace_flags & TraceFlags.SAMPLED:
        # Nobody keeps the trace, so its run needs no span of its own; what it calls still belongs to it.
        return _Running(NonRecordingSpan(remote))
    context = _NOBODY if remote is None else set_span_in_context(NonRecordingSpan(remote), _NOBODY)
    attributes = {"a2a.skill": skill, "a2a.task_id": task_id, "a2a.context_id": context_id}
    return _Running(_tracer.start_span(f"run {skill}", context, attributes=attributes))


def traceparent(parent: str) -> str:
    """The header for requests that belong to the current span; `parent` itself where there is none."""
    if _tracer is None:
        return parent
    found = get_current_span().get_span_context()
    return _header(found) if found.is_valid else parent


def _header(span: SpanContext) -> str:
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def _remember(span: SpanContext) -> str:
    """The header, and for the run that comes next what it was made of: reading it back costs as much."""
    if not span.is_valid:
        return ""
    if len(_recent) >= _RECENT:
        _recent.clear()
    text = _header(span)
    _recent[text] = span
    return text


def _caller(headers: Mapping[bytes, bytes]) -> Context:
    """The caller's trace. Never the current context: it may be that of whoever woke us."""
    given = headers.get(b"traceparent")
    if given is None:
        return _NOBODY
    state = headers.get(b"tracestate", b"").decode("latin-1")
    return _w3c.extract({"traceparent": given.decode("latin-1"), "tracestate": state}, Context())


def _parent(recorded: str) -> SpanContext | None:
    """The span that a task was opened in, as its log has it."""
    if (found := _recent.pop(recorded, None)) is not None:
        return found
    if not _PARENT.match(recorded):
        return None
    trace_id, span_id, flags = int(recorded[3:35], 16), int(recorded[36:52], 16), int(recorded[53:55], 16)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
