"""Artifacts while a skill writes them, and whether what is written goes on. Used by the fold alone; pure."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from trunkline.log.events import Chunk, Compacted, Delta
from trunkline.wire.reports import bare_reports
from trunkline.wire.types import Artifact, Metadata, Part, described


class GrowingArtifact:
    """An artifact under construction; text deltas gather in a run until somebody looks."""

    __slots__ = ("_artifact", "_more", "open", "parts", "run")

    def __init__(self, artifact: Artifact, *, is_open: bool = False) -> None:
        self._artifact = artifact
        # What pieces say of it beside their parts.
        self._more: list[Artifact] = []
        self.parts: list[Part] = list(artifact.parts)
        self.run: list[str] = []
        # Whether the last part was made of deltas, so that the next ones belong to it.
        self.open = is_open

    def whole(self) -> Artifact:
        """The artifact as it stands."""
        self._close_run()
        known = self._artifact = described(self._artifact, self._more)
        self._more = []
        if not self.open and len(known.parts) == len(self.parts):
            # It came in one piece, as most do, and needs no copy.
            return known
        return replace(known, parts=tuple(self.parts))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was put into it."""
        return not self.parts and not self.run

    def write(self, text: str) -> None:
        """Add text to the run of deltas."""
        self.run.append(text)

    def extend(self, more: Artifact) -> None:
        """Append the parts of another piece, and take over what it says of the whole."""
        self._close_run()
        self.open = False
        self.parts.extend(more.parts)
        # Its parts are those that were gathered, from now on.
        self._artifact = replace(self._artifact, parts=())
        if more.name or more.description or more.metadata or more.extensions:
            self._more.append(more)

    def _close_run(self) -> None:
        if not self.run:
            return
        text = "".join(self.run)
        # Invariant: a look between two deltas changes nothing; together they stay one text.
        if self.open:
            text = (self.parts.pop().text or "") + text
        self.parts.append(Part(text=text))
        self.open = True
        self.run = []


class Artifacts:
    """The artifacts of one task by id, as its events make them."""

    __slots__ = ("_growing",)

    def __init__(self) -> None:
        self._growing: dict[str, GrowingArtifact] = {}

    def __contains__(self, artifact_id: str) -> bool:
        return artifact_id in self._growing

    def add(self, event: Delta | Chunk) -> None:
        """Take in text, an artifact, or parts of one."""
        if isinstance(event, Chunk):
            self._add_parts(event)
            return
        growing = self._growing.get(event.artifact_id)
        # As for chunks: stream readers are told to append or to begin anew, so the fold does the same.
        if growing is None or not event.append:
            artifact = Artifact(artifact_id=event.artifact_id, name=event.name)
            growing = self._growing[event.artifact_id] = GrowingArtifact(artifact)
        growing.write(event.text)

    def _add_parts(self, event: Chunk) -> None:
        growing = self._growing.get(event.artifact.artifact_id)
        if growing is not None and event.append:
            growing.extend(event.artifact)
        else:
            self._growing[event.artifact.artifact_id] = GrowingArtifact(event.artifact)

    def restore(self, event: Compacted) -> None:
        """Take in what a range of merged events holds."""
        for whole in event.artifacts:
            is_open = whole.artifact_id in event.open
            self._growing[whole.artifact_id] = GrowingArtifact(whole, is_open=is_open)

    def whole(self, artifact_id: str) -> Artifact:
        """One artifact as it stands."""
        return self._growing[artifact_id].whole()

    def all(self) -> tuple[Artifact, ...]:
        """Every artifact as it stands, in the order in which they were begun."""
        return tuple([growing.whole() for growing in self._growing.values()])

    def compacted(self, count: int, names: Collection[str]) -> Compacted:
        """A range of events that holds these artifacts as they stand."""
        artifacts = tuple([growing.whole() for name, growing in self._growing.items() if name in names])
        growing = tuple([one.artifact_id for one in artifacts if self._growing[one.artifact_id].open])
        return Compacted(count, artifacts, growing)

    def bare_reports(self) -> Metadata:
        """What runs have reported without having made anything; as metadata by URI."""
        return bare_reports(tuple([one.whole() for one in self._growing.values() if one.is_empty]))
