"""The caller of an operation, as every binding hands it in, and the extensions that its request names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from trunkline.auth.principal import Principal
from trunkline.errors import InvalidParams
from trunkline.http.exchange import Headers
from trunkline.wire.service_parameters import read_extensions
from trunkline.wire.writer import Dialect

HEADER = b"a2a-extensions"
# Its name in 0.3.
FORMER = b"x-a2a-extensions"
SPELLED = {HEADER: "A2A-Extensions", FORMER: "X-A2A-Extensions"}


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
