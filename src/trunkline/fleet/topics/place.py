"""The place of a subscriber in the whole log, as a text that it can come back with. Pure.

The text is `NUMBER` or `NUMBER.SEQ.TASK`: where a page of the log begins, and the event that was told last.
That is one of the subscriber's own tenant, and the number names nothing of anybody else's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from trunkline.errors import InvalidParams
from trunkline.store.records import START, Cursor, TailRecord

_PLACE = re.compile(r"(\d{1,18})(?:\.(\d{1,9})\.([!-~]{1,128}))?", re.ASCII)


class FeedPlace(Struct, frozen=True):
    """Where a page of the log begins, and the event that was told last: in that page, or before it."""

    cursor: Cursor
    task_id: str = ""
    seq: int = 0

    def __str__(self) -> str:
        # The rest of a cursor may name a task of another tenant; the number alone is no later place.
        number = self.cursor.partition(".")[0] or "0"
        return f"{number}.{self.seq}.{self.task_id}" if self.task_id else number

    def rest(self, tenant: str, page: Sequence[TailRecord]) -> Sequence[TailRecord]:
        """What of the page is behind the place: all of it where the event is not in it."""
        for index, one in enumerate(page):
            if (one.tenant, one.task_id, one.recorded.seq) == (tenant, self.task_id, self.seq):
                return page[index + 1 :]
        return page


def read_place(text: str, end: Cursor, field: str) -> FeedPlace:
    """The place that a subscriber names, in a log with this end; one beyond the end is the end.

    Raises:
        InvalidParams: it is none.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidParams(f"{field} is the id of an earlier frame; leave it out to begin now", field=field)
    number, seq, task_id = found.groups()
    if end == START or int(number) > int(end.partition(".")[0]):
        # What it has read was pruned, or is of another store.
        return FeedPlace(end)
    cursor = f"{number}.0." if "." in end else number
    return FeedPlace(cursor, task_id or "", int(seq or 0))
