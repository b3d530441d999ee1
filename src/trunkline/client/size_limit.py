"""How much of an answer is kept in memory: an agent may go on for ever, and a stream keeps what it made."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from trunkline.wire.types import Artifact, Metadata

# Far more than an agent's stored task may be when it is read.
LIMIT = 128 << 20
# What a thing costs beside its texts.
PIECE = 100


class SizeLimit:
    """The bytes of all artifacts of an answer, about, and of what is noted beside them."""

    __slots__ = ("_known", "total")

    def __init__(self) -> None:
        self.total = 0
        self._known: dict[str, int] = {}

    def take(self, artifact: Artifact, append: bool = False) -> None:
        """An artifact has come, in place of what was known of it or as more of it."""
        before = self._known.get(artifact.artifact_id, 0)
        now = _artifact(artifact) + (before if append else 0)
        self._known[artifact.artifact_id] = now
        self.total += now - before

    def grow(self, artifact_id: str, text: str, note: str) -> None:
        """Count more text of a known artifact, and a note that is remembered with it."""
        more = 2 * PIECE + len(text)
        self._known[artifact_id] += more
        self.total += more + PIECE + len(note)

    def describe(self, metadata: Metadata) -> None:
        """Metadata has come that is kept beside what was there."""
        self.total += _data(metadata)


def _artifact(artifact: Artifact) -> int:
    weight = PIECE + len(artifact.artifact_id) + len(artifact.name) + len(artifact.description)
    for part in artifact.parts:
        text = part.text or part.raw or part.url or ""
        weight += PIECE + len(text) + len(part.filename) + len(part.media_type)
        if part.data is not UNSET:
            weight += _data(part.data)
        if part.metadata or part.extra:
            weight += _data((part.metadata, part.extra))
    if artifact.extensions:
        weight += sum(map(len, artifact.extensions))
    return weight + (_data(artifact.metadata) if artifact.metadata else 0)


def _data(value: object) -> int:
    return len(msgspec.json.encode(value))
