"""The place of a subscriber in the whole log, as a text that it can come back with. Pure.

The text is `NUMBER` or `NUMBER.SEQ.TASK`: where a page of the log begins, and the event that was told last.
That is one of the subscriber's own tenant, and the number names nothing of anybody else's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from trunkline.errors import InvalidParams
from trunkline.store.records import Cursor, TailRecord

_PLACE = re.compile(r"(\d{1,18})(?:\.(\d{1,9})\.([!-~]{1,128}))?", re.ASCII)


class FeedPlace(Struct, frozen=True):
    """Where a page of the log begins, and the event that was told last: in that page, or before it.

    One with a gap is followed by less than there was.
    """

    cursor: Cursor
    task_id: str = ""
    seq: int = 0
    has_gap: bool = False

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


def read_place(text: str, end: Cursor, pruned: int, field: str) -> FeedPlace:
    """The place that a subscriber names, in a log with this end; one beyond the end is the end.

    It has a gap if it is before `pruned`, the number of the cursor before which events were forgotten.

    Raises:
        InvalidParams: it is none.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidParams(f"{field} is the id of an earlier frame; leave it out to begin now", field=field)
    number, seq, task_id = found.groups()
    last = int(end.partition(".")[0] or "0")
    if int(number) > last:
        # It is of another store, or of this one before it was restored.
        return FeedPlace(end, has_gap=True)
    cursor = f"{number}.0." if "." in end else number
    return FeedPlace(cursor, task_id or "", int(seq or 0), int(number) < pruned)
