"""Looks names up with the machine's own resolver, off the event loop and with bounds.

A name that hangs holds a thread for as long as the system likes. So a name holds one at most, whoever asks
for it, and each principal and tenant have their share: whoever names what never resolves waits for itself.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import AbstractEventLoop, Future, Semaphore
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from weakref import WeakKeyDictionary, WeakValueDictionary

THREADS = 64
# Of these at most: a tenant has a part that leaves room for others, and a principal a part of that.
PER_TENANT = 24
PER_PRINCIPAL = 4
# How long somebody waits for a thread. Shorter than a name may take, so that the two can be told apart.
TURN_S = 2.0
# Finds all addresses of a name, as numbers; raises `ResolverBusy` where nobody was asked, or else `OSError`.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
# Tenant and principal for whom names are looked up; None is ourselves. Beside the calls, because what lies
# between who knows it and the resolver is an HTTP client, which has no use for it.
_on_behalf: ContextVar[tuple[str, str] | None] = ContextVar("on_behalf", default=None)


@contextmanager
def on_behalf_of(tenant: str, principal: str) -> Generator[None]:
    """Look names up in the share of this principal."""
    token = _on_behalf.set((tenant, principal))
    try:
        yield
    finally:
        _on_behalf.reset(token)


class ResolverBusy(OSError):
    """Too many names are being looked up; this says nothing about the one that was asked for."""


class _Lookups:
    """The lookups of one event loop, and the threads that are left of each share."""

    def __init__(self) -> None:
        self.asked: dict[str, Future[list[str]]] = {}
        # Whoever has a thread, or waits for one, holds on to its shares; others are forgotten.
        self._shares: WeakValueDictionary[tuple[str, ...], Semaphore] = WeakValueDictionary()

    async def acquire(self, limits: dict[tuple[str, ...], int]) -> ExitStack:
        """Take a thread of all these shares, after those who wait for one; closing gives it back.

        Raises:
            ResolverBusy: there was none in time.
        """
        with ExitStack() as held:
            try:
                async with asyncio.timeout(TURN_S):
                    for share, limit in limits.items():
                        left = self._shares.setdefault(share, Semaphore(limit))
                        await left.acquire()
                        held.callback(left.release)
            except TimeoutError:
                raise ResolverBusy("too many names are being looked up") from None
            return held.pop_all()


class SystemResolver:
    """The machine's own resolver, with so many threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="trunkline-names")
        self._loops: WeakKeyDictionary[AbstractEventLoop, _Lookups] = WeakKeyDictionary()

    async def __call__(self, host: str, port: int, /) -> Sequence[str]:
        """See `Resolver`."""
        loop = asyncio.get_running_loop()
        lookups = self._loops.setdefault(loop, _Lookups())
        asked = lookups.asked.get(host)
        if asked is None:
            thread = await lookups.acquire(_limits(_on_behalf.get()))
            asked = lookups.asked.get(host)
            if asked is not None:
                thread.close()
            else:
                asked = lookups.asked[host] = loop.run_in_executor(self._threads, _look_up, host)
                asked.add_done_callback(partial(_ended, lookups, host, thread))
        return await asyncio.shield(asked)


def _ended(lookups: _Lookups, host: str, thread: ExitStack, asked: Future[list[str]]) -> None:
    lookups.asked.pop(host, None)
    # Now, and not when whoever asked has given up: the thread was busy until here.
    thread.close()
    if not asked.cancelled():
        # Everybody who asked may have gone; then nobody else looks at it.
        asked.exception()


def _limits(on_behalf: tuple[str, str] | None) -> dict[tuple[str, ...], int]:
    """The shares that a lookup needs, the narrowest first: who waits for that one holds no wider one."""
    if on_behalf is None:
        return {(): THREADS}
    return {on_behalf: PER_PRINCIPAL, on_behalf[:1]: PER_TENANT, (): THREADS}


def _look_up(host: str) -> list[str]:
    # Without the port: a name has the same addresses at each, and holds one thread for all of them.
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[0]) for *_, address in found]


# Threads of their own for what is dialled and for what is only asked about: names that callers give us to
# check must not keep those waiting that were checked long ago.
ask_system = SystemResolver()
check_system = SystemResolver()
