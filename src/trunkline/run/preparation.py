"""What a run needs of the log before its executor begins: the conversation so far, and what it did before."""

from __future__ import annotations

import asyncio
import logging

from trunkline.errors import StoreError
from trunkline.run import contexts
from trunkline.run.buffer import RETRY_S
from trunkline.run.executor import Again
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Node
from trunkline.run.replay import Replay, replay
from trunkline.wire.types import Message

log = logging.getLogger("trunkline.run")


async def prepare(
    node: Node, agent: HostedAgent, feed: Feed, again: Again, *, continues: bool
) -> tuple[tuple[Message, ...], Replay | None]:
    """What was said before in the context, if it `continues`; and the replay of a run that is done again.

    Raises:
        StoreError: the log cannot be read.
    """
    earlier: tuple[Message, ...] = ()
    while True:
        try:
            if continues and not earlier:
                earlier = await contexts.earlier(node.tasks, feed, node.names_of(agent.id))
            if again is Again.NO:
                return earlier, None
            records = await node.tasks.records(feed)
            return earlier, replay(again, records, agent.executor.works_elsewhere)
        except StoreError as error:
            if again is Again.NO or error.damaged_task:
                raise
            # It survived its process; a store that is away for a moment must not end it.
            log.error("task.unread task=%s error=%s", feed.state.task_id, error)
            await asyncio.sleep(RETRY_S)
