"""The demo agent with tracing set up, as an operator would: one trace in ten is kept, batched and exported.

`TRUNKLINE_BENCH_TRACES` is another share of them, 1 for all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from trunkline.demo import agent

__all__ = ["agent"]


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


share = float(os.environ.get("TRUNKLINE_BENCH_TRACES", "0.1"))
provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(share)))
provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
trace.set_tracer_provider(provider)
