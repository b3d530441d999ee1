"""An artifact while a skill writes it: pieces in, the whole out. Used by the fold alone; pure."""

from __future__ import annotations

from trunkline.wire.types import Artifact, Part


class GrowingArtifact:
    """An artifact under construction; text deltas gather in a run until somebody looks."""

    __slots__ = ("artifact", "open", "parts", "run")

    def __init__(self, artifact: Artifact, *, is_open: bool = False) -> None:
        self.artifact = artifact
        self.parts: list[Part] = list(artifact.parts)
        self.run: list[str] = []
        # Whether the last part was made of deltas, so that the next ones belong to it.
        self.open = is_open

    def whole(self) -> Artifact:
        """The artifact as it stands."""
        self._close_run()
        known = self.artifact
        return Artifact(
            artifact_id=known.artifact_id,
            name=known.name,
            description=known.description,
            parts=tuple(self.parts),
            metadata=known.metadata,
            extensions=known.extensions,
        )

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
        known = self.artifact
        self.artifact = Artifact(
            artifact_id=known.artifact_id,
            name=more.name or known.name,
            description=more.description or known.description,
            metadata={**(known.metadata or {}), **(more.metadata or {})} or None,
            extensions=tuple(dict.fromkeys((*known.extensions, *more.extensions))),
        )

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
