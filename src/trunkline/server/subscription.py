"""What a stream shall tell, and where in the log of its task it begins."""

from __future__ import annotations

from msgspec import Struct

from trunkline import errors
from trunkline.log.events import Replied
from trunkline.run.feed import Feed
from trunkline.wire.types import Message, Task

# More events than any log holds.
MAX_SEQ = 10**9


class Subscription(Struct):
    """What a stream shall tell: the task or message it opens with, then the events after a seq until an end.

    Without `after` there is nothing to follow: it is over with its opening.
    """

    feed: Feed
    after: int | None
    through_questions: bool = False
    opening: Task | Message | None = None
    # The seq at which the opening stands; a reader resumes from it.
    opening_seq: int | None = None


def resume(feed: Feed, last_event_id: str | None, *, through_questions: bool) -> Subscription:
    """Follow a task from the last event that its reader saw, else from now."""
    state = feed.state
    if last_event_id is not None:
        return Subscription(feed, read_place(last_event_id, state.seq), through_questions)
    after = None if state.over else state.seq
    return Subscription(feed, after, through_questions, state.task(), state.seq)


def direct_answer(feed: Feed) -> Message | None:
    """The message that answers in the place of a task, if the feed holds nothing else beyond its opening."""
    records = feed.newer(0)
    last = records[-1].event if records and len(records) == feed.state.opened + 1 else None
    return last.message if isinstance(last, Replied) else None


def read_place(text: str, newest: int = MAX_SEQ) -> int:
    """The seq in a Last-Event-ID.

    Raises:
        InvalidParams: it is no number, or larger than the newest one.
    """
    if text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= newest:
        return int(text)
    raise errors.InvalidParams(
        f"Last-Event-ID must be the id of an event of this task, 0 to {newest}; "
        "subscribe without it to start over",
        field="Last-Event-ID",
    )
