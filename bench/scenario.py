"""What a scenario is: who is measured, how much of everything, and which targets hold."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from bench.generator import run
from bench.servers import Contender, Server


@dataclass(frozen=True)
class Scale:
    """How much of everything; `quick` is for a first look."""

    rounds: int = 5
    warm: float = 1.0
    seconds: float = 4.0
    pool: int = 256
    fan_out: int = 1_000
    idle: int = 10_000
    finished: int = 100_000
    kills: int = 30
    stored: int = 100_000
    unfinished: int = 10_000
    tenants: int = 1_000

    @classmethod
    def quick(cls) -> Scale:
        """About four minutes in all."""
        return cls(
            rounds=2,
            warm=0.5,
            seconds=1.5,
            pool=64,
            idle=2_000,
            finished=20_000,
            kills=6,
            stored=20_000,
            unfinished=2_000,
            tenants=50,
        )


@dataclass(frozen=True)
class Sample:
    """One number of one run, with what must be zero and what else is worth a column."""

    value: float
    bad: int = 0
    cpu_us: float = 0.0
    extra: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Hold:
    """A target: ours against a peer (a ratio), or against a fixed number when no peer is named."""

    ours: str
    limit: float
    peer: str = ""
    at_least: bool = True
    extra: str = ""


@dataclass(frozen=True)
class Scenario:
    """A row of the table."""

    name: str
    title: str
    unit: str
    measure: Callable[[Contender, Scale], Sample]
    contenders: tuple[str, ...]
    holds: tuple[Hold, ...]
    rounds: int = 0  # more than this many never; 0: as many as asked


def served(
    measure: Callable[[Server, Scale], Coroutine[None, None, Sample]],
) -> Callable[[Contender, Scale], Sample]:
    """A measurement of one fresh server that runs alone."""

    def once(contender: Contender, scale: Scale) -> Sample:
        with Server(contender) as server:
            try:
                return run(measure(server, scale))
            except Exception:
                print(f"{contender.label} failed; its log ends:\n{server.log()}", file=sys.stderr)
                raise

    return once
