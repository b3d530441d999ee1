"""Medians, ratios and verdicts as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.scenario import Hold, Sample, Scenario
from bench.servers import CONTENDERS

# How a target on a number beside the main one is told.
EXTRAS = {
    "grown_mib": "MiB",
    "finish_s": "s until all ended",
    "events_s": "events/s reached",
    "list_ms": "ms, p99 of a list",
    "start_s": "s to start",
    "cpu_s": "s of CPU while they wait",
}
Results = Mapping[tuple[str, str], Sequence[Sample]]


@dataclass(frozen=True)
class Verdict:
    """One target and whether it is met; `met` is None when a number is missing."""

    scenario: str
    claim: str
    measured: str
    met: bool | None


def numbers(scenarios: Iterable[Scenario], results: Results) -> str:
    """One row per scenario and server."""
    lines = [
        "| scenario | server | median | spread | server CPU µs each | more | bad |",
        "|---|---|---|---|---|---|---|",
    ]
    for scenario in scenarios:
        for name in scenario.contenders:
            samples = results.get((scenario.name, name), ())
            if samples:
                lines.append(f"| {scenario.title} | {CONTENDERS[name].label} | {_row(scenario, samples)} |")
    return "\n".join(lines)


def verdicts(scenarios: Iterable[Scenario], results: Results) -> list[Verdict]:
    """Every target of these scenarios; lost answers fail the scenario whatever its speed."""
    found: list[Verdict] = []
    for scenario in scenarios:
        found.extend(_judge(scenario, hold, results) for hold in scenario.holds)
        ours = [
            s
            for name in scenario.contenders
            if name.startswith("trunkline")
            for s in results.get((scenario.name, name), ())
        ]
        if ours:
            bad = sum(sample.bad for sample in ours)
            found.append(Verdict(scenario.title, "no wrong or lost answer", str(bad), bad == 0))
    return found


def targets(found: Iterable[Verdict]) -> str:
    """The verdicts as a table."""
    words = {True: "pass", False: "**fail**", None: "not measured"}
    lines = ["| scenario | target | measured | |", "|---|---|---|---|"]
    lines += [f"| {v.scenario} | {v.claim} | {v.measured} | {words[v.met]} |" for v in found]
    return "\n".join(lines)


def _judge(scenario: Scenario, hold: Hold, results: Results) -> Verdict:
    ours = _median(results.get((scenario.name, hold.ours), ()), hold.extra)
    sign = "≥" if hold.at_least else "≤"
    label = CONTENDERS[hold.ours].label
    if hold.peer:
        claim = f"{label} {sign} {hold.limit:g} × {CONTENDERS[hold.peer].label}"
        claim += f" ({EXTRAS[hold.extra]})" if hold.extra else ""
        peer = _median(results.get((scenario.name, hold.peer), ()), hold.extra)
        found = ours / peer if ours is not None and peer else None
        shown = "–" if found is None else f"{found:.2f} ×"
    else:
        unit = EXTRAS[hold.extra] if hold.extra else scenario.unit
        claim = f"{label} {sign} {hold.limit:g} {unit}"
        found = ours
        shown = "–" if found is None else f"{found:.3g}"
    if found is None:
        return Verdict(scenario.title, claim, shown, None)
    return Verdict(
        scenario.title, claim, shown, found >= hold.limit if hold.at_least else found <= hold.limit
    )


def _row(scenario: Scenario, samples: Sequence[Sample]) -> str:
    values = [sample.value for sample in samples]
    middle = statistics.median(values)
    spread = f"{(max(values) - min(values)) / middle:.0%}" if len(values) > 1 and middle else "–"
    cpu = statistics.median(sample.cpu_us for sample in samples)
    more = ", ".join(f"{key} {_median(samples, key):.4g}" for key in samples[0].extra)
    return (
        f"{_short(middle)} {scenario.unit} | {spread} | {f'{cpu:.0f}' if cpu else '–'} "
        f"| {more or '–'} | {sum(sample.bad for sample in samples)}"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 1_000 else f"{value:.3g}"


def _median(samples: Sequence[Sample], extra: str) -> float | None:
    if not samples:
        return None
    return statistics.median(sample.extra[extra] if extra else sample.value for sample in samples)
