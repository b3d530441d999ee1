"""Spans by OpenTelemetry and the W3C trace context. Free of cost when no SDK is set up.

Only the API is needed; what becomes of a span is the business of the SDK that the operator installs.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NoOpTracerProvider,
    ProxyTracerProvider,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

OK = "OK"
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?![0-9a-f])")
_PARENT_LENGTH = 55
_OURS = ("INTERNAL", "UNAVAILABLE")
_NOTHING = nullcontext()
_w3c = TraceContextTextMapPropagator()
_tracer: Tracer | None = None


class Seen:
    """What a request turned out to be, what became of it, and for whom it counts while it lasts."""

    __slots__ = ("holds", "operation", "outcome", "tenant")

    def __init__(self) -> None:
        self.operation = "unknown"
        self.tenant = ""
        self.outcome = OK
        self.holds: tuple[str, str, str] | None = None


def find_tracer() -> None:
    """Look once, at the start, whether an SDK is set up."""
    global _tracer  # noqa: PLW0603 - OpenTelemetry's own provider is one per process too
    provider = trace.get_tracer_provider()
    absent = isinstance(provider, ProxyTracerProvider | NoOpTracerProvider)
    _tracer = None if absent else provider.get_tracer("trunkline")


def tracing() -> bool:
    """Whether anybody wants spans; to ask is cheaper than a context that does nothing."""
    return _tracer is not None


def request(headers: Mapping[bytes, bytes], seen: Seen) -> AbstractContextManager[None]:
    """A server's span around a request, named by what it is found to be."""
    return _NOTHING if _tracer is None else _request(_tracer, headers, seen)


@contextmanager
def _request(tracer: Tracer, headers: Mapping[bytes, bytes], seen: Seen) -> Generator[None]:
    # Mounted in a host that traces, the host's span is the parent; else the caller's.
    known = get_current_span().get_span_context().is_valid
    parent = None if known else _context(_text(headers, b"traceparent"), _text(headers, b"tracestate"))
    with tracer.start_as_current_span(
        seen.operation, parent, SpanKind.SERVER, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except BaseException as error:
            # The caller has left, or the server ends.
            seen.outcome = type(error).__name__.upper()
            raise
        finally:
            span.update_name(seen.operation)
            span.set_attributes(
                {"rpc.system": "a2a", "rpc.method": seen.operation, "a2a.outcome": seen.outcome}
            )
            if seen.tenant:
                span.set_attribute("a2a.tenant", seen.tenant)
            if seen.outcome in _OURS:
                span.set_status(StatusCode.ERROR, seen.outcome)


def about(task_id: str) -> None:
    """The current request is about this task."""
    if _tracer is not None:
        get_current_span().set_attribute("a2a.task_id", task_id)


def recorded(headers: Mapping[bytes, bytes]) -> str:
    """The `traceparent` that a task opened by the current request is recorded with, or nothing."""
    if _tracer is not None:
        return traceparent("")
    given = headers.get(b"traceparent")
    if given is None:
        return ""
    text = given.decode("latin-1")
    # A later version may have more after these fields; version 00 may not.
    good = _PARENT.match(text) and (len(text) == _PARENT_LENGTH or not text.startswith("00"))
    return text[:_PARENT_LENGTH] if good else ""


@contextmanager
def _running(tracer: Tracer, parent: str, name: str, attributes: dict[str, str]) -> Generator[None]:
    with tracer.start_as_current_span(
        name,
        _context(parent, ""),
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            # Not its text, which may quote what people said.
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise


def running(parent: str, skill: str, task_id: str, context_id: str) -> AbstractContextManager[None]:
    """A span around a run of an executor, in the trace of the request that opened its task."""
    if _tracer is None:
        return _NOTHING
    attributes = {"a2a.skill": skill, "a2a.task_id": task_id, "a2a.context_id": context_id}
    return _running(_tracer, parent, f"run {skill}", attributes)


def traceparent(parent: str) -> str:
    """The header for requests that belong to the current span; `parent` itself where there is none."""
    carrier: dict[str, str] = {}
    _w3c.inject(carrier)
    return carrier.get("traceparent", parent)


def _context(parent: str, state: str) -> Context:
    # Never the current context: it may be that of whoever woke us.
    return _w3c.extract({"traceparent": parent, "tracestate": state}, Context())


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")
