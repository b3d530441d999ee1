"""The caller of an operation, as every binding hands it in."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from trunkline.auth.principal import Principal
from trunkline.errors import InvalidParams
from trunkline.server.extensions import Asked
from trunkline.wire.writer import Dialect


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

    def check_tenant(self, named: str) -> None:
        """Let a request pass that names no tenant, or that of its caller.

        Raises:
            InvalidParams: it names another; whether there is one of that name is not told.
        """
        if named and named != self.principal.tenant:
            raise InvalidParams(f"there is no tenant {named!r} here", field="tenant")
