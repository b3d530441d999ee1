"""Row 47: names that lead somewhere else the second time, or to two places at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.net.targets import Wire
from trunkline.errors import Unreachable
from trunkline.net.connection import ClientConnection
from trunkline.net.egress import Egress, judge
from trunkline.net.fetch import Fetcher
from trunkline.net.http_client import MakeConnection

GOOD = ["93.184.215.14", "8.8.8.8", "2606:4700:4700::1111"]
BAD = [
    "127.0.0.1",
    "10.0.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "::1",
    "fd00::1",
    "::ffff:10.0.0.1",
    "0.0.0.0",
]
ROUNDS = 1000
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n%s\r\nok"


class Turncoat:
    """A resolver whose answer is another each time, and a network that notes what was dialled."""

    def __init__(self, answers: Sequence[Sequence[str]]) -> None:
        self._answers = iter(answers)
        self.last: Sequence[str] = []
        self.dialled: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.last = next(self._answers, self.last)
        return self.last

    async def dial(
        self, make: MakeConnection, address: str, port: int, tls: Any, name: Any
    ) -> ClientConnection:
        assert address in self.last, "what is dialled is what was judged"
        self.dialled.append(address)
        return connected(make, [ANSWER % b"connection: close\r\n"])


def connected(make: MakeConnection, answers: list[bytes]) -> ClientConnection:
    connection = make()
    connection.connection_made(Wire(connection, answers))
    return connection


def rounds(seed: int) -> list[list[list[str]]]:
    """For each round what the name leads to when it is saved, called, and called again."""
    chance = random.Random(seed)
    made: list[list[list[str]]] = []
    for number in range(ROUNDS):
        good, bad = chance.sample(GOOD, 2), chance.sample(BAD, 2)
        mixed = chance.sample([*good, *bad], 4)
        made.append(
            [
                [good, bad, good],
                [good, mixed, bad],
                [good, [good[0], bad[0]], [bad[0], good[0]]],
                [good, good, bad],
            ][number % 4]
        )
    return made


async def attempt(client: Fetcher) -> str:
    try:
        return str((await client.post("http://rebind.example/", b"x", [])).status)
    except Unreachable as error:
        return error.reason


def test_a_thousand_rounds() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dialled: list[str] = []

    async def main() -> None:
        for answers in rounds(seed):
            name = Turncoat(answers)
            egress = Egress(resolver=name.resolve)
            client = Fetcher(egress, dial=name.dial)
            await egress.check("http://rebind.example/")
            expected = ["refused" if any(map(judge, answer)) else "200" for answer in answers[1:]]
            assert [await attempt(client), await attempt(client)] == expected
            dialled.extend(name.dialled)
            await client.close()

    asyncio.run(main())
    assert [address for address in dialled if judge(address)] == []
    assert len(dialled) == ROUNDS / 2


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_address_spoils_the_answer(bad: str, place: int) -> None:
    addresses = GOOD[:place] + [bad] + GOOD[place:]
    name = Turncoat([addresses])
    egress = Egress(resolver=name.resolve)

    async def main() -> None:
        with pytest.raises(Unreachable) as error:
            await egress.check("http://rebind.example/")
        assert error.value.reason == "refused"
        assert await attempt(Fetcher(egress, dial=name.dial)) == "refused"

    asyncio.run(main())
    assert name.dialled == []


def test_an_open_connection_stays_where_it_was_judged() -> None:
    name = Turncoat([[GOOD[0]], [BAD[0]]])

    async def dial(
        make: MakeConnection, address: str, port: int, tls: Any, server_name: Any
    ) -> ClientConnection:
        name.dialled.append(address)
        return connected(make, [ANSWER % b"", ANSWER % b""])

    async def main() -> None:
        egress = Egress(resolver=name.resolve)
        client = Fetcher(egress, dial=dial)
        assert [await attempt(client), await attempt(client)] == ["200", "200"]
        await client.close()
        assert await attempt(Fetcher(egress, dial=dial)) == "refused"

    asyncio.run(main())
    assert name.dialled == [GOOD[0]]


def test_an_allowed_host_is_dialled_where_it_was_found() -> None:
    name = Turncoat([["10.0.0.1"], ["10.0.0.2"]])
    egress = Egress(hosts=["rebind.example"], resolver=name.resolve)

    async def main() -> None:
        client = Fetcher(egress, dial=name.dial)
        assert [await attempt(client), await attempt(client)] == ["200", "200"]
        await client.close()

    asyncio.run(main())
    assert name.dialled == ["10.0.0.1", "10.0.0.2"]
