"""A group of appends as the arrays of one statement.

One statement takes one append per task and per dedup key, and those that go on from it without a key
of their own; what does not fit comes in a following pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain

from trunkline.clock import now_ms
from trunkline.store.columns import NUMBERS
from trunkline.store.postgres.statements import TEXTS, Statement, Value
from trunkline.store.writer import Entry

# The places of one task's appends in their group: the first and those that follow it.
Chain = list[int]

_PARTS = ("append_rest", "append_heads", "append_keys", "append_deliveries")


def choose(group: Sequence[Entry], waiting: Iterable[int]) -> list[Chain]:
    """What one statement can take of those that wait, sorted by task."""
    chains: dict[str, Chain] = {}
    held: set[str] = set()
    keys: set[tuple[str, str]] = set()
    for place in waiting:
        entry = group[place]
        task_id, dedup = entry.task_id, entry.dedup
        if task_id in held:
            continue
        before = chains.get(task_id)
        key = None if dedup is None else (entry.tenant, dedup.key)
        if before is not None:
            last = group[before[-1]]
            if key is None and last.last == entry.expected and last.tenant == entry.tenant:
                before.append(place)
                continue
        elif key is None or key not in keys:
            chains[task_id] = [place]
            if key is not None:
                keys.add(key)
            continue
        # Invariant: appends to one task are tried in the order in which they were made.
        held.add(task_id)
    # By code points, as COLLATE "C" has it: every writer takes its locks in this order.
    return [chains[task_id] for task_id in sorted(chains)]


@cache
def append_statement(*parts: bool) -> Statement:
    """The statement with the parts that a group needs: rest, heads, keys, deliveries."""
    names = [name for name, wanted in zip(_PARTS, parts, strict=True) if wanted]
    text = TEXTS["append"].replace("/*parts*/", "\n".join(TEXTS[name] for name in names))
    return Statement(text.replace("/*unless*/", TEXTS["unless_recorded"] if "append_keys" in names else ""))


def draft(
    group: Sequence[Entry], marks: Sequence[int], chains: Sequence[Chain], now: int | None
) -> tuple[Statement, list[Value]]:
    """The statement that writes these chains, and its values."""
    firsts = [one[0] for one in chains]
    rest = [place for one in chains if len(one) > 1 for place in one[1:]]
    entries = [group[place] for place in firsts]
    whole = [group[place] for one in chains for place in one] if rest else entries
    values: dict[str, Value] = {"count": len(entries), "now": now, "here": now_ms() if now is None else now}
    values.update(zip(_EVENTS, _events(entries, marks, firsts), strict=True))
    heads = {entry.task_id: entry for entry in whole if entry.head is not None}
    keyed = [entry for entry in entries if entry.dedup is not None]
    announcing = [entry for entry in whole if entry.deliveries]
    if rest:
        followers = _events([group[place] for place in rest], marks, rest)
        values.update(zip([f"rest_{name}" for name in _EVENTS], followers, strict=True))
    if heads:
        values.update(_heads(heads))
    if keyed:
        values.update(_keys(keyed))
    if announcing:
        values.update(_deliveries(announcing))
    statement = append_statement(bool(rest), bool(heads), bool(keyed), bool(announcing))
    return statement, statement.values(values)


_EVENTS = ("task_ids", "tenants", "expected", "lasts", "ats", "bodies", "marks")


def _events(entries: Sequence[Entry], marks: Sequence[int], places: Sequence[int]) -> list[list[Value]]:
    return [
        [entry.task_id for entry in entries],
        [entry.tenant for entry in entries],
        [entry.expected for entry in entries],
        [entry.last for entry in entries],
        [entry.at for entry in entries],
        [entry.body for entry in entries],
        [marks[place] for place in places],
    ]


def _heads(entries: Mapping[str, Entry]) -> dict[str, Value]:
    heads = [entry.head for entry in entries.values() if entry.head is not None]
    return {
        "head_task_ids": list(entries),
        "head_tenants": [entry.tenant for entry in entries.values()],
        "head_contexts": [head.context_id for head in heads],
        "head_principals": [head.principal for head in heads],
        "head_states": [NUMBERS[head.state] for head in heads],
        "head_ats": [head.status_at for head in heads],
        "head_seqs": [head.seq for head in heads],
        "head_nodes": [head.node for head in heads],
        "head_agents": [head.agent for head in heads],
        "head_parents": [head.parent for head in heads],
        "head_children": [head.child for head in heads],
        "head_wakes": [head.wake_at for head in heads],
    }


def _keys(entries: Sequence[Entry]) -> dict[str, Value]:
    pairs = [(entry, entry.dedup) for entry in entries if entry.dedup is not None]
    return {
        "key_tenants": [entry.tenant for entry, _ in pairs],
        "key_names": [dedup.key for _, dedup in pairs],
        "key_task_ids": [entry.task_id for entry, _ in pairs],
        "key_seqs": [entry.last for entry, _ in pairs],
        "key_digests": [dedup.digest for _, dedup in pairs],
        "key_ends": [dedup.expires_at for _, dedup in pairs],
    }


def _deliveries(entries: Sequence[Entry]) -> dict[str, Value]:
    pairs = list(chain.from_iterable([(entry, one) for one in entry.deliveries] for entry in entries))
    return {
        "out_task_ids": [entry.task_id for entry, _ in pairs],
        "out_tenants": [entry.tenant for entry, _ in pairs],
        "out_targets": [one.target for _, one in pairs],
        "out_seqs": [one.seq for _, one in pairs],
        "out_ids": [one.id for _, one in pairs],
        "out_dues": [one.due for _, one in pairs],
        "out_lanes": [one.lane for _, one in pairs],
    }
