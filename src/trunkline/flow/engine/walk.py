"""The walk through a definition: which rows come next, and what is needed before more can come. Pure.

A walk has lanes: one for the run, and one for each branch of a `parallel` node that has begun. A lane goes on
until it needs something (`effects`); then the next branch begins. A branch that needs nothing that takes time
is over before that, so branches without waits come one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

from msgspec import Struct, UnsetType

from trunkline.flow.definition.document import Definition, Node
from trunkline.flow.engine.effects import UNRECORDED, CheckState, Effect, Span
from trunkline.flow.engine.replay import MISSING, History, StrayError
from trunkline.flow.engine.rows import VERSION
from trunkline.flow.state import next_state
from trunkline.log.events import FlowRow
from trunkline.wire.types import Metadata

# From this many bytes on, values in unrecorded rows are recorded before the next node.
HEAVY_BYTES = 1 << 20
Steps = Generator["Effect | Fork", Any, str | None]


class NodeFailed(Exception):
    """A node, or the walk itself, has failed; `told` if the row of that is written."""

    def __init__(
        self, reason: str, message: str, node: str | None = None, code: str = "", prefix: str = ""
    ) -> None:
        super().__init__(message)
        self.reason, self.message, self.node, self.code, self.prefix = reason, message, node, code, prefix
        self.told = False


class Ended(Struct, frozen=True):
    """How a run has ended."""

    ok: bool
    result: Any = None
    error: str = ""
    code: str = ""


class Lane:
    """One way through the definition, and what it needs next."""

    __slots__ = ("branch", "effect", "fork", "number", "steps")

    def __init__(self, number: int, steps: Steps, fork: Fork | None = None, branch: int = 0) -> None:
        self.number = number
        self.steps = steps
        self.fork = fork
        self.branch = branch
        self.effect: Effect | None = None


class Fork:
    """The branches of one `parallel` node: how many have begun, and what became of each."""

    __slots__ = ("branches", "lanes", "need", "node", "owner", "settled", "succeeded")

    def __init__(self, node: Node, branches: list[Callable[[], Steps]], need: int) -> None:
        self.node = node
        self.branches = branches
        self.need = need
        self.owner: Lane | None = None
        self.lanes: list[Lane] = []
        # The branches that are over, by their places; and how many of them came to the join.
        self.settled: set[int] = set()
        self.succeeded = 0

    @property
    def names(self) -> list[str]:
        """The names of the branches."""
        return [branch["name"] for branch in self.node.config["branches"]]

    @property
    def join(self) -> str:
        """How the branches are joined."""
        return self.node.config["join"]

    @property
    def waits(self) -> bool:
        """Whether a branch has not begun."""
        return len(self.lanes) < len(self.branches)


class Walk:
    """A walk that has begun; `rows` are those that are to be written."""

    def __init__(
        self,
        execution_id: str,
        definition: Definition,
        given: dict[str, Any],
        *,
        check: Callable[[dict[str, Any]], str | None | UnsetType],
        clock: Callable[[], int],
        history: History | None = None,
    ) -> None:
        self.execution_id = execution_id
        self.definition = definition
        self.state: dict[str, Any] = dict(given)
        self.rows: list[FlowRow] = []
        self.ended: Ended | None = None
        # What is needed no longer: the effects of branches that were cancelled.
        self.dropped: list[Lane] = []
        self.clock = clock
        self.visits: dict[str, int] = {}
        # How many nodes it has come to, and how many children it was to have.
        self.nodes = self._calls = 0
        # How many nodes it has come to since it last waited.
        self.unpaused = 0
        # The bytes of values of filters that unrecorded rows may contain.
        self.unrecorded = 0
        # Since an interrupt was answered every node ends with a checkpoint, until the next word from outside.
        self.resumed = False
        self._check = check
        self._history = history or History()
        self._boundaries = 0
        self._lanes = 0
        # Lanes whose effect nobody has begun, and those whose effect is under way.
        self._new: list[Lane] = []
        self.waiting: list[Lane] = []
        self._forks: list[Fork] = []
        # Whether no further branch may begin: hosts are asked for one thing after the other.
        self.held = False

    @property
    def forks(self) -> int:
        """How many `parallel` nodes are open now."""
        return len(self._forks)

    @property
    def is_heavy(self) -> bool:
        """Return whether the unrecorded rows may have so many bytes that they should be recorded."""
        return self.unrecorded > HEAVY_BYTES

    def begin(self, steps: Steps) -> None:
        """Set out; `steps` is the way of the whole run."""
        self.event(
            "ExecutionStarted",
            None,
            workflowName=self.definition.name,
            workflowVersion=self.definition.version,
            inputKeys=list(self.state),
            # For whoever reads the rows and has no order that names it; and for older versions of this.
            _hash=self.definition.hash,
            _version=VERSION,
        )
        self._go_on(self._lane(steps), None)

    def _lane(self, steps: Steps, fork: Fork | None = None, branch: int = 0) -> Lane:
        self._lanes += 1
        return Lane(self._lanes, steps, fork, branch)

    def next(self) -> Lane | None:
        """The lane whose effect is to be seen to now; None if the run is over, or all that is left waits."""
        while self.ended is None:
            if not self._history.over and self._replayed():
                continue
            if self._new:
                return self._new.pop(0)
            if self.held or not self._begin_branch():
                return None
        return None

    def _replayed(self) -> bool:
        """Continue with an effect's recorded result; gives whether there was one."""
        history = self._history
        if self._new and isinstance(self._new[0].effect, UNRECORDED):
            return False
        known = [
            (place, lane)
            for lane in self._new
            if (place := history.place(cast("Effect", lane.effect))) is not None
        ]
        if known:
            lane = min(known, key=lambda one: one[0])[1]
            found = history.take(cast("Effect", lane.effect))
            if found is not MISSING:
                self._new.remove(lane)
                self._go_on(lane, found)
                return True
            return False
        following = history.next_command()
        for fork in reversed(self._forks):
            if following is not None and fork.waits and following.name == "ScheduleNode":
                if fork.node.config["branches"][len(fork.lanes)]["entry"] == following.payload.get("nodeId"):
                    self._start(fork)
                    return True
        return False

    def _begin_branch(self) -> bool:
        for fork in reversed(self._forks):
            if fork.waits:
                self._start(fork)
                return True
        return False

    def _start(self, fork: Fork) -> None:
        place = len(fork.lanes)
        lane = self._lane(fork.branches[place](), fork, place)
        fork.lanes.append(lane)
        self._go_on(lane, None)

    def wait(self, lane: Lane) -> None:
        """Note that what a lane needs is under way."""
        self.unpaused = 0
        self.waiting.append(lane)

    def answer(self, lane: Lane, value: object) -> None:
        """Give a lane what it needs."""
        if lane in self.waiting:
            self.waiting.remove(lane)
        self._go_on(lane, value)

    def refuse(self, lane: Lane, error: Exception) -> None:
        """Tell a lane that what it needs is not to be had."""
        if lane in self.waiting:
            self.waiting.remove(lane)
        self._go_on(lane, error, throws=True)

    def abort(self, message: str, code: str) -> None:
        """End the run as failed, whatever it still waits for."""
        self.dropped += self.waiting
        self.waiting, self._new = [], []
        self._write_failure(NodeFailed("orchestration_error", message, code=code))
        self._end(NodeFailed("orchestration_error", message, code=code))

    def let_go(self) -> None:
        """Free all lanes: nobody goes on with this walk.

        A fork and its lanes hold each other, and a run may have as many as it may have nodes: what is left to
        the collector of garbage stays for long, and then everybody waits for that.
        """
        for fork in self._forks:
            fork.lanes, fork.owner = [], None
        self._forks, self._new, self.waiting, self.dropped = [], [], [], []

    def _go_on(self, lane: Lane, value: Any, *, throws: bool = False) -> None:
        """Go on with a lane until it needs something."""
        try:
            effect = lane.steps.throw(value) if throws else lane.steps.send(value)
        except StopIteration:
            self._arrive(lane)
        except NodeFailed as failure:
            self._fail(lane, failure)
        except StrayError as stray:
            self._lose_way(stray)
        else:
            if isinstance(effect, Fork):
                effect.owner = lane
                self._forks.append(effect)
            else:
                lane.effect = effect
                # What the walk needs first of all is seen to first of all.
                place = 0 if isinstance(effect, UNRECORDED) else len(self._new)
                self._new.insert(place, lane)

    def _arrive(self, lane: Lane) -> None:
        """A lane has come to its end: the run's, or the join of its branch."""
        fork = lane.fork
        if fork is None or self.ended is not None:
            return
        fork.settled.add(lane.branch)
        fork.succeeded += 1
        if fork.succeeded < fork.need:
            return
        try:
            for place, name in enumerate(fork.names):
                if place not in fork.settled:
                    self.command("CancelParallelBranch", fork.node.id, branchName=name)
                    self.event("ParallelBranchCancelled", fork.node.id, branchName=name)
        except StrayError as stray:
            self._lose_way(stray)
            return
        self._close(fork)
        self._go_on(cast("Lane", fork.owner), None)

    def _fail(self, lane: Lane, failure: NodeFailed) -> None:
        """A lane has failed: with it the run, or its branch and whatever needs that."""
        try:
            if not failure.told:
                self._write_failure(failure)
                failure.told = True
            fork = lane.fork
            if fork is None:
                self._end(failure)
                return
            fork.settled.add(lane.branch)
            if fork.need < len(fork.branches):
                told = {"branchName": fork.names[lane.branch], "error": failure.message}
                self.event("ParallelBranchFailed", fork.node.id, **told, **_coded(failure.code))
                if len(fork.branches) - len(fork.settled) + fork.succeeded >= fork.need:
                    return
                failure = NodeFailed(
                    "parallel_join_failed",
                    f"{fork.succeeded} of the {fork.need} branches that {fork.node.id!r} needs came to its "
                    f"join; the last to fail: {failure.message}",
                    fork.node.id,
                )
        except StrayError as stray:
            self._lose_way(stray)
            return
        self._close(fork)
        self._go_on(cast("Lane", fork.owner), failure, throws=True)

    def _close(self, fork: Fork) -> None:
        """Let go of the branches that are not needed any more, and of forks inside of them."""
        self._forks.remove(fork)
        inside = {lane for lane in fork.lanes if lane.branch not in fork.settled}
        fork.lanes = []
        while nested := [one for one in self._forks if one.owner in inside]:
            for one in nested:
                self._forks.remove(one)
                inside.update(one.lanes)
                one.lanes = []
        self.dropped += [lane for lane in self.waiting if lane in inside]
        self.waiting = [lane for lane in self.waiting if lane not in inside]
        self._new = [lane for lane in self._new if lane not in inside]

    def _write_failure(self, failure: NodeFailed) -> None:
        payload: Metadata = {"reason": failure.reason, "message": failure.message}
        recorded = self._history.command("FailNode", failure.node)
        if recorded is None:
            node = {} if failure.node is None else {"nodeId": failure.node}
            self.rows.append(FlowRow("FailNode", {**payload, **node, **_coded(failure.code)}))

    def _end(self, failure: NodeFailed) -> None:
        self.event("ExecutionFailed", None, error=failure.message)
        self.ended = Ended(ok=False, error=failure.prefix + failure.message, code=failure.code)
        self.dropped += self.waiting
        self.waiting = []

    def _lose_way(self, stray: StrayError) -> None:
        told = {"error": str(stray), "code": "NONDETERMINISM_DETECTED", "context": stray.context}
        self.rows.append(FlowRow("ExecutionFailed", told))
        self.ended = Ended(ok=False, error=str(stray), code="NONDETERMINISM_DETECTED")
        self.dropped += self.waiting
        self.waiting = []

    def complete(self, result: Any, *, whole: bool) -> None:
        """The run has come to its end; `whole` if its result is its state."""
        self.event("ExecutionCompleted", None, **({} if whole else {"result": result}))
        self.ended = Ended(ok=True, result=result)

    # What the ways through nodes are made of.

    def command(self, name: str, node: str | None, **payload: Any) -> Metadata:
        """Write a command unless it is recorded; gives its payload as it stands."""
        recorded = self._history.command(name, node)
        if recorded is not None:
            return recorded
        payload = {"nodeId": node, **payload}
        self.rows.append(FlowRow(name, payload))
        return payload

    def event(self, name: str, node: str | None, **payload: Any) -> Metadata:
        """Write an event unless it is recorded; gives its payload as it stands."""
        recorded = self._history.event(name, node)
        if recorded is None:
            payload = payload if node is None else {"nodeId": node, **payload}
            self.rows.append(FlowRow(name, payload))
        return payload if recorded is None else recorded

    def visit(self, node: str) -> int:
        """How often the walk has come to a node, with this time."""
        count = self.visits[node] = self.visits.get(node, 0) + 1
        return count

    @property
    def calls(self) -> int:
        """How many children the walk was to have so far."""
        return self._calls

    def call(self) -> int:
        """How many children the walk was to have before the next, which is counted."""
        self._calls += 1
        return self._calls - 1

    def hear(self, *, resumed: bool = False) -> None:
        """A word came from outside: what is counted by the calls of callers begins anew."""
        self.resumed = resumed
        self._boundaries = 0

    def change(
        self, node: str, output: dict[str, Any], *, overwrites: bool = False
    ) -> Generator[CheckState, Any, None]:
        """Apply the output of a node to the state.

        Raises:
            NodeFailed: it cannot be merged, or the state does not fit its schema any more.
        """
        if output:
            try:
                self.state = next_state(self.state, output, self.definition.reducers, overwrites=overwrites)
            except ValueError as error:
                raise NodeFailed("orchestration_error", str(error)) from error
        self.event("StateUpdated", node)
        if output:
            yield from self.check_state(f"the state after node {node!r}")

    def check_state(self, subject: str) -> Generator[CheckState, Any, None]:
        """Check the state against its schema, unless the log proves that it fits.

        `subject` is what the error calls the state.

        Raises:
            NodeFailed: it does not fit.
        """
        if self._history.is_past_check:
            return
        fault = self._check(self.state)
        if isinstance(fault, UnsetType):
            fault = cast("str | None", (yield CheckState(self.state)))
        if fault is not None:
            raise NodeFailed("orchestration_error", f"{subject} does not fit state_schema: {fault}")

    def checkpoint(self, node: str, span: Span | None) -> None:
        """Pass a boundary; whether a checkpoint is written there is the definition's policy."""
        policy = self.definition.checkpoint
        if policy.strategy == "disabled":
            return
        self._boundaries += 1
        if policy.strategy == "after_each_node" or self._boundaries % policy.n == 0:
            self.event("CheckpointWritten", node, **spanned(span))


def spanned(span: Span | None) -> Metadata:
    """The member of a row that says in which branch it was written."""
    return {} if span is None else {"parallelSpan": span}


def _coded(code: str) -> Metadata:
    return {"code": code} if code else {}
