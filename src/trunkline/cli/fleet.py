"""`trunkline fleet`: how the agents of a store did, as a table that can be watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from trunkline.cli.admin import HEALTH, Operator
from trunkline.cli.console import print_json, watch_page
from trunkline.cli.parsing import Commands, OfTenant, Watch
from trunkline.errors import Misuse
from trunkline.fleet.health.snapshot import AgentFigures, FleetSnapshot

commands = Commands()
_BARS = "▁▂▃▄▅▆▇█"
# Wider than any row: where a terminal is narrower its lines wrap, and nothing is left out.
_WIDE = 160


@commands.local("fleet")
def fleet(
    *,
    watch: Watch = False,
    agent: Annotated[str, typer.Option("--agent", help="Only this agent.")] = "",
    tenant: OfTenant = "",
    operator: Operator,
) -> None:
    """Show how agents did: tasks, success, durations, cost, and the last 24 hours."""
    if watch and operator.as_json:
        raise Misuse("--watch shows a table; leave it out for JSON")
    if watch:
        watch_page(lambda: _page(_asked(operator, tenant, agent)))
    elif operator.as_json:
        print_json(_asked(operator, tenant, agent), compact=True)
    else:
        Console(highlight=False, width=_WIDE).print(_page(_asked(operator, tenant, agent)))


def spark(values: Sequence[int]) -> str:
    """The values as bars: the largest has the highest, none has none."""
    most = max(values, default=0)
    return "".join([_BARS[(value * len(_BARS) - 1) // most] if value else " " for value in values])


def _asked(operator: Operator, tenant: str, agent: str) -> FleetSnapshot:
    def page(after: str) -> FleetSnapshot:
        answer = operator.ask("GET", HEALTH, tenant=tenant, agent=agent, after=after)
        return msgspec.convert(answer, FleetSnapshot)

    found = page("")
    while found.next is not None:
        more = page(found.next)
        found = replace(found, agents=[*found.agents, *more.agents], next=more.next)
    return found


def _page(found: FleetSnapshot) -> Group:
    table = Table(
        "agent", "tasks", "success", "p50", "p95", "cost", "failed in 1 h", "24 hours", box=box.SIMPLE_HEAD
    )
    for one in found.agents:
        table.add_row(*[Text(cell) for cell in _cells(one)])
    lines = [f"alert: {alert.kind} is {alert.value:.4g}, above {alert.limit:.4g}" for alert in found.alerts]
    lines += [f"never succeeded: {one.agent} {one.skill}".rstrip() for one in found.orphaned_skills]
    return Group(
        table if found.agents else Text("no agent has done anything yet"), *[Text(line) for line in lines]
    )


def _cells(one: AgentFigures) -> list[str]:
    rate = "" if one.success_rate is None else f"{one.success_rate:.0%}"
    return [
        one.agent,
        str(one.total_outcomes),
        rate,
        _duration(one.p50_latency_ms),
        _duration(one.p95_latency_ms),
        f"${one.total_cost_usd:.2f}",
        f"{one.failure_rate_1h:.0%}",
        spark(one.hourly),
    ]


def _duration(ms: int | None) -> str:
    if ms is None:
        return ""
    return f"{ms} ms" if ms < 10_000 else f"{ms / 1000:.0f} s" if ms < 600_000 else f"{ms / 60_000:.0f} min"
