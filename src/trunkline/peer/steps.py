"""What the log of a task says of its messages to a remote agent: that one is sent, and what it became."""

from __future__ import annotations

from msgspec import Struct, convert

from trunkline.peer.remote import CALLS, Target, context_of, read_target
from trunkline.run.executor import Work

SENT, TAKEN = "peer.sent", "peer.taken"


class Sent(Struct, frozen=True):
    """A message to a remote agent, recorded before it is sent.

    With `counted` it names the chain with one hop more. Earlier versions sent none like that; and what is
    sent again has to be the same, or it is refused.
    """

    message: str
    interface: str
    counted: bool = False


class RemoteTask(Struct, frozen=True):
    """The task that a remote agent has made of it; with `lost` nobody knows whether it did."""

    task: str = ""
    context: str = ""
    lost: bool = False


async def context_known(work: Work, target: Target) -> str:
    """The context that the agent knows: the one that it told in our context before, else our own."""
    state = work.state
    if state.context_id == state.task_id:
        return state.context_id
    # Only our own tasks say whom they are for; what a caller writes there means nothing.
    name = target.target if state.agent.endswith(CALLS) else None
    taken, is_own = await work.step_before(
        TAKEN, lambda first: name is None or read_target(first).target == name
    )
    known = "" if taken is None else convert(taken.result, RemoteTask).context
    return known or (state.context_id if is_own else context_of(work.tenant, state))
