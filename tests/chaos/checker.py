"""The history checker. Pure: the logs of all tasks and what clients saw go in, violations come out.

H1 what was acknowledged is there, once · H2 seqs are dense · H3 nothing follows the end · H4 what a
reader got is a slice of the log · H6 one owner at a time, and only after a death · H7 the head is the
fold · H8 nobody sees another's words. `END` is a task that came to no rest. An unknown outcome may be
there or not. Of a compacted range only what remains is compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from tests.chaos.history import EVERYBODY, OK, REFUSED, UNKNOWN, Got, History, Logged, Reading, Seen, Told
from trunkline.log import events as ev
from trunkline.log.fold import State, fold
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import TERMINAL, Message, Part, TaskState

# The agent signs what it writes with the process that wrote it.
MARK = re.compile(r"\bp[0-9a-f]{8}\b")
# The store's clock and the driver's are one, but a death is noted before or after it happens.
SLACK_MS = 50
_NEVER = 1 << 62
# A server that cannot know whether its commit was taken says so by this.
UNSURE = "send the same message again"


class Violation(Struct, frozen=True):
    """A broken promise."""

    rule: str
    task_id: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule} {self.task_id}: {self.what}"


def check(
    logs: Iterable[Logged], history: History, *, at_rest: bool = True, strict: bool = False
) -> list[Violation]:
    """Everything that is wrong.

    `at_rest` if the run was given the time to end every task; `strict` if what was refused must be
    absent even where the server did not promise it and asked for the same message again.
    """
    known = {one.task_id: one for one in logs}
    found: list[Violation] = []
    folds: dict[str, State] = {}
    for one in known.values():
        holes = list(_dense(one))
        found += holes
        if not holes:
            folds[one.task_id] = fold(one.task_id, one.records)
            found += _nothing_after_the_end(one)
            found += _head(one, folds[one.task_id])
            if at_rest and not folds[one.task_id].resting:
                found.append(
                    Violation("END", one.task_id, f"was left {plain_state(folds[one.task_id].state)}")
                )
    whole = {task_id: one for task_id, one in known.items() if task_id in folds}
    found += _acknowledged(whole, folds, history.told, strict=strict)
    for reading in history.readings:
        found += _slice(reading, whole.get(reading.task_id), known)
    found += _owners(whole, history)
    found += _canaries(history)
    return found


# H2, H3, H7: of the log alone


def _dense(one: Logged) -> Iterator[Violation]:
    last = 0
    for recorded in one.records:
        first = recorded.seq - ev.span(recorded.event) + 1
        if first != last + 1:
            yield Violation("H2", one.task_id, f"event {first} follows {last}")
        last = recorded.seq
    if not one.records:
        yield Violation("H2", one.task_id, "has a head and no event")
    elif not isinstance(one.records[0].event, ev.Submitted):
        yield Violation("H2", one.task_id, "does not begin with its submission")


def _nothing_after_the_end(one: Logged) -> Iterator[Violation]:
    over = 0
    for recorded in one.records:
        # Who is told of an ended task is still its caller's to say.
        if over and not isinstance(recorded.event, ev.Unread | ev.PushSet | ev.PushDeleted):
            name = type(recorded.event).__name__
            yield Violation("H3", one.task_id, f"{name} at {recorded.seq} after the end at {over}")
        over = over or (recorded.seq if _ends(recorded.event) else 0)


def _head(one: Logged, state: State) -> Iterator[Violation]:
    head = one.head
    if head is None:
        yield Violation("H7", one.task_id, "has no head")
        return
    changed, parked = 0, False
    for recorded in one.records:
        if _is_listed(recorded.event) or (parked and isinstance(recorded.event, _WAKING)):
            changed = recorded.seq
        if isinstance(recorded.event, ev.Parked | ev.Claimed):
            parked = isinstance(recorded.event, ev.Parked)
    folded = (state.context_id, state.principal, state.state, state.status_at, changed, state.node)
    kept = (head.context_id, head.principal, head.state, head.status_at, head.seq, head.node)
    if folded != kept:
        yield Violation("H7", one.task_id, f"the head says {kept}, the log {folded}")


_WAKING = ev.FollowUp | ev.CancelRequested | ev.ChildEnded | ev.ChildAsked | ev.Notified


def _is_listed(event: ev.AnyEvent) -> bool:
    return isinstance(event, ev.Submitted | ev.Claimed | ev.Parked | ev.Status | ev.Replied)


def _ends(event: ev.AnyEvent) -> bool:
    return isinstance(event, ev.Replied) or (isinstance(event, ev.Status) and event.state in TERMINAL)


# H1: what was acknowledged


def _acknowledged(
    logs: dict[str, Logged], folds: dict[str, State], told: list[Told], *, strict: bool
) -> Iterator[Violation]:
    recorded = _messages(logs.values())
    refusals = [one for one in told if one.outcome == REFUSED and (strict or UNSURE not in one.error)]
    refused = set(map(id, refusals))
    taken = {one.message_id for one in told if one.message_id and id(one) not in refused}
    for message_id, found in recorded.items():
        if len(found) > 1:
            yield Violation("H1", found[0][0], f"message {message_id} was taken {len(found)} times")
    views: dict[str, set[tuple[str, str]]] = {}
    for one in told:
        found = recorded.get(one.message_id, []) if one.message_id else []
        if one.outcome == OK and one.message_id and [task_id for task_id, _ in found] != [one.task_id]:
            yield Violation("H1", one.task_id, f"acknowledged message {one.message_id} is in {found}")
        for task_id, at in found if id(one) in refused else ():
            # Another try may have been taken; then it bears that one's time.
            if one.message_id not in taken or one.invoked <= at <= one.returned:
                yield Violation("H1", task_id, f"refused message {one.message_id} is there: {one.error}")
        if one.kind == "lost":
            yield Violation("H1", one.task_id, f"{one.who} knows it, and was told {one.error!r}")
        if one.outcome != OK:
            continue
        for seen in one.seen:
            if seen.task_id not in folds:
                yield Violation("H1", seen.task_id, f"was shown to {one.who} and is not there")
                continue
            state = folds[seen.task_id]
            if seen.task_id not in views:
                views[seen.task_id] = _views(logs[seen.task_id])
            yield from _shown(one, seen, state, views[seen.task_id], logs[seen.task_id])
        yield from _promised(one, folds.get(one.task_id))


def _messages(logs: Iterable[Logged]) -> dict[str, list[tuple[str, int]]]:
    """In which tasks each message is, and since when."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for one in logs:
        for recorded in one.records:
            if isinstance(recorded.event, ev.Submitted | ev.FollowUp):
                found[recorded.event.message.message_id].append((one.task_id, recorded.at))
    return found


