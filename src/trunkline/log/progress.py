"""Whether a run that was taken over gets further than those that died over the same task. Pure."""

from __future__ import annotations

from trunkline.log import events as ev
from trunkline.log.artifact import Artifacts
from trunkline.wire.types import TaskState


class RunProgress:
    """The run since the last takeover, which begins where the log ends."""

    __slots__ = ("_restarted", "_rewritten")

    def __init__(self) -> None:
        # Whether it began from the beginning, or said something otherwise.
        self._restarted = self._rewritten = False

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
            case ev.Taken() | ev.QuestionClosed() | ev.Parked() | ev.Replied() | ev.FlowRows():
                return True
            case _:
                return False

    def _goes_on(self, adds: bool) -> bool:
        self._rewritten = self._rewritten or not adds
        return not self._rewritten and not self._restarted
