"""The metrics page for Prometheus. Needs the extra `metrics`; nothing here is on the hot path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, Protocol

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from trunkline.telemetry.counters import AgentSample, Counters, Histogram


class RunnerFigures(Protocol):
    """The runner, as far as its figures go."""

    node: str

    @property
    def running(self) -> int:
        """Tasks in work here."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it takes work."""
        ...

    @property
    def recovered(self) -> dict[str, int]:
        """Tasks of dead nodes that were taken over here, by whether they ran again and how."""
        ...

    @property
    def late(self) -> int:
        """Events that came after the end, or after somebody else's claim."""
        ...


class DeliveryFigures(Protocol):
    """The figures of webhook deliveries."""

    done: int
    retried: int
    dead: int
    dropped: int
    lag_ms: int


class Metrics(Collector):
    """Every metric of this process, the author's own in the default registry included."""

    def __init__(
        self,
        counters: Counters,
        work: RunnerFigures,
        streams: Sized,
        deliveries: DeliveryFigures | None = None,
        fleet: Callable[[], Sequence[AgentSample] | None] = lambda: None,
    ) -> None:
        self._counters = counters
        self._work = work
        self._streams = streams
        self._deliveries = deliveries
        self._fleet = fleet
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self, accept: str) -> tuple[bytes, bytes]:
        """The page and its media type, in the format that the reader prefers."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type.encode()

    def collect(self) -> Iterator[Metric]:
        """All families. Each sample names the node: behind one socket several processes answer in turn."""
        for family in (*self._own(), *self._delivery_families(), *self._of_fleet(), *REGISTRY.collect()):
            family.samples = [
                sample._replace(labels={**sample.labels, "node": self._work.node})
                for sample in family.samples
            ]
            yield family

    def _own(self) -> Iterator[Metric]:
        counters, work = self._counters, self._work
        ready = "1 if the store takes writes and the server does not drain."
        yield GaugeMetricFamily("trunkline_ready", ready, value=work.ready)
        running = "Tasks in work in this process."
        yield GaugeMetricFamily("trunkline_tasks_running", running, value=work.running)
        yield GaugeMetricFamily("trunkline_streams_open", "Event streams open now.", value=len(self._streams))
        changes = "Committed changes of tasks, by the state they were left in."
        yield _counter("trunkline_task_changes", changes, ("state",), counters.changes)
        requests = "Answered requests, by operation and outcome."
        yield _counter("trunkline_requests", requests, ("operation", "outcome"), counters.requests)
        refusals = "Requests that were refused, by reason."
        yield _counter("trunkline_refusals", refusals, ("reason",), counters.refusals())
        appends = "Appends that the store has ended, by what became of them."
        yield _counter("trunkline_appends", appends, ("outcome",), counters.appends)
        commits = "Time from handing a group to the store to its commit."
        yield _histogram("trunkline_commit_seconds", commits, counters.commit_seconds)
        yield _histogram("trunkline_commit_appends", "Appends per group.", counters.commit_appends)
        drifts = "Successful runs whose effects were not those that their skill declares."
        yield _counter("trunkline_effect_drifts", drifts, ("skill",), counters.drifts)
        takeovers = "Tasks taken over from dead processes, by whether they ran again and how."
        yield _counter("trunkline_takeovers", takeovers, ("again",), work.recovered)
        late = "Events refused because the task had ended or moved."
        yield _counter("trunkline_late_events", late, (), {(): work.late})

    def _delivery_families(self) -> Iterator[Metric]:
        found = self._deliveries
        if found is None:
            return
        text = "Attempts to deliver a notification, by what became of them."
        outcomes = {name: getattr(found, name) for name in ("done", "retried", "dead", "dropped")}
        yield _counter("trunkline_deliveries", text, ("outcome",), outcomes)
        lag = "How long the oldest of the deliveries that were taken last had been due."
        yield GaugeMetricFamily("trunkline_delivery_lag_seconds", lag, value=found.lag_ms / 1000)

    def _of_fleet(self) -> Iterator[Metric]:
        found = self._fleet()
        if found is None:
            return
        outcomes = GaugeMetricFamily(
            "trunkline_fleet_outcomes",
            "Tasks that ended in the window of health, and questions, by agent and class.",
            labels=("tenant", "agent", "outcome"),
        )
        cost = GaugeMetricFamily("trunkline_fleet_cost_usd", "What they cost.", labels=("tenant", "agent"))
        latency = GaugeMetricFamily(
            "trunkline_fleet_latency_seconds",
            "How long they took, from the first event to the end.",
            labels=("tenant", "agent", "quantile"),
        )
        for one in found:
            for outcome, count in one.outcomes.items():
                outcomes.add_metric((one.tenant, one.agent, outcome), count)
            cost.add_metric((one.tenant, one.agent), one.cost_usd)
            for quantile, value in one.latency.items():
                latency.add_metric((one.tenant, one.agent, quantile), value)
        yield from (outcomes, cost, latency)


def _counter(name: str, text: str, labels: Sequence[str], values: Mapping[Any, int]) -> Metric:
    """A family with a value for each key: a text where there is one label, else a tuple of texts."""
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric((key,) if isinstance(key, str) else key, value)
    return family


def _histogram(name: str, text: str, values: Histogram) -> Metric:
    family = HistogramMetricFamily(name, text, labels=())
    family.add_metric((), values.cumulative(), values.total)
    return family
