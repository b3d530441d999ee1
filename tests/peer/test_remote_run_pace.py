"""A remote agent that streams many lines is paced, whatever the lines hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.agents import WORKING, Frames, Stand, task
from tests.peer.rig import calling
from tests.run.desk import run, until
from trunkline import Turn
from trunkline.net.places import TenantPlaces
from trunkline.peer.callbacks import Following
from trunkline.peer.relay import PACED_LINES

HALF = PACED_LINES // 2


def piece(place: int, *, append: bool = True) -> tuple[int, Any]:
    artifact = {"artifactId": "a", "parts": [{"text": "x"}]}
    update = {"taskId": "t1", "contextId": "c1", "artifact": artifact, "append": append}
    return place, {"artifactUpdate": update}


LINES = {
    "comments": [b":\n" * PACED_LINES],
    "carriage returns": [b":\r" * PACED_LINES],
    "unknown events": [b"event: ping\ndata: {}\n\n" * HALF],
    "pieces of text": [piece(2, append=False), *[piece(place) for place in range(3, HALF)]],
    "repeated events": [piece(2, append=False)] * HALF,
}


async def forward(turn: Turn) -> str:
    return (await turn.call("peer", "hello")).text


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES.keys())
def test_a_stream_of_many_lines_pauses_in_the_turn_of_its_tenant(lines: list[Any]) -> None:
    places = TenantPlaces(2, 1)
    stand = Stand([Frames([(1, task(WORKING)), *lines], stall=True)])

    async def main() -> None:
        async with (
            calling(forward, stand, following=Following(pauses=places)) as runner,
            places.held("t"),
        ):
            await runner.open("hello")
            await until(lambda: places.waiting("t") > 0)

    run(main())
