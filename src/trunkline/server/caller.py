"""The caller of an operation, as every binding hands it in: what it may do, and the extensions it names.

Others' questions are for callers with the scope `answer`; they see nothing else of such a task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

import msgspec
from msgspec import Struct

from trunkline.auth.principal import CALLER, INCLUDED_IN, Principal, Scope
from trunkline.errors import Forbidden, InvalidParams
from trunkline.http.exchange import Headers
from trunkline.log.fold import State
from trunkline.log.ids import UUID
from trunkline.store.records import Dedup
from trunkline.wire.operations import Operation
from trunkline.wire.service_parameters import read_extensions
from trunkline.wire.types import Correlation, SendRequest, Task, TaskStatus
from trunkline.wire.writer import Dialect

DEDUP_MS = 24 * 3600 * 1000
HEADER = b"a2a-extensions"
# Its name in 0.3.
FORMER = b"x-a2a-extensions"
SPELLED = {HEADER: "A2A-Extensions", FORMER: "X-A2A-Extensions"}

_encode = msgspec.json.Encoder().encode

READ, WRITE, METRICS, ADMIN = Scope.READ, Scope.WRITE, Scope.METRICS, Scope.ADMIN
_CARD_READERS = frozenset({READ, WRITE, Scope.ANSWER, ADMIN})
_CHANGING = (Operation.SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET, Operation.PUSH_DELETE)
NEEDED = {operation: WRITE if operation in _CHANGING else READ for operation in Operation}
# Who may only answer questions comes in too, and is then shown and taken no more than that.
INSTEAD: dict[Operation, Scope] = dict.fromkeys(
    (Operation.SEND, Operation.STREAM, Operation.GET, Operation.LIST), Scope.ANSWER
)


def permit(principal: Principal, scope: Scope, instead: Scope | None = None) -> None:
    """Check that a caller has a scope, a wider scope that includes it, or the scope `instead`.

    Raises:
        Forbidden: the caller has none of them.
    """
    granted = principal.scopes
    if scope not in granted and instead not in granted and INCLUDED_IN.get(scope) not in granted:
        raise Forbidden(
            f"this needs the scope {scope.value}, which the caller does not have",
            scope=scope.value,
            granted=" ".join(sorted([one.value for one in granted])),
        )


def reads_cards(principal: Principal) -> bool:
    """Return whether a caller may read cards that are hidden from the public: it may use or manage agents."""
    return not principal.scopes.isdisjoint(_CARD_READERS)


def owns(who: Principal, state: State) -> bool:
    """Whether a task is this caller's own, and it may do more than answer."""
    return state.principal == who.name and not who.scopes.isdisjoint(CALLER)


def may_see(who: Principal, state: State) -> bool:
    """Whether another's task may be seen by a caller: it asks something, or this caller has answered it."""
    return Scope.ANSWER in who.scopes and (state.interrupted or who.name in state.answered_by)


def answers_as(who: Principal, state: State) -> str:
    """The name under which a caller answers, if it may do nothing else; empty if it may say anything."""
    return "" if owns(who, state) and Scope.WRITE in who.scopes else who.name


def view(who: Principal, state: State, history_length: int | None = None, *, artifacts: bool = True) -> Task:
    """A task as a caller may see it: the whole of its own, of another's what it asks and where it stands."""
    if owns(who, state):
        return state.task(history_length, artifacts=artifacts)
    status = state.status()
    shown = status if state.interrupted else TaskStatus(status.state, timestamp=status.timestamp)
    return Task(state.task_id, state.context_id, shown)


class Caller(Struct, frozen=True, gc=False):
    """Who asks, in which dialect, and what its headers say about repeats, resuming and its trace."""

    principal: Principal
    dialect: Dialect
    wait: bool = True
    idempotency_key: str = ""
    last_event_id: str | None = None
    trace: str = ""
    extensions: Asked | None = None
    # Whether it is still let in; None for a token, which nobody can take back.
    lasting: Callable[[], bool] | None = None
    correlation: Correlation | None = None

    def dedup(self, request: SendRequest) -> Dedup | None:
        """Return the key by which a repetition of this request is found, or None if it has none."""
        key, message = self.idempotency_key, request.message
        if key:
            key = f"{self.principal.name}\x1fk\x1f{key}"
        elif UUID.match(message.message_id):
            key = f"{self.principal.name}\x1fm\x1f{message.message_id}"
        else:
            return None
        # With metadata, because they may name another skill. A message alone has the digest of earlier
        # versions, so that repetitions are found after an update.
        what = (message, request.metadata) if request.metadata else message
        return Dedup(key, blake2b(_encode(what), digest_size=16).digest(), DEDUP_MS)

    def check_tenant(self, named: str) -> None:
        """Let a request pass that names no tenant, or that of its caller.

        Raises:
            InvalidParams: it names another; whether there is one of that name is not told.
        """
        if named and named != self.principal.tenant:
            raise InvalidParams(f"there is no tenant {named!r} here", field="tenant")


class Asked(Struct):
    """What a request names, and what is in force on the task it came to: who opened a task decides."""

    named: tuple[str, ...]
    headers: tuple[bytes, ...]
    settled: bool = False
    recorded: tuple[str, ...] | None = None

    def settle(self, recorded: tuple[str, ...] | None) -> None:
        """The task is known; None if whoever opened it named none, so that everything is in force."""
        self.settled = True
        self.recorded = recorded

    def answer(self, spoken: Collection[str]) -> Headers:
        """The headers that name what is in force, of what was named and is spoken here."""
        recorded = self.recorded
        active = [uri for uri in self.named if uri in spoken and (recorded is None or uri in recorded)]
        if not self.settled or not active:
            return ()
        value = ", ".join(active).encode()
        return [(header, value) for header in self.headers]


def read_asked(headers: Mapping[bytes, bytes]) -> Asked | None:
    """What a request names; None if it names nothing.

    Raises:
        InvalidParams: a header names too many, or one that is too long.
    """
    given = {SPELLED[name]: headers[name].decode("latin-1") for name in SPELLED if name in headers}
    named = read_extensions(given)
    # Always by its present name, and by the former one to who asks by it.
    return Asked(named, (HEADER, FORMER) if FORMER in headers else (HEADER,)) if named else None
