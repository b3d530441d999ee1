"""An artifact that comes in pieces."""

from __future__ import annotations

from msgspec import UNSET

from trunkline.client.result import artifact_text
from trunkline.wire.types import Artifact, Part


class Growing:
    """An artifact as far as it has come, and the words of it that were told."""

    __slots__ = ("artifact", "headless", "in_pieces", "parts", "told")

    def __init__(self, artifact: Artifact, *, headless: bool = False) -> None:
        self.artifact = artifact
        # Its beginning came before all that is known here.
        self.headless = headless
        self.parts: list[Part] = list(artifact.parts)
        self.told: list[str] = []
        self.in_pieces = False

    def whole(self) -> Artifact:
        """The artifact, with texts that came in pieces as one."""
        known = self.artifact
        if self.in_pieces:
            self.parts = _joined(self.parts)
        return Artifact(
            known.artifact_id,
            known.name,
            known.description,
            tuple(self.parts),
            known.metadata,
            known.extensions,
        )

    def replace(self, artifact: Artifact) -> str | None:
        """The words that are new in it; None if it contradicts what was told."""
        self.artifact = artifact
        self.parts = list(artifact.parts)
        self.in_pieces = False
        text = artifact_text(artifact)
        told = "".join(self.told)
        self.told = [text]
        headless, self.headless = self.headless, False
        if headless and text.endswith(told):
            return ""
        return text[len(told) :] if text.startswith(told) else None

    def plainly(self, more: Artifact) -> str | None:
        """Append what is one text and nothing else; None if it is not."""
        parts, name = more.parts, more.name
        if len(parts) != 1 or more.metadata or more.extensions or (name and name != self.artifact.name):
            return None
        part = parts[0]
        text = part.text
        if text is None or part.metadata or part.extra or part.data is not UNSET:
            return None
        self.parts.append(part)
        self.told.append(text)
        return text

    def append(self, more: Artifact) -> str:
        """Add to it; the words that are new."""
        parts = more.parts
        self.parts.extend(parts)
        self.in_pieces = True
        text = (parts[0].text or "") if len(parts) == 1 else artifact_text(more)
        self.told.append(text)
        known = self.artifact
        if more.metadata or more.extensions or (more.name and more.name != known.name):
            self.artifact = Artifact(
                known.artifact_id,
                more.name or known.name,
                more.description or known.description,
                (),
                {**(known.metadata or {}), **(more.metadata or {})} or None,
                tuple(dict.fromkeys((*known.extensions, *more.extensions))),
            )
        return text


def _joined(parts: list[Part]) -> list[Part]:
    """Texts that came in pieces, as one."""
    joined: list[Part] = []
    run: list[str] = []
    for part in parts:
        if part.text is not None and part == Part(text=part.text):
            run.append(part.text)
            continue
        if run:
            joined.append(Part(text="".join(run)))
            run = []
        joined.append(part)
    if run:
        joined.append(Part(text="".join(run)))
    return joined
