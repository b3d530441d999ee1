"""Compare Trunkline with other A2A servers on this machine: `python -m bench.run --help`."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import platform
import resource
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import contract, database, table
from bench.generator import run
from bench.scenario import Sample, Scale, Scenario
from bench.scenarios import SCENARIOS
from bench.servers import CONTENDERS, GENERATOR_CPU, Contender, Server, install, pin

Results = dict[tuple[str, str], list[Sample]]


def main(argv: list[str] | None = None) -> int:
    """0 when every measured target is met, 1 otherwise."""
    asked = _arguments(argv)
    scale = Scale.quick() if asked.quick else Scale()
    if asked.rounds:
        scale = dataclasses.replace(scale, rounds=asked.rounds)
    chosen = [s for s in SCENARIOS if not asked.only or s.name in asked.only]
    results = _measure(chosen, scale, asked.servers)
    found = table.verdicts(chosen, results)
    report = "\n\n".join((_setting(scale), table.numbers(chosen, results), table.targets(found)))
    print("\n" + report)
    if asked.markdown:
        asked.markdown.write_text(report + "\n", encoding="utf-8")
    return 1 if any(verdict.met is False for verdict in found) else 0


def _measure(chosen: list[Scenario], scale: Scale, servers: frozenset[str]) -> Results:
    names = {name for scenario in chosen for name in scenario.contenders if not servers or name in servers}
    names = _possible(names)
    for name in sorted(names):
        install(CONTENDERS[name])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if any(CONTENDERS[name].needs_database for name in names):
        database.start()  # before this process is pinned, which its children inherit
    pin(0, GENERATOR_CPU)
    gc.disable()  # a pause of the generator must not look like one of the server
    results: Results = defaultdict(list)
    for name in sorted(names):
        _verify(CONTENDERS[name])
    for scenario in chosen:
        for number in range(min(scale.rounds, scenario.rounds or scale.rounds)):
            # Back and forth, so that a slow minute of the machine does not always hit the same one.
            for name in scenario.contenders[:: 1 if number % 2 == 0 else -1]:
                if name in names:
                    results[scenario.name, name].append(_once(scenario, CONTENDERS[name], scale))
                    gc.collect()
    return results


def _possible(names: set[str]) -> set[str]:
    """Those that can run here: PostgreSQL may be missing."""
    missing = database.why_none()
    without = {name for name in names if not CONTENDERS[name].needs_database} if missing else names
    if without != names:
        print(f"not measured: {', '.join(sorted(names - without))}: {missing}", flush=True)
    return without


def _once(scenario: Scenario, contender: Contender, scale: Scale) -> Sample:
    sample = scenario.measure(contender, scale)
    print(f"{scenario.name:13} {contender.label:34} {sample.value:12,.2f} {scenario.unit}", flush=True)
    return sample


def _verify(contender: Contender) -> None:
    if contender.keeps and contender.serves:
        with Server(contender) as server:
            run(contract.check(server.endpoint, waits=contender.waits))


def _setting(scale: Scale) -> str:
    cores = os.cpu_count() or 1
    pinned = "server on one core, generator on another" if cores >= 2 else "server and generator on one core"
    pinned += "; with PostgreSQL, servers and database on all"
    return (
        "Only ratios of one run compare; on a shared machine the CPU column is steadier than the rate. Where "
        "first_event_ms is close to whole_ms a stream came in one burst: its rate is that of an agent that "
        "never pauses, and says nothing of the time a single chunk takes.\n\n"
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cores} cores "
        f"({pinned}); medians of up to {scale.rounds} alternated rounds of {scale.seconds:g} s."
    )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--quick", action="store_true", help="a first look in about five minutes")
    parser.add_argument("--only", type=_names(names), default=frozenset(), help=f"some of {','.join(names)}")
    parser.add_argument(
        "--servers", type=_names(CONTENDERS), default=frozenset(), help=f"some of {','.join(CONTENDERS)}"
    )
    parser.add_argument(
        "--rounds", type=int, default=0, help="alternated rounds of each scenario (5; quick: 2)"
    )
    parser.add_argument("--markdown", type=Path, help="write the tables to this file too")
    return parser.parse_args(argv)


def _names(known: Iterable[str]) -> Callable[[str], frozenset[str]]:
    def parse(text: str) -> frozenset[str]:
        asked = frozenset(text.split(","))
        if unknown := asked - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
        return asked

    return parse


if __name__ == "__main__":
    sys.exit(main())
