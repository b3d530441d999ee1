"""What a run leaves behind: what clients asked and were told, what they read, which processes died when.

Plain records, so that a run can be kept as JSON and judged again. Times are milliseconds since the epoch.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from trunkline.log.events import Recorded
from trunkline.log.head import Head
from trunkline.store.base import Store
from trunkline.store.records import START, Where

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"
EVERYBODY = "*"


class Seen(Struct, frozen=True):
    """A task as an answer showed it."""

    task_id: str
    state: str
    text: str


class Told(Struct):
    """One operation: what was asked of which server, and how it ended.

    `outcome` is `unknown` when the connection broke before the answer; `repeat` is a second try with the
    same message. `wants` is the text of the artifacts if the task completes, with a bare `p` for the
    process that wrote it; `must` is the only way it may end.
    """

    kind: str
    who: str
    server: str
    invoked: int
    returned: int = 0
    outcome: str = UNKNOWN
    message_id: str = ""
    task_id: str = ""
    seen: list[Seen] = []
    error: str = ""
    canaries: list[str] = []
    wants: str | None = None
    must: str = ""
    repeat: bool = False


class Got(Struct, frozen=True):
    """One frame of a stream, whatever its dialect."""

    seq: int | None
    kind: str
    state: str = ""
    text: str = ""
    append: bool = False
    last: bool = False


class Reading(Struct):
    """What one reader got of one task, over all its reconnects; `snapshot` if it began with one.

    `starved` if it asked for the end as long as it could and never got it.
    """

    who: str
    task_id: str
    snapshot: bool
    frames: list[Got] = []
    resumes: int = 0
    ended: bool = False
    starved: bool = False
    canaries: list[str] = []


class Death(Struct, frozen=True):
    """A process that was killed or stopped for a while, or `*` where the database was."""

    server: str
    at: int


class Logged(Struct):
    """A task's log and head as the store holds them."""

    tenant: str
    task_id: str
    records: list[Recorded]
    head: Head | None


class History(Struct):
    """Everything the clients and the fault driver know."""

    seed: int
    told: list[Told] = []
    readings: list[Reading] = []
    deaths: list[Death] = []

    def save(self, path: Path) -> None:
        """Keep it as JSON."""
        path.write_bytes(msgspec.json.encode(self))


async def collect(store: Store, *, tenant: str = "default") -> list[Logged]:
    """Every task of an open store: its log as `read` gives it, and its head."""
    names: dict[str, None] = {}
    cursor = START
    while True:
        page, cursor = await store.log.tail(cursor)
        if not page:
            break
        names.update(dict.fromkeys(record.task_id for record in page if record.tenant == tenant))
    heads = await _heads(store, tenant)
    names.update(dict.fromkeys(heads))
    return [
        Logged(tenant, task_id, await _read(store, tenant, task_id), heads.get(task_id)) for task_id in names
    ]


async def _read(store: Store, tenant: str, task_id: str) -> list[Recorded]:
    found: list[Recorded] = []
    while page := await store.log.read(tenant, task_id, found[-1].seq if found else 0):
        found += page
    return found


async def _heads(store: Store, tenant: str) -> dict[str, Head]:
    found: dict[str, Head] = {}
    after = None
    while True:
        page = await store.heads.list(tenant, Where(), size=1000, after=after)
        found.update({head.task_id: head for head in page.heads})
        if page.next is None:
            return found
        after = page.next
