"""The model calls of one run: recorded in its log, counted in quotas, bounded by the budget of its chain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from trunkline.errors import TooManyRequests
from trunkline.fleet.health.prices import cost_of, price_of, tokens_of
from trunkline.flow.activities.base import Outcome, failed
from trunkline.flow.engine.walk import Walk
from trunkline.log.events import AnyEvent, Stepped
from trunkline.run import hops
from trunkline.run.executor import Work
from trunkline.run.spending import Meter, ModelSpending
from trunkline.wire.reports import SPENT, UNTOLD, URI
from trunkline.wire.types import Metadata

# The codes that end a run, whichever of its branches asked for the call.
BUDGET_SPENT, QUOTA_SPENT = "BUDGET_SPENT", "QUOTA_SPENT"
STOPPING = frozenset({BUDGET_SPENT, QUOTA_SPENT})
# The steps before it are the definition and its provenance.
_FIRST_PLACE = 2
_COST = f"{URI}cost-v1"


class RunMeter:
    """Meters the model calls of a run; `spent` is what they cost so far."""

    def __init__(self, work: Work, meter: Meter, walk: Walk) -> None:
        """Begin with nothing spent.

        Args:
            work: the task of the run.
            meter: the quotas.
            walk: the walk of the run, which knows how many tasks it has called.
        """
        self._work = work
        self._meter = meter
        self._walk = walk
        self._place = _FIRST_PLACE
        self.spent = ModelSpending()

    def restore(self, events: Iterable[AnyEvent]) -> None:
        """Add the calls that the log of the run records."""
        for event in events:
            if isinstance(event, Stepped) and event.place >= _FIRST_PLACE:
                self._place = max(self._place, event.place + 1)
                if event.name == SPENT:
                    body = cast("Metadata", event.result)
                    self.spent = self.spent.plus(ModelSpending(*tokens_of(body), cost_of(body) or 0.0))

    def refusal(self) -> Outcome | None:
        """See `CallMeter`."""
        state = self._work.state
        left = hops.grants_after(state, self._walk.calls, self.spent.cost_usd).cost_left(state)
        if left is not None and left <= 0:
            return failed(BUDGET_SPENT, "what the caller allows this run to cost is spent")
        try:
            self._meter.check_spent(self._work.tenant, state.principal)
        except TooManyRequests as met:
            return failed(QUOTA_SPENT, met.message)
        return None

    async def count(self, model: str, input_tokens: int, output_tokens: int) -> None:
        """See `CallMeter`."""
        price = price_of(model, input_tokens, output_tokens)
        call = ModelSpending(input_tokens, output_tokens, price)
        self.spent = self.spent.plus(call)
        work = self._work
        with self._meter.counting(work.tenant, work.state.principal, call):
            self._record(SPENT, {**call.body, "model": model})
            await work.drain()

    def report(self, *, success: bool) -> None:
        """Record the cost of the whole run at its end."""
        if self.spent:
            self._record(UNTOLD, {_COST: {**self.spent.body, "success": success}})

    def _record(self, name: str, body: Metadata) -> None:
        place, self._place = self._place, self._place + 1
        self._work.recorded_step(place, name)
        self._work.put(Stepped(place, name, msgspec.to_builtins(body)))
