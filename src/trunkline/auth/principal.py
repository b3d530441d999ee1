"""The caller of everything inward: a tenant, a name within it, and what it may do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from trunkline.errors import Forbidden, InvalidParams, Misuse

DEFAULT_TENANT = "default"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# The first segments of paths of our own, served now or by a hub: `/{tenant}/tasks` must not be one of them.
RESERVED = frozenset(
    ("a2a", "admin", "agents", "api", "card", "delegate", "extendedAgentCard", "healthz", "mcp", "message")
    + ("metrics", "readyz", "tasks", "ui", "v1")
)
# In files it stands for every tenant.
_EVERY = "all"


class Scope(Enum):
    """What a caller may be allowed to do."""

    # Looked up on every request; Enum's own hash is Python code.
    __hash__ = object.__hash__

    READ = "tasks:read"
    WRITE = "tasks:write"
    # To see and answer what the tasks of one's tenant ask, whoever opened them.
    ANSWER = "answer"
    # To say where an agent is, in the catalogue of a hub.
    ANNOUNCE = "announce"
    METRICS = "metrics"
    # Everything of one's own tenant; and of any tenant, and of the server as a whole.
    ADMIN = "admin"
    OPERATOR = "operator"
    # Runs of workflows over their REST API and nothing else, by the names that other workflow engines use.
    START = "start"
    RESUME = "resume"
    SUBMIT = "submit_activity"
    HISTORY = "read_history"


SCOPES = {scope.value: scope for scope in Scope}
FLOW_SCOPES = frozenset({Scope.START, Scope.RESUME, Scope.SUBMIT, Scope.HISTORY})
# The scope that includes each of them.
INCLUDED_IN = {
    Scope.START: Scope.WRITE,
    Scope.RESUME: Scope.WRITE,
    Scope.SUBMIT: Scope.WRITE,
    Scope.HISTORY: Scope.READ,
}
CALLER = frozenset({Scope.READ, Scope.WRITE})
OPERATOR = frozenset(Scope)


class Principal(Struct, frozen=True, gc=False):
    """An authenticated caller; `name` is the owner of the tasks that it sends.

    The scopes have no default: each kind of credential states what it grants.
    """

    tenant: str
    name: str
    scopes: frozenset[Scope]

    def lasts_in(self, now: Principal | None) -> bool:
        """Whether who a key stood for is who it stands for now, and may still do all that it might."""
        # Nearly always nothing has changed.
        if now is self or now is None:
            return now is self
        return (now.tenant, now.name) == (self.tenant, self.name) and self.scopes <= now.scopes


ANONYMOUS = Principal(DEFAULT_TENANT, "anonymous", frozenset({Scope.READ, Scope.WRITE, Scope.METRICS}))


def scopes_of(names: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes of these names. Unknown names grant nothing."""
    return frozenset([SCOPES[name] for name in names if name in SCOPES])


def with_included(scopes: frozenset[Scope]) -> frozenset[Scope]:
    """Return these scopes and the narrower ones that they include."""
    return scopes.union([narrow for narrow, wide in INCLUDED_IN.items() if wide in scopes])


def tenant_of(principal: Principal, asked: str) -> str:
    """The tenant that a call is about.

    Raises:
        Forbidden: it is another one's, and the caller no operator.
        InvalidParams: it cannot be any.
    """
    if asked in ("", principal.tenant):
        return principal.tenant
    if Scope.OPERATOR in principal.scopes:
        if not asked.isprintable():
            # PostgreSQL cannot even be asked for a text with a NUL in it.
            raise InvalidParams("tenant holds printable characters only", field="tenant")
        return asked
    raise Forbidden("this concerns another tenant; it needs a key with the scope operator")


def check_tenant(name: str) -> None:
    """Whether a tenant may be called this.

    Raises:
        Misuse: it may not.
    """
    if _TENANT.fullmatch(name) is None or name in {*RESERVED, _EVERY}:
        raise Misuse(
            f"{name!r} cannot be a tenant: use 1 to 64 letters, digits, dots, hyphens and underscores, "
            f"and none of {', '.join(sorted({*RESERVED, _EVERY}))}"
        )
