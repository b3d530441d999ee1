"""What a run need not say again: the records of a task against what its function says now.

Pure but for `prepare`, which reads the log.

A resumed run is compared with the log as it speaks: what stands there already is dropped, the
rest goes out, and what differs replaces what stood there. A restarted run says everything anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec
from msgspec.structs import replace

from trunkline.errors import Misuse, StoreError
from trunkline.log.events import AnyEvent, Chunk, Delta, Recorded, Status, Stepped
from trunkline.run import contexts
from trunkline.run.buffer import RETRY_S
from trunkline.run.executor import Again, Verdict
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Node
from trunkline.wire.types import Message, TaskState

# A piece of an artifact: text, parts, or the word that this was the last.
_Token = str | Chunk | None
_ANEW = Stepped(-1, "")
log = logging.getLogger("trunkline.run")


class Restarted:
    """A run from the beginning: its first word on an artifact replaces what dead runs wrote there."""

    def __init__(self, records: Iterable[Recorded]) -> None:
        self.trouble = ""
        events = [recorded.event for recorded in records]
        self._anew = any(isinstance(event, Delta | Chunk | Status | Stepped) for event in events)
        self._old = {_artifact_id(event) for event in events if isinstance(event, Delta | Chunk)}

    def opening(self) -> Iterable[AnyEvent]:
        """Say that what was stepped before no longer counts, for whoever resumes this run."""
        return (_ANEW,) if self._anew else ()

    def take(self, event: AnyEvent) -> Iterable[AnyEvent]:
        """The event; the first of an artifact begins it anew."""
        if isinstance(event, Delta | Chunk) and (artifact_id := _artifact_id(event)) in self._old:
            self._old.discard(artifact_id)
            return (replace(event, append=False),)
        return (event,)

    def step(self, place: int, name: str) -> Stepped | None:
        """Every step is done again."""
        del place, name
        return None

    def closing(self) -> Iterable[AnyEvent]:
        """Nothing: what only dead runs wrote stays."""
        return ()


class Continued:
    """A run that knows by itself what the log holds; only its steps are not done again."""

    def __init__(self, records: Iterable[Recorded]) -> None:
        self.trouble = ""
        found = [one.event for one in records if isinstance(one.event, Stepped)]
        self._steps = {step.place: step for step in found}

    def opening(self) -> Iterable[AnyEvent]:
        """Nothing: the log goes on as if there had been no break."""
        return ()

    def take(self, event: AnyEvent) -> Iterable[AnyEvent]:
        """The event as it is."""
        return (event,)

    def step(self, place: int, name: str) -> Stepped | None:
        """The recorded step."""
        found = self._steps.get(place)
        return found if found is not None and found.name == name else None

    def closing(self) -> Iterable[AnyEvent]:
        """Nothing is left to say."""
        return ()


class Resumed:
    """A run that goes on where the log ends."""

    def __init__(self, records: Iterable[Recorded]) -> None:
        self.trouble = ""
        self._tracks: dict[str, _Track] = {}
        self._statuses: list[bytes] = []
        self._steps: dict[int, Stepped] = {}
        self._asked = 0
        for recorded in records:
            self._note(recorded.event)
        for track in self._tracks.values():
            track.seal()
        self._statuses.reverse()

    def _note(self, event: AnyEvent) -> None:
        match event:
            case Delta() | Chunk():
                self._track(_artifact_id(event)).note(event)
            case Status(state=TaskState.WORKING):
                self._statuses.append(_words(event))
            case Stepped(place=place) if place < 0:
                self._steps.clear()
                self._statuses.clear()
            case Stepped(place=place):
                self._steps[place] = event
            case _:
                pass

    def _track(self, artifact_id: str) -> _Track:
        return self._tracks.setdefault(artifact_id, _Track(artifact_id))

    def opening(self) -> Iterable[AnyEvent]:
        """Nothing: the log goes on as if there had been no break."""
        return ()

    def take(self, event: AnyEvent) -> Iterable[AnyEvent]:
        """What of the event is not in the log."""
        if self.trouble:
            return ()
        match event:
            case Delta() | Chunk():
                return self._track(_artifact_id(event)).take(event)
            case Status(state=TaskState.WORKING):
                return self._status(event)
            case _:
                return (event,)

    def _status(self, event: Status) -> Iterable[AnyEvent]:
        words, left = _words(event), self._statuses
        # A bare `working` is also recorded when a task begins and when it is answered: nobody said it.
        while words and left and not left[-1]:
            left.pop()
        if left and left.pop() == words:
            return ()
        # Only the newest status shows, so whatever the dead run said later does not matter any more.
        left.clear()
        return (event,)

    def step(self, place: int, name: str) -> Stepped | None:
        """The recorded step.

        Raises:
            Misuse: another step is recorded at this place.
        """
        self._asked = max(self._asked, place + 1)
        found = self._steps.get(place)
        if found is None or found.name == name:
            return found
        self._trouble(f"step {place + 1} is recorded as {found.name!r} and is now {name!r}")
        raise Misuse(self.trouble)

    def closing(self) -> Iterable[AnyEvent]:
        """What differs from the log now that the whole of the run is known."""
        for place, step in self._steps.items():
            if place >= self._asked and not self.trouble:
                self._trouble(f"step {place + 1} is recorded as {step.name!r} and was not done any more")
        if self.trouble:
            return ()
        return [event for track in self._tracks.values() for event in track.closing()]

    def _trouble(self, what: str) -> None:
        self.trouble = self.trouble or f"The steps of the skill have changed since the task began: {what}."


# A run of a task that was begun before. Each says what is to be recorded before the function says anything
# (`opening`), for what it says (`take`) and when it has ended (`closing`), and what is recorded of a step
# that it comes to, None if that is to be done. `trouble` is why the task cannot go on; empty while it can.
Replay = Restarted | Continued | Resumed


def replay(again: Again, records: Sequence[Recorded], works_elsewhere: bool = False) -> Replay | None:
    """How to listen to the next run of a task with these records; None if it is the first."""
    if again is Again.NO:
        return None
    if again is Again.RESTART:
        return Restarted(records)
    return Continued(records) if works_elsewhere else Resumed(records)


def conclude(played: Replay, verdict: Verdict) -> Iterable[AnyEvent]:
    """What is still to be recorded when the executor has ended, if it said what it may.

    Raises:
        Misuse: it did not do what is recorded of it.
    """
    strayed, closing = played.trouble, played.closing()
    # A failure may come before the recorded steps, and its own reason tells more.
    failed = isinstance(verdict, Status) and verdict.state is TaskState.FAILED
    if strayed or (played.trouble and not failed):
        raise Misuse(played.trouble)
    return closing


class _Track:
    """One artifact: what the log holds of it, generation after generation, and how far the run has come.

    A generation begins wherever an artifact is begun anew. While the run says what stands in the log it
    is behind it; from the first word that is not there, the log and the run agree and `over` is set.
    """

    def __init__(self, artifact_id: str) -> None:
        self._artifact_id = artifact_id
        self._name = ""
        self._recorded: list[list[_Token]] = []
        self._run: list[_Token] = []
        self._begun = False
        self._generation = -1
        self._item = self._offset = 0
        self.over = True

    def note(self, event: Delta | Chunk) -> None:
        """Take a record in."""
        self.over = False
        if not self._recorded or not event.append:
            self._recorded.append([])
        self._recorded[-1] += _tokens(event)

    def seal(self) -> None:
        """All records are known."""
        self._recorded = [_merged(tokens) for tokens in self._recorded]

    def take(self, event: Delta | Chunk) -> Iterable[AnyEvent]:
        """What is to be recorded for the next word of the run."""
        if self.over:
            return (event,)
        if not self._begun or not event.append:
            self._begun = True
            self._generation += 1
            self._item = self._offset = 0
            self._run = []
        if isinstance(event, Delta):
            self._name = event.name or self._name
        tokens = _tokens(event)
        self._run += tokens
        rest = self._follow(tokens)
        while rest is None and self._generation + 1 < len(self._recorded):
            self._generation += 1
            self._item = self._offset = 0
            rest = self._follow(self._run)
        if rest is None:
            return self._rewrite()
        if not rest:
            return ()
        self.over = True
        return _events(self._artifact_id, rest, append=True)

    def _rewrite(self) -> Iterable[AnyEvent]:
        self.over = True
        # An artifact that was begun and is empty is also to be seen.
        run = self._run or [""]
        first, *rest = _events(self._artifact_id, run, append=False)
        return [replace(first, name=self._name) if isinstance(first, Delta) else first, *rest]

    def closing(self) -> Iterable[AnyEvent]:
        """What is to be recorded if the run says no more: nothing if the log holds just what it said."""
        if self.over or not self._begun or self._ends():
            return ()
        self._generation = len(self._recorded) - 1
        self._item = self._offset = 0
        return () if self._follow(self._run) == [] and self._ends() else self._rewrite()

    def _ends(self) -> bool:
        last = len(self._recorded) - 1
        return self._generation == last and self._item == len(self._recorded[last])

    def _follow(self, tokens: list[_Token]) -> list[_Token] | None:
        """Go along the generation; gives what comes after the end of the last one, None if it differs."""
        if self._generation >= len(self._recorded):
            return None
        recorded = self._recorded[self._generation]
        for number, token in enumerate(tokens):
            text = token
            while self._item < len(recorded):
                text = self._pass(recorded[self._item], text)
                if not isinstance(text, str):
                    return None
                if not text:
                    break
            else:
                last = self._generation + 1 == len(self._recorded)
                return [text, *tokens[number + 1 :]] if last else None
        return []

    def _pass(self, known: _Token, said: _Token) -> str | None:
        """Go past what is said; gives the text that reaches beyond the known, None if it differs."""
        if not isinstance(known, str) or not isinstance(said, str):
            if not _same(known, said):
                return None
            self._item += 1
            return ""
        left = len(known) - self._offset
        if len(said) < left:
            fits = known.startswith(said, self._offset)
            self._offset += len(said)
            return "" if fits else None
        if not said.startswith(known[self._offset :]):
            return None
        self._item += 1
        self._offset = 0
        return said[left:]


def _artifact_id(event: Delta | Chunk) -> str:
    return event.artifact_id if isinstance(event, Delta) else event.artifact.artifact_id


def _tokens(event: Delta | Chunk) -> list[_Token]:
    if isinstance(event, Chunk):
        return [event]
    text: list[_Token] = [event.text] if event.text else []
    return [*text, None] if event.last else text


def _merged(tokens: list[_Token]) -> list[_Token]:
    merged: list[_Token] = []
    for is_text, run in groupby(tokens, lambda token: isinstance(token, str)):
        if is_text:
            merged.append("".join([token for token in run if isinstance(token, str)]))
        else:
            merged += run
    return merged


def _events(artifact_id: str, tokens: list[_Token], *, append: bool) -> list[AnyEvent]:
    made: list[AnyEvent] = []
    for token in _merged(tokens):
        if isinstance(token, Chunk):
            made.append(replace(token, append=append))
        elif isinstance(token, str):
            made.append(Delta(artifact_id, token, append))
        elif made and isinstance(before := made[-1], Delta):
            made[-1] = replace(before, last=True)
        else:
            made.append(Delta(artifact_id, "", append, last=True))
        append = True
    return made


def _same(known: _Token, said: _Token) -> bool:
    if not isinstance(known, Chunk) or not isinstance(said, Chunk):
        return known is None and said is None
    if (known.last, known.closes) != (said.last, said.closes):
        return False
    return known.artifact == said.artifact or _json(known.artifact) == _json(said.artifact)


def _words(status: Status) -> bytes:
    """What a status says, without the id of its message, which is new in each run; empty for nothing."""
    parts = status.message.parts if status.message is not None else ()
    return _json((parts, status.metadata)) if parts or status.metadata else b""


def _json(value: object) -> bytes:
    # As it is read back from a log: a tuple and a list are then the same.
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # It cannot be recorded, so it equals nothing that is.
        return repr(id(value)).encode()


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
