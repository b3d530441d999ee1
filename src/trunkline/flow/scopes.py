"""What the tokens of workflow callers allow, by the names that other engines know. Pure."""

from __future__ import annotations

from trunkline.auth.principal import Principal, Scope
from trunkline.errors import FlowRefused

START, RESUME, READ, SUBMIT = FLOW_SCOPES = ("start", "resume", "read_history", "submit_activity")
_NEEDED = {"resume": RESUME, "submit_activity": SUBMIT, "signal": SUBMIT}


class TokenPrincipal(Principal, frozen=True, kw_only=True):
    """Who has shown a token of workflows: the door lets it in, and what it may do there is `granted`."""

    granted: frozenset[str]


def permit(principal: Principal, operation: str, *, reads: bool) -> None:
    """Let a caller pass who may do an operation; the scopes of keys were looked at by the door.

    Raises:
        FlowRefused: its token does not allow that.
    """
    needed = READ if reads else _NEEDED.get(operation, START)
    if isinstance(principal, TokenPrincipal) and needed not in principal.granted:
        raise FlowRefused(
            "AUTH_FORBIDDEN",
            f"this needs the scope {needed}, which the token does not have",
            {
                "reason": "insufficient_scope",
                "required_scope": needed,
                "granted_scopes": sorted(principal.granted),
            },
        )


def owner_known(principal: Principal) -> str | None:
    """Whose runs a caller may know of; None are those of everybody in its tenant.

    Tokens share the runs: one may start what another one goes on with.
    """
    knows_all = Scope.ADMIN in principal.scopes or isinstance(principal, TokenPrincipal)
    return None if knows_all else principal.name
