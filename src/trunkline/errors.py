"""Every error that this package raises on purpose, as one tree.

TrunklineError
├── Refused                     an answer to a caller; `wire.codes` maps each class to its codes
│   ├── ParseError  InvalidRequest  MethodNotFound  InvalidParams  InternalError
│   ├── TaskNotFound  TaskNotCancelable  PushNotSupported  UnsupportedOperation
│   ├── ContentTypeNotSupported  ExtendedCardNotConfigured
│   ├── VersionNotSupported
│   ├── Unauthenticated  Forbidden  TooLarge  RouteNotFound
│   ├── TooManyRequests  Unavailable
│   └── PeerError               what another agent said that has no class of its own here
├── StoreError
│   ├── Conflict  Duplicate  StoreInUse
├── TurnOver                    the task ended or moved while its executor still worked
├── Unanswered                  a skill's question: its deadline has passed, or its answer is a rejection
├── CallFailed                  an agent or a tool that was called did not do it
├── TaskFull                    an executor has said more than a task may hold
├── Unreachable                 nobody was reached out there, or nobody may be
│   ├── TimedOut  Uncertain
├── FlowRefused                 a call about a workflow; it has one of the codes that workflows have
│   └── FlowInvalid             a definition that breaks a rule; it says which, and where
├── Unreadable                  what another agent answered is no A2A
└── Misuse                      a programming or set-up mistake; the text says what to change
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LONGEST = 1000


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class TrunklineError(Exception):
    """Root of everything this package raises on purpose.

    `hint` is the next step on the command line: a command, or an option to run the same command with.
    """

    def __init__(self, *args: object, hint: str = "") -> None:
        super().__init__(*args)
        self.hint = hint


class Refused(TrunklineError):
    """A request that cannot be served, with the reason its sender will read."""

    def __init__(self, message: str, *, field: str = "", **details: str) -> None:
        # It may quote the caller, and what a caller sends may be a megabyte.
        self.message = _shortened(message)
        super().__init__(self.message)
        self.field = _shortened(field)
        self.details = details


class ParseError(Refused):
    """The body of a request is not JSON."""


class InvalidRequest(Refused):
    """The body is JSON but not a JSON-RPC request."""


class MethodNotFound(Refused):
    """The protocol version that was asked for has no such method."""


class InvalidParams(Refused):
    """A member of the request is missing, of the wrong type or out of range."""


class InternalError(Refused):
    """A fault of this server; its log says more."""


class TaskNotFound(Refused):
    """There is no such task, or it belongs to another principal; the two are never told apart."""


class TaskNotCancelable(Refused):
    """The task has already ended."""


class PushNotSupported(Refused):
    """This agent sends no push notifications."""


class UnsupportedOperation(Refused):
    """The operation does not fit the agent or the state of the task."""


class ContentTypeNotSupported(Refused):
    """No skill reads this kind of content."""


class ExtendedCardNotConfigured(Refused):
    """This agent has no extended card."""


class VersionNotSupported(Refused):
    """The protocol version that was asked for is not spoken here."""


class Unauthenticated(Refused):
    """The request has no credentials, or wrong ones."""


class Forbidden(Refused):
    """The caller, its Host or its Origin is not let in."""


class TooLarge(Refused):
    """A body or an event is over its size limit."""


class RouteNotFound(Refused):
    """There is no such path, or it does not take this HTTP method; `missing` is the code of what it names."""

    def __init__(self, message: str, *, allow: str = "", missing: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.allow = allow
        self.missing = missing


class TooManyRequests(Refused):
    """The caller is over its rate or has too much in flight; `field` names the limit that was met."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0, field: str = "") -> None:
        super().__init__(message, field=field)
        self.retry_after_s = retry_after_s


class Unavailable(Refused):
    """The store cannot take writes now, or the server is going down."""


class PeerError(Refused):
    """Another agent refused with a code that none of the other classes stands for: JSON-RPC's or HTTP's."""

    def __init__(self, message: str, *, code: int, **details: str) -> None:
        super().__init__(message, **details)
        self.code = code


