"""Which runs of workflows a caller may know. Pure."""

from __future__ import annotations

from trunkline.auth.principal import Principal, Scope


class TokenPrincipal(Principal, frozen=True):
    """The principal of a token of `WORKFLOW_ENGINE_AUTH_TOKENS`. These tokens share all runs."""


def owner_known(principal: Principal) -> str | None:
    """Return the owner whose runs a caller may know, or None for all runs of its tenant."""
    knows_all = Scope.ADMIN in principal.scopes or isinstance(principal, TokenPrincipal)
    return None if knows_all else principal.name
