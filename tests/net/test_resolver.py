"""Names are looked up off the loop, once each, and nobody's names keep those of others waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from trunkline.errors import Unreachable
from trunkline.net import resolver
from trunkline.net.egress import Egress
from trunkline.net.resolver import ResolverBusy, SystemResolver, ask_system, on_behalf_of

FOUND = ["93.184.215.14"]


class Names:
    """A system whose names hang while they are told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []

    def look(self, host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        self.asked.append(host)
        if "hangs" in host:
            self.answers.wait(60)
        return [(0, 0, 0, "", (FOUND[0], 80))]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.look)
    monkeypatch.setattr(resolver, "TURN_S", 0.05)
    yield names
    names.answers.set()


async def _asked_by(
    ask: SystemResolver, tenant: str, principal: str, *hosts: str, port: int = 80
) -> list[asyncio.Future[object]]:
    async def one(host: str) -> object:
        with on_behalf_of(tenant, principal):
            return await ask(host, port)

    asking = [asyncio.ensure_future(one(host)) for host in hosts]
    await asyncio.sleep(0)
    return asking


def test_a_name_is_looked_up_once_for_all_who_ask_and_all_its_ports(system: Names) -> None:
    async def main() -> None:
        ask = SystemResolver()
        asking = [asyncio.ensure_future(ask("hangs.test", port)) for port in range(1, 100)]
        # One of those who wait goes away; the others still hear.
        await asyncio.sleep(0)
        asking.pop(0).cancel()
        assert await ask("good.test", 80) == FOUND
        system.answers.set()
        assert await asyncio.gather(*asking) == [FOUND] * 98

    asyncio.run(main())
    assert system.asked.count("hangs.test") == 1


def test_whose_names_never_resolve_waits_for_itself(system: Names) -> None:
    """2.3: of one principal so many hang at once; others of its tenant, and other tenants, are served."""

    async def main() -> None:
        ask = SystemResolver()
        hosts = [f"hangs-{number}.test" for number in range(200)]
        theirs = await _asked_by(ask, "evil", "mallory", *hosts)
        (again,) = await _asked_by(ask, "evil", "mallory", "good.test")
        with pytest.raises(ResolverBusy):
            await again
        assert len(system.asked) == resolver.PER_PRINCIPAL
        for tenant, principal in (("evil", "trent"), ("other", "mallory")):
            (served,) = await _asked_by(ask, tenant, principal, f"{tenant}.test")
            assert await served == FOUND
        system.answers.set()
        ended = await asyncio.gather(*theirs, return_exceptions=True)
        assert sum(isinstance(one, ResolverBusy) for one in ended) == 200 - resolver.PER_PRINCIPAL

    asyncio.run(main())


def test_a_tenant_of_many_principals_leaves_room_for_others(system: Names) -> None:
    async def main() -> None:
        ask = SystemResolver()
        theirs: list[asyncio.Future[object]] = []
        for number in range(50):
            theirs += await _asked_by(ask, "evil", f"p{number}", f"hangs-{number}.test")
        (served,) = await _asked_by(ask, "other", "alice", "good.test")
        assert await served == FOUND
        assert len(system.asked) == resolver.PER_TENANT + 1
        system.answers.set()
        await asyncio.gather(*theirs, return_exceptions=True)

    asyncio.run(main())


def test_who_waits_gets_its_turn_when_a_thread_is_free(
    system: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "TURN_S", 5.0)

    async def main() -> None:
        ask = SystemResolver()
        asking = await _asked_by(ask, "t", "p", *(f"hangs-{number}.test" for number in range(20)))
        left = asking.pop()
        left.cancel()
        system.answers.set()
        assert await asyncio.gather(*asking) == [FOUND] * 19

    asyncio.run(main())


def test_who_gives_up_leaves_its_thread_until_the_system_answers(system: Names) -> None:
    async def main() -> None:
        ask = SystemResolver()
        hosts = [f"hangs-{number}.test" for number in range(resolver.PER_PRINCIPAL)]
        for one in await _asked_by(ask, "t", "p", *hosts):
            one.cancel()
        (again,) = await _asked_by(ask, "t", "p", "good.test")
        with pytest.raises(ResolverBusy):
            await again
        system.answers.set()
        while True:
            try:
                (again,) = await _asked_by(ask, "t", "p", "good.test")
                assert await again == FOUND
                return
            except ResolverBusy:
                continue

    asyncio.run(main())


@pytest.mark.parametrize("full", ["check", "addresses"])
def test_checking_and_dialling_do_not_share(system: Names, full: str) -> None:
    """2.3: urls that are set keep no webhook waiting, nor the other way round."""

    async def main() -> None:
        egress = Egress()
        calls: dict[str, Callable[[str], object]] = {
            "check": lambda host: egress.check(f"http://{host}/"),
            "addresses": lambda host: egress.addresses(host, 80),
        }
        crowd = [asyncio.ensure_future(calls[full](f"hangs-{number}.test")) for number in range(100)]
        await asyncio.sleep(0.01)
        with pytest.raises(Unreachable) as busy:
            await calls[full]("good.test")
        assert busy.value.reason == "busy"
        other = "addresses" if full == "check" else "check"
        await calls[other]("good.test")
        system.answers.set()
        await asyncio.gather(*crowd, return_exceptions=True)

    asyncio.run(main())


def test_the_system_resolver() -> None:
    assert set(asyncio.run(ask_system("localhost", 80))) <= {"127.0.0.1", "::1"}
    assert asyncio.run(ask_system("127.1", 80)) == ["127.0.0.1"]
