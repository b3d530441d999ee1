"""Announces, takes and settles without end and says what was acknowledged; killed by its test. Argument: URL."""

from __future__ import annotations

import asyncio
import os
import sys

from trunkline.log.events import Delta
from trunkline.store.records import DeliveryOutcome, DeliveryResult, OutboxEntry
from trunkline.store.url import store_from_url

AT = 1_800_000_000_000
LEASE = 30_000


async def announce(store) -> None:
    number = 0
    while True:
        number += 1
        deliveries = [
            OutboxEntry(f"d{number}-{seq}", seq, "hook", f"lane-{number % 5}", AT) for seq in (1, 2)
        ]
        await store.log.append(
            "default", f"t{number}", 0, [Delta("a", "x")] * 2, at=AT, deliveries=deliveries
        )
        # One write of a short line to a pipe is whole or not at all.
        os.write(1, f"announced d{number}-1\nannounced d{number}-2\n".encode())


async def deliver(store) -> None:
    while True:
        taken = await store.outbox.take(4, LEASE, per_lane=2)
        await store.outbox.settle(
            [DeliveryResult(delivery.id, DeliveryOutcome.DONE, status=200) for delivery in taken]
        )
        for delivery in taken:
            os.write(1, f"settled {delivery.id}\n".encode())


async def main(url: str) -> None:
    store = store_from_url(url, now_ms=lambda: AT)
    await store.open()
    await asyncio.gather(announce(store), deliver(store))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
