"""What a run reports of itself, in the two forms of the wire: metadata under a URI, and data parts.

1.0 has it as metadata, so that nobody finds in an answer what is no part of it, and as parts for who named
the extension. Agents of the time of 0.3 look for parts.
"""

from __future__ import annotations

from msgspec.structs import replace

from trunkline.wire.types import Artifact, Metadata, Part, Task

URI = "https://proto-labs.ai/a2a/ext/"
# The name of the step that keeps the reports which a caller does not want: they are counted all the same.
UNTOLD = "report.untold"
# The name of the step that records the cost of one model call while its task works on.
SPENT = "report.spent"
_TYPE = "application/vnd.protolabs."


def report_part(uri: str, body: object) -> Part:
    """A report as a data part that names its media type."""
    media_type = f"{_TYPE}{uri.removeprefix(URI)}+json"
    return Part(data=body, media_type=media_type, metadata={"mimeType": media_type})


def parts_with_reports(artifact: Artifact) -> tuple[Part, ...]:
    """The parts of an artifact, and as further ones the reports that are in its metadata alone."""
    known = [part.data for part in artifact.parts]
    found = _reports(artifact).items()
    more = [report_part(uri, body) for uri, body in found if uri.startswith(URI) and body not in known]
    return (*artifact.parts, *more)


def is_bare(artifact: Artifact) -> bool:
    """Whether an artifact holds reports and nothing that they could stand with: it is none for 1.0."""
    return not artifact.parts and bool(artifact.extensions)


def bare_reports(artifacts: tuple[Artifact, ...]) -> Metadata:
    """The reports of those artifacts that hold nothing else."""
    return {uri: body for one in artifacts if is_bare(one) for uri, body in _reports(one).items()}


def without_bare(task: Task) -> Task:
    """A task whose reports are in its own metadata if no artifact is there to hold them."""
    if not any([is_bare(one) for one in task.artifacts]):
        return task
    metadata = {**(task.metadata or {}), **bare_reports(task.artifacts)}
    artifacts = tuple([one for one in task.artifacts if not is_bare(one)])
    return replace(task, artifacts=artifacts, metadata=metadata or None)


def _reports(artifact: Artifact) -> Metadata:
    metadata = artifact.metadata or {}
    return {uri: metadata[uri] for uri in artifact.extensions if uri in metadata}
