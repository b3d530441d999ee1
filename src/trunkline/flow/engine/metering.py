"""The model calls of one run: recorded in its log, counted in quotas, bounded by the budget of its chain."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from typing import cast

import msgspec
from msgspec import Struct

from trunkline.errors import TooManyRequests, TurnOver
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


class _CallUnderWay(Struct, frozen=True, eq=False):
    model: str
    input_tokens: int


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
        self._open: dict[_CallUnderWay, None] = {}
        self._keeping: set[asyncio.Task[None]] = set()

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
        with self._counting(model, input_tokens, output_tokens):
            await self._work.drain()

    @contextmanager
    def calling(self, model: str, input_tokens: int) -> Generator[None]:
        """See `CallMeter`."""
        call = _CallUnderWay(model, input_tokens)
        self._open[call] = None
        try:
            yield
        except asyncio.CancelledError:
            self._charge(call)
            raise
        finally:
            self._open.pop(call, None)

    def charge_open(self) -> None:
        """Record the calls that are under way at the end of the run: providers charge for these too."""
        for call in [*self._open]:
            self._charge(call)

    def _charge(self, call: _CallUnderWay) -> None:
        if call not in self._open:
            return
        del self._open[call]
        with suppress(TurnOver), ExitStack() as counting:
            counting.enter_context(self._counting(call.model, call.input_tokens, 0))
            task = self._work.loop.create_task(self._kept(counting.pop_all()))
            self._keeping.add(task)
            task.add_done_callback(self._keeping.discard)

    async def _kept(self, counting: ExitStack) -> None:
        """Count a call until its record is durable; the run does not wait for that."""
        with counting, suppress(TurnOver):
            await self._work.drain()

    @contextmanager
    def _counting(self, model: str, input_tokens: int, output_tokens: int) -> Generator[None]:
        """Record a call, and count it at once until the record is durable."""
        price = price_of(model, input_tokens, output_tokens)
        call, work = ModelSpending(input_tokens, output_tokens, price), self._work
        self.spent = self.spent.plus(call)
        with self._meter.counting(work.tenant, work.state.principal, call):
            self._record(SPENT, {**call.body, "model": model})
            yield

    def report(self, *, success: bool) -> None:
        """Record the cost of the whole run at its end."""
        if self.spent:
            self._record(UNTOLD, {_COST: {**self.spent.body, "success": success}})

    def _record(self, name: str, body: Metadata) -> None:
        place, self._place = self._place, self._place + 1
        self._work.recorded_step(place, name)
        self._work.put(Stepped(place, name, msgspec.to_builtins(body)))
