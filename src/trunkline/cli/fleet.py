"""`trunkline fleet`: how the agents of a store did, as a table that can be watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from trunkline.cli.admin import AGENTS, HEALTH, Operator
from trunkline.cli.console import print_json, watch_page
from trunkline.cli.parsing import Commands, OfTenant, Watch
from trunkline.errors import Misuse, Refused
from trunkline.fleet.health.snapshot import AgentFigures, FleetSnapshot

commands = Commands()
_FIGURES = ("tasks", "success", "p50", "p95", "cost", "failed in 1 h", "24 hours")
_BARS = "▁▂▃▄▅▆▇█"
# Wider than any row: where a terminal is narrower its lines wrap, and nothing is left out.
_WIDE = 160


@commands.local("fleet")
def fleet(
    *,
    watch: Watch = False,
    agent: Annotated[str, typer.Option("--agent", help="Show only this agent.")] = "",
    tenant: OfTenant = "",
    operator: Operator,
) -> None:
    """Show the tasks, success rate, durations and cost of each agent."""
    if watch and operator.as_json:
        raise Misuse("--watch shows a table; leave it out for JSON")

    def look() -> Group:
        return _page(_asked(operator, tenant, agent), _states(operator, tenant))

    if watch:
        watch_page(look)
    elif operator.as_json:
        print_json(_asked(operator, tenant, agent), compact=True)
    else:
        Console(highlight=False, width=_WIDE).print(look())


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


def _states(operator: Operator, tenant: str) -> dict[str, str]:
    """Whether each agent of a running hub takes work now; of any other server nothing."""
    try:
        listed = list(operator.each(AGENTS, tenant=tenant))
    except (Misuse, Refused):
        return {}
    breakers = {"open": ", breaker open", "half-open": ", breaker half-open"}
    return {one["name"]: one["state"] + breakers.get(one["breaker"], "") for one in listed}


def _page(found: FleetSnapshot, states: Mapping[str, str]) -> Group:
    table = Table("agent", *["state"] if states else [], *_FIGURES, box=box.SIMPLE_HEAD)
    for one in found.agents:
        state = [states.get(one.agent, "not listed")] if states else []
        table.add_row(*[Text(cell) for cell in (one.agent, *state, *_cells(one))])
    lines = [f"alert: {alert.kind} is {alert.value:.4g}, above {alert.limit:.4g}" for alert in found.alerts]
    lines += [f"never succeeded: {one.agent} {one.skill}".rstrip() for one in found.orphaned_skills]
    return Group(
        table if found.agents else Text("no agent has done anything yet"), *[Text(line) for line in lines]
    )


def _cells(one: AgentFigures) -> list[str]:
    rate = "" if one.success_rate is None else f"{one.success_rate:.0%}"
    return [
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
