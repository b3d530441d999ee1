"""Row 71: the logs of every recorded version fold to what they were, and what a newer one wrote is kept."""

from __future__ import annotations

import asyncio
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from tests.chaos.checker import check
from tests.chaos.history import History, Logged, collect
from tests.corpus.record import Kept, kept, written
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.fold import fold
from trunkline.store.backup import export, restore
from trunkline.store.url import store_from_url

RECORDINGS = [path for path in sorted(Path(__file__).parent.glob("*.jsonl")) if ".heads" not in path.suffixes]
LATER = b'{"kind":"watched","by":"a newer version","deep":{"x":[1,null]}}'


class Line(msgspec.Struct):
    tenant: str
    task: str
    seq: int
    at: int
    event: msgspec.Raw


def lines(path: Path) -> list[Line]:
    return [msgspec.json.decode(text, type=Line) for text in _records(path.read_bytes())]


def _records(text: bytes) -> list[bytes]:
    """The lines of an export without its first and its last, which recordings of the first formats lack."""
    return [line for line in text.splitlines(keepends=True)[1:] if not line.startswith(b'{"end":')]


def heads(path: Path) -> dict[str, Kept]:
    # Heads are no longer written with the word of the first releases; only this recording holds it.
    found = path.with_suffix(".heads.jsonl").read_bytes().replace(b'"owner":', b'"principal":').splitlines()
    return {one.head.task_id: one for one in (msgspec.json.decode(text, type=Kept) for text in found)}


def logs(path: Path) -> dict[str, list[ev.Recorded]]:
    return {
        task_id: [ev.Recorded(line.seq, line.at, encoding.decode_one(line.event)) for line in found]
        for task_id, found in groupby(lines(path), key=lambda line: line.task)
    }


async def _through_a_store(text: bytes) -> tuple[list[Logged], bytes, int]:
    store = store_from_url("memory:")
    await store.open()
    try:
        await restore(store, text.splitlines(keepends=True))
        again = b"".join([page async for page in export(store, "0")])
        await store.heads.rebuild()
        return await collect(store), again, await store.heads.rebuild()
    finally:
        await store.close()


def _values(one: Kept) -> tuple[Any, Any]:
    return one.head, msgspec.json.decode(one.task)


def test_there_is_a_recording() -> None:
    assert RECORDINGS


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_log_folds_to_what_it_was(path: Path) -> None:
    expected = heads(path)
    found = logs(path)
    assert set(found) == set(expected)
    for task_id, records in found.items():
        task = written(fold(task_id, records).task())
        assert msgspec.json.decode(task) == msgspec.json.decode(expected[task_id].task)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_event_is_written_as_it_was_read(path: Path) -> None:
    for line in lines(path):
        event = encoding.decode_one(line.event)
        assert not isinstance(event, ev.Unread)
        assert msgspec.json.decode(encoding.encode_one(event)) == msgspec.json.decode(line.event)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_store_takes_the_recording_and_gives_it_back(path: Path) -> None:
    text = path.read_bytes()
    found, again, rebuilt = asyncio.run(_through_a_store(text))
    assert sorted(_records(again)) == sorted(_records(text))
    assert rebuilt == len(found)
    assert {log.task_id: _values(kept(log)) for log in found} == {
        task_id: _values(one) for task_id, one in heads(path).items()
    }
    assert check(found, History(0)) == []


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_what_a_newer_version_wrote_is_skipped_and_kept(path: Path) -> None:
    """An unknown event after the first of each log: the same task, all seqs one further, the same bytes back."""
    text = b'{"trunkline":"0","format":2}\n'
    for line in _records(path.read_bytes()):
        read = msgspec.json.decode(line, type=Line)
        if read.seq == 1:
            text += line
            text += _line(read, 2, LATER)
        else:
            text += _line(read, read.seq + 1, bytes(read.event))
    found, again, _ = asyncio.run(_through_a_store(text))
    assert sorted(_records(again)) == sorted(_records(text))
    expected = heads(path)
    for log in found:
        assert log.records[1].event == ev.Unread(LATER)
        now, before = kept(log), expected[log.task_id]
        assert msgspec.json.decode(now.task) == msgspec.json.decode(before.task)
        assert now.head == replace(before.head, seq=before.head.seq + (before.head.seq > 1))


def _line(read: Line, seq: int, event: bytes) -> bytes:
    place = (read.tenant.encode(), read.task.encode(), seq, read.at, event)
    return b'{"tenant":"%b","task":"%b","seq":%d,"at":%d,"event":%b}\n' % place


def test_the_recordings_hold_every_kind_of_event() -> None:
    seen = {
        type(record.event) for path in RECORDINGS for records in logs(path).values() for record in records
    }
    missing = {kind.__name__ for kind in get_args(ev.Known)} - {kind.__name__ for kind in seen}
    assert not missing, "the next recording needs a skill that writes it"