class StoreError(TrunklineError):
    """The store failed; nothing that was not acknowledged may be relied on.

    With a `damaged_task` it is the log of that task that cannot be read back; all others can. With `damage`
    one document cannot be decoded, for this reason.
    """

    damaged_task = ""
    damage = ""

    @classmethod
    def damaged(cls, task_id: str, reason: object) -> StoreError:
        """The error of a task whose log cannot be read back."""
        error = StoreError(f"task {task_id} cannot be read: {reason}")
        error.damaged_task = task_id
        return error

    @classmethod
    def damaged_doc(cls, kind: str, doc_id: str, reason: str) -> StoreError:
        """Return the error of a document that cannot be decoded."""
        error = StoreError(
            f"document {doc_id!r} of kind {kind} is damaged: {reason}; see trunkline store repair --help"
        )
        error.damage = reason or "it cannot be decoded"
        return error


class Conflict(StoreError):
    """Another writer appended to the task first. Load the task and decide again."""

    def __init__(self, actual: int) -> None:
        super().__init__(f"the log stands at seq {actual}; read it and decide again")
        self.actual = actual


class Duplicate(StoreError):
    """A key of an append was recorded before: its idempotency key, or the one that it claims."""

    def __init__(self, task_id: str, seq: int, digest: bytes, key: str = "") -> None:
        super().__init__(f"already recorded by task {task_id} at seq {seq}")
        self.task_id = task_id
        self.seq = seq
        self.digest = digest
        self.key = key


class StoreInUse(StoreError):
    """Another process has this store open; `pid` is its process ID, or empty if unknown."""

    def __init__(self, message: str, pid: str = "", *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class TurnOver(TrunklineError):
    """The task has ended, or another node owns it; this executor must stop."""


class Unanswered(TrunklineError):
    """A question got no answer before its deadline, or was `rejected` by who was asked; the text says why."""

    def __init__(self, message: str, *, rejected: bool = False) -> None:
        super().__init__(message)
        self.rejected = rejected


class CallFailed(TrunklineError):
    """An agent or a tool that was called did not do what it was asked for, or asks something back.

    `result` is the agent's task as it stands, as a client gives it; None if it never began. `code` is that of
    a tool of an MCP server, such as `MCP_TOOL_EXECUTION_ERROR`.
    """

    def __init__(self, message: str, result: Any = None, *, code: str = "") -> None:
        super().__init__(_shortened(message))
        self.result = result
        self.code = code


class TaskFull(TrunklineError):
    """The log of a task has reached its size limit; the task can only end."""


class Unreachable(TrunklineError):
    """An address out there that may not be called, or did not answer as it should.

    `reason` is one word: `refused` (by our own rules), `url`, `name`, `connect`, `tls`, `plain` (no TLS
    where it was expected), `timeout`, `size`, `protocol`; `sent` when the request may have been taken,
    `breaker` when a peer that fails is left alone.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class TimedOut(Unreachable):
    """An outgoing call took too long: `connect`, `idle` (nothing came) or `total` (the whole call)."""


class Uncertain(Unreachable):
    """The request was sent and its answer lost: the agent may be doing the work.

    It is not sent again, as this agent does not say that it knows a message when it comes twice.
    `message_id` is that of the message.
    """

    def __init__(self, message: str, *, reason: str, message_id: str) -> None:
        super().__init__(message, reason=reason)
        self.message_id = message_id


class FlowRefused(TrunklineError):
    """A call about a workflow or one of its runs that is refused, or a run that failed.

    `code` is one of those that workflows have, such as `EXECUTION_NOT_FOUND`; `details` is JSON.
    """

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        # It may quote the caller, and what a caller sends may be a megabyte.
        self.message = _shortened(message)
        super().__init__(self.message)
        self.code = code
        self.details = details or {}


class FlowInvalid(FlowRefused):
    """A workflow definition that breaks rules: `diagnostics` says which ones, and where."""

    def __init__(self, message: str, diagnostics: Sequence[Any] = ()) -> None:
        super().__init__("VALIDATION_ERROR", message)
        self.diagnostics = diagnostics


class Unreadable(TrunklineError):
    """An agent's answer that cannot be understood; the text says what is wrong with it."""


class Misuse(TrunklineError):
    """A mistake in code or settings; the message names the fix."""