def _shown(
    one: Told, seen: Seen, state: State, views: set[tuple[str, str]], log: Logged
) -> Iterator[Violation]:
    if one.kind == "list":
        # Lists are asked for without artifacts.
        if not any(seen.state == name for name, _ in views):
            yield Violation("H1", seen.task_id, f"was listed as {seen.state} and never was")
    elif (seen.state, seen.text) not in views and not _is_compacted(log):
        yield Violation(
            "H1", seen.task_id, f"{one.kind} showed {seen.state} {seen.text[-60:]!r}, no prefix of its log"
        )
    elif seen.state in _OVER and (seen.state, seen.text) != (plain_state(state.state), _text(state)):
        yield Violation(
            "H1", seen.task_id, f"{one.kind} showed its end as {seen.state}, it is {plain_state(state.state)}"
        )


def _promised(one: Told, state: State | None) -> Iterator[Violation]:
    if state is None:
        return
    if one.kind == "cancel" and state.state is not TaskState.CANCELED:
        yield Violation("H1", one.task_id, f"was canceled and is {plain_state(state.state)}")
    if one.must and state.resting and plain_state(state.state) != one.must:
        yield Violation("H1", one.task_id, f"ended {plain_state(state.state)}, and only {one.must} would do")
    if one.wants is not None and state.state is TaskState.COMPLETED:
        text = _text(state)
        if MARK.sub("p", text) != one.wants or len(set(MARK.findall(text))) > 1:
            yield Violation("H1", one.task_id, f"completed with {text[-60:]!r}, not {one.wants[-60:]!r}")


