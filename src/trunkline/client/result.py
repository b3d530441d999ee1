"""What an agent answered, whatever shape it came in."""

from __future__ import annotations

import binascii
from math import isfinite
from typing import Any, cast

from msgspec import UNSET, Struct

from trunkline.wire.question import Question, is_question_part, read_question
from trunkline.wire.types import INTERRUPTED, TERMINAL, Artifact, Message, Metadata, Part, Task, TaskState

_FAMILY = "/vnd.protolabs."
_RESULT = "-result-v"
COST = "cost-v1"
CONFIDENCE = "confidence-v1"


class File(Struct, frozen=True):
    """A file of an answer: its bytes, or the address where they are."""

    name: str
    media_type: str
    url: str
    content: bytes | None


class Result(Struct, frozen=True):
    """An answer: a task as it stands, or a message without a task."""

    task: Task | None = None
    message: Message | None = None

    @property
    def text(self) -> str:
        """The text of the artifacts, else of the status message, else of the message.

        The texts of one artifact are joined as they are; several artifacts stand on lines of their own.
        """
        if self.task is None:
            return text_of(self.message)
        found = [text for one in self.task.artifacts if (text := artifact_text(one))]
        return "\n".join(found) if found else text_of(self.task.status.message)

    @property
    def data(self) -> Any:
        """The first data of the answer that is no report of the run about itself; None if there is none."""
        return next(iter(self.all_data), None)

    @property
    def all_data(self) -> tuple[Any, ...]:
        """All data of the answer, without reports."""
        return tuple([part.data for part in result_parts(self) if part.data is not UNSET])

    @property
    def files(self) -> tuple[File, ...]:
        """The files of the answer, their bytes decoded."""
        return tuple([_file(part) for part in result_parts(self) if is_file_part(part)])

    @property
    def state(self) -> TaskState:
        """Where the task stands; a message without a task is a completed answer."""
        return TaskState.COMPLETED if self.task is None else self.task.status.state

    @property
    def ok(self) -> bool:
        """Whether the goal was reached."""
        return self.state is TaskState.COMPLETED

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more."""
        return self.state in TERMINAL

    @property
    def question(self) -> Question:
        """What the agent asks while it waits for an answer or a login; else nothing."""
        task = self.task
        asked = task.status.message if task is not None and task.status.state in INTERRUPTED else None
        return Question("") if asked is None else read_question(asked)

    @property
    def task_id(self) -> str:
        """The task; empty if the answer came without one."""
        if self.task is not None:
            return self.task.id
        return "" if self.message is None else self.message.task_id

    @property
    def context_id(self) -> str:
        """The conversation; empty if the agent names none."""
        if self.task is not None:
            return self.task.context_id
        return "" if self.message is None else self.message.context_id

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The results of the task."""
        return () if self.task is None else self.task.artifacts

    @property
    def usage(self) -> Metadata | None:
        """The tokens that the run reports, by the names of the cost extension; None if it reports none."""
        used = (self._report(COST) or {}).get("usage")
        return cast("Metadata", used) if isinstance(used, dict) else None

    @property
    def cost_usd(self) -> float | None:
        """What the run cost, if it says so."""
        return number((self._report(COST) or {}).get("costUsd"))

    @property
    def confidence(self) -> float | None:
        """How sure the agent is, 0 to 1, if it says so."""
        return number((self._report(CONFIDENCE) or {}).get("confidence"))

    @property
    def confidence_explanation(self) -> str:
        """Why it is that sure."""
        found = self._report(CONFIDENCE) or {}
        why = found.get("explanation", found.get("confidenceExplanation"))
        return why if isinstance(why, str) else ""

    def _report(self, name: str) -> Metadata | None:
        """The body of a report: a data part that names its type, or metadata under the extension's URI."""
        task = self.task
        holders: list[Message | Artifact | Task] = [] if task is None else [*task.artifacts, task]
        said = self.message if task is None else task.status.message
        if said is not None:
            holders.append(said)
        return next((found for holder in holders if (found := report_in(holder, name)) is not None), None)


def result_parts(result: Result) -> tuple[Part, ...]:
    """The parts of an answer, without reports: of the artifacts, else of what was said."""
    task = result.task
    said = result.message if task is None else task.status.message
    made = [] if task is None else [part for artifact in task.artifacts for part in artifact.parts]
    found = made or ([] if said is None else said.parts)
    return tuple([part for part in found if not is_report(part)])


def is_file_part(part: Part) -> bool:
    """Whether a part is a file: its bytes, or the address where they are."""
    return part.raw is not None or part.url is not None


def report_in(holder: Message | Artifact | Task, name: str) -> Metadata | None:
    """Return the body of a report in the parts of a holder or in its metadata; None if it has none."""
    # 0.3 has a media type without a version: `worldstate-delta` for `worldstate-delta-v1`.
    names = (name, name.removesuffix("-v1"))
    for part in () if isinstance(holder, Task) else holder.parts:
        if report_type(part).partition(_FAMILY)[2].partition("+")[0] in names and isinstance(part.data, dict):
            return cast("Metadata", part.data)
    for key, value in (holder.metadata or {}).items():
        if key.endswith(name) and isinstance(value, dict):
            return cast("Metadata", value)
    return None


def text_of(message: Message | None) -> str:
    """The text of a message, its parts joined as they are."""
    if message is None:
        return ""
    parts = message.parts
    if len(parts) == 1:
        return parts[0].text or ""
    return "".join([part.text for part in parts if part.text is not None])


def artifact_text(artifact: Artifact) -> str:
    """The text of an artifact, its parts joined as they are."""
    parts = artifact.parts
    if len(parts) == 1:
        return parts[0].text or ""
    return "".join([part.text for part in parts if part.text is not None])


def report_type(part: Part) -> str:
    """The media type by which a data part says that it reports on the run; empty if it is no report."""
    if part.data is UNSET:
        return ""
    named = (part.metadata or {}).get("mimeType", part.media_type)
    # A skill's own result has a type of the same family.
    if not isinstance(named, str) or _FAMILY not in named or _RESULT in named:
        return ""
    return named


def is_report(part: Part) -> bool:
    """Whether it is what a run says of itself or of its question, and no part of its result."""
    return report_type(part) != "" or is_question_part(part)


def _file(part: Part) -> File:
    content = None if part.raw is None else binascii.a2b_base64(part.raw)
    return File(part.filename, part.media_type, part.url or "", content)


def number(value: object) -> float | None:
    """A number that a report holds; None if it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if isfinite(value) else None
