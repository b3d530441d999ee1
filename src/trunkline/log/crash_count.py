"""Counts the crashes that a task may have caused. Pure."""

from __future__ import annotations

from msgspec import Struct

from trunkline.log import events as ev
from trunkline.log.artifact import Artifacts
from trunkline.wire.types import TaskState


class CrashCount(Struct):
    """The number of nodes in a row that died while a task was at work, without progress of the task."""

    takeovers: int = 0
    # The progress of the run that took over last; None if it made some, or if there was no takeover.
    progress: RunProgress | None = None
    # Whether no activity of a workflow's run is open in its process, and whether the task is such a run.
    only_waits: bool = False
    _is_run: bool = False
    # The seq at which a resumed executor began its last wait, and the end of that wait (0: no limit).
    _wait_seq: int = 0
    _wait_until: int = 0

    def note_progress(self, event: ev.AnyEvent, artifacts: Artifacts) -> None:
        """Reset the count if an event shows progress since the last takeover."""
        if self.progress is not None and self.progress.is_shown_by(event, artifacts):
            self.takeovers, self.progress = 0, None

    def note_wait(self, event: ev.FlowRows | ev.WaitBegun, seq: int) -> None:
        """Note that the executor only waits from this event on, or that it works again."""
        if isinstance(event, ev.FlowRows):
            self.only_waits, self._is_run = event.waits, True
        else:
            self._wait_seq, self._wait_until = seq, event.until

    def note_claim(self, seq: int, at: int, *, died: bool, asks: bool) -> None:
        """Count a claim after a process died, unless the executor only waited there.

        A task that `asks` waits, but a run of a workflow may have another branch at work.
        """
        waited = self.only_waits or (asks and not self._is_run) or self.is_waiting(seq - 1, at)
        if died and not waited:
            self.takeovers += 1
            self.progress = RunProgress()
        # No activity of a workflow's run is open in the process that claims it.
        self.only_waits = self.only_waits or self._is_run

    def is_waiting(self, seq: int, at: int) -> bool:
        """Return whether a resumed executor is in a wait that it recorded, if the log ends at this seq."""
        # Invariant: an executor that ends a wait before `_wait_until` has read an event behind `_wait_seq`.
        return 0 < self._wait_seq == seq and (not self._wait_until or at < self._wait_until)


class RunProgress(Struct):
    """Whether a run that was taken over gets further than those that died over the same task.

    It begins where the log ends at the last takeover.
    """

    # Whether it began from the beginning, or said something otherwise.
    _restarted: bool = False
    _rewritten: bool = False

    def is_shown_by(self, event: ev.AnyEvent, artifacts: Artifacts) -> bool:
        """Whether an event shows that the run has done more than those that died before it."""
        match event:
            case ev.Delta(artifact_id=artifact_id, append=append):
                return self._goes_on(append or artifact_id not in artifacts)
            case ev.Chunk(artifact=artifact, append=append):
                return self._goes_on(append or artifact.artifact_id not in artifacts)
            case ev.Stepped(place=place):
                self._restarted = self._restarted or place < 0
                return not self._restarted
            case ev.Status(state=state):
                # A status adds nothing to the one before it; a run could say new ones for ever.
                return state is not TaskState.WORKING
            case ev.AnswerRead() | ev.QuestionClosed() | ev.Parked() | ev.WaitBegun() | ev.Replied():
                return True
            case ev.FlowRows(rows=rows):
                # Without rows, it only says that an activity begins again.
                return bool(rows)
            case _:
                return False

    def _goes_on(self, adds: bool) -> bool:
        self._rewritten = self._rewritten or not adds
        return not self._rewritten and not self._restarted