_OVER = {plain_state(state) for state in TERMINAL}


def _is_compacted(one: Logged) -> bool:
    return any(isinstance(recorded.event, ev.Compacted) for recorded in one.records)


def _views(one: Logged) -> set[tuple[str, str]]:
    """Every (state, text) that the task ever showed."""
    state = State(one.task_id)
    found: set[tuple[str, str]] = set()
    for recorded in one.records:
        state.apply(recorded)
        found.add((plain_state(state.state), _text(state)))
    return found


def _text(state: State) -> str:
    return "".join(text_of(artifact.parts) for artifact in state.task().artifacts)


# H4: what readers got


def _slice(reading: Reading, log: Logged | None, known: dict[str, Logged]) -> Iterator[Violation]:
    if log is None:
        if reading.task_id not in known:
            yield Violation("H4", reading.task_id, f"was streamed to {reading.who} and is not there")
        return
    if reading.starved:
        yield Violation("H4", log.task_id, f"{reading.who} asked again and again and never got the end")
    frames = [frame for frame in reading.frames if frame.seq is not None]
    if not frames:
        return
    if reading.snapshot:
        yield from _snapshot(reading, frames[0], log)
    after = frames[0].seq if reading.snapshot else 0
    yield from _follows(reading, frames[1:] if reading.snapshot else frames, log, after or 0)


def _snapshot(reading: Reading, first: Got, log: Logged) -> Iterator[Violation]:
    state = State(log.task_id)
    for recorded in log.records:
        if recorded.seq > (first.seq or 0):
            break
        state.apply(recorded)
    if _is_compacted(log) and state.seq != first.seq:
        return
    # The pieces of a compacted log are in its last range, so until then it does not know what was shown.
    text = first.text if _is_compacted(log) and not state.over else _text(state)
    here = (state.seq, "task", plain_state(state.state), text)
    if here != (first.seq, first.kind, first.state, first.text):
        yield Violation("H4", log.task_id, f"{reading.who} got the snapshot {first}, the log says {here}")


def _follows(reading: Reading, frames: list[Got], log: Logged, after: int) -> Iterator[Violation]:
    ranges = [
        (recorded.seq - ev.span(recorded.event) + 1, recorded.seq)
        for recorded in log.records
        if isinstance(recorded.event, ev.Compacted)
    ]
    due = iter([frame for frame in shown(log.records) if (frame.seq or 0) > after])
    last = after
    for frame in frames:
        seq = frame.seq or 0
        if seq <= last:
            yield Violation("H4", log.task_id, f"{reading.who} got {seq} after {last}")
            return
        last = seq
        if any(first <= seq <= end for first, end in ranges):
            if frame.kind != "artifact":
                yield Violation(
                    "H4", log.task_id, f"{reading.who} got {frame}, which is no piece of an artifact"
                )
            continue
        wanted = next(due, None)
        if wanted != frame:
            yield Violation("H4", log.task_id, f"{reading.who} got {frame}, the log goes on with {wanted}")
            return
    if reading.ended and (missed := next(due, None)) is not None:
        yield Violation("H4", log.task_id, f"{reading.who} was told the end and never got {missed}")


def shown(records: Iterable[ev.Recorded]) -> Iterator[Got]:
    """Events as a stream shows them, written anew and not by the server's own hand."""
    written: dict[str, str] = {}
    for recorded in records:
        seq = recorded.seq
        match recorded.event:
            case ev.Submitted():
                yield Got(seq, "task", "submitted")
            case ev.Status(state=state, message=message):
                yield Got(seq, "status", plain_state(state), _words(message))
            case ev.Replied(message=message):
                yield Got(seq, "status", "completed", _words(message))
            case ev.Compacted(artifacts=artifacts):
                written |= {one.artifact_id: text_of(one.parts) for one in artifacts}
            case ev.Delta(artifact_id=name, text=text, append=append, last=last):
                written[name] = (written.get(name, "") if append else "") + text
                # What was written closes with the whole of it.
                yield Got(seq, "artifact", "", *((written[name], False) if last else (text, append)), last)
            case ev.Chunk(artifact=artifact, append=append, last=last, closes=closes):
                name, text = artifact.artifact_id, text_of(artifact.parts)
                written[name] = (written.get(name, "") if append else "") + text
                yield Got(seq, "artifact", "", *((written[name], False) if closes else (text, append)), last)
            case _:
                pass


def text_of(parts: Iterable[Part]) -> str:
    """All text of some parts."""
    return "".join(part.text or "" for part in parts)


def _words(message: Message | None) -> str:
    return "" if message is None else text_of(message.parts)


# H6: who owns a task


def _owners(logs: dict[str, Logged], history: History) -> Iterator[Violation]:
    servers, clashes = _nodes(logs, history.told)
    yield from clashes
    deaths: dict[str, list[int]] = defaultdict(list)
    for death in history.deaths:
        deaths[death.server].append(death.at)
    marks: dict[str, str] = {}
    for one in logs.values():
        node = ""
        for place, recorded in enumerate(one.records):
            match recorded.event:
                case ev.Submitted(node=node):
                    pass
                case ev.Claimed(node=taker):
                    following = one.records[place + 1 :][:1]
                    answered = bool(following) and isinstance(following[0].event, ev.FollowUp)
                    if not answered:
                        yield from _takeover(one, recorded, (node, taker), servers.get(node, ""), deaths)
                    node = taker
                case ev.Parked():
                    node = ""
                case _:
                    for mark in MARK.findall(_written(recorded.event)):
                        if marks.setdefault(mark, node) != node:
                            what = f"process {mark} of node {marks[mark]} wrote {recorded.seq}, which is {node}'s"
                            yield Violation("H6", one.task_id, what)


def _takeover(
    one: Logged, recorded: ev.Recorded, nodes: tuple[str, str], server: str, deaths: dict[str, list[int]]
) -> Iterator[Violation]:
    before, taker = nodes
    if taker == before:
        yield Violation("H6", one.task_id, f"node {taker} claimed at {recorded.seq} what it owned")
    elif server:
        died = min([*deaths.get(server, []), *deaths.get(EVERYBODY, [])], default=_NEVER)
        if recorded.at < died - SLACK_MS:
            yield Violation("H6", one.task_id, f"claimed at {recorded.seq} from {server}, which lived")


def _nodes(logs: dict[str, Logged], told: list[Told]) -> tuple[dict[str, str], list[Violation]]:
    """Which server each node is, by the tasks it opened."""
    servers: dict[str, str] = {}
    clashes: list[Violation] = []
    for one in told:
        if one.kind == "send" and one.outcome == OK and one.task_id in logs and one.server:
            first = logs[one.task_id].records[0].event
            # A repeat is answered by whoever is asked; only the first one says who opened the task.
            if isinstance(first, ev.Submitted) and not one.repeat:
                if servers.setdefault(first.node, one.server) != one.server:
                    what = f"node {first.node} is {servers[first.node]} and {one.server}"
                    clashes.append(Violation("H6", one.task_id, what))
    return servers, clashes


def _written(event: ev.AnyEvent) -> str:
    match event:
        case ev.Delta(text=text):
            return text
        case ev.Chunk(artifact=artifact):
            return text_of(artifact.parts)
        case ev.Status(message=message) | ev.Replied(message=message):
            return _words(message)
        case _:
            return ""


# H8: whose words


def _canaries(history: History) -> Iterator[Violation]:
    for one in (*history.told, *history.readings):
        strangers = sorted(set(one.canaries) - {one.who})
        if strangers:
            yield Violation("H8", one.task_id, f"{one.who} was shown words of {', '.join(strangers)}")
    for one in history.told:
        if one.kind == "pry" and one.outcome not in (REFUSED, UNKNOWN):
            yield Violation("H8", one.task_id, f"{one.who} reached a task that is not its own")
