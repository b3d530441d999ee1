"""The worker: everything is posted, in order, once if possible and again if not; nothing gets stuck."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.run.desk import run, until
from tests.run.mail import DONE, WORKING, Answer, Calm, Later, Mail, mail
from tests.stepped_clock import DAY_MS
from trunkline.auth.vault import Vault
from trunkline.log.decide import Command
from trunkline.log.events import PushSet
from trunkline.log.notifications import delivery_id, lane
from trunkline.net.breaker import Breaker
from trunkline.run import delivery
from trunkline.run.feed import Feed
from trunkline.store.outbox import Due, choose
from trunkline.store.records import Dedup, DeliveryRecord, host_of
from trunkline.wire.types import PushConfig

A, B, C = "https://a.example/", "https://b.example/", "https://c.example/"
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000


def test_one_post_per_transition_in_order_to_everybody() -> None:
    async def scene() -> None:
        async with mail() as m:
            feed = await m.open(A, B)
            await m.say(feed, WORKING)
            await m.say(feed, DONE)
            rows = await m.settled()
            assert m.out.states(A) == m.out.states(B) == ["working", "completed"]
            assert len(set(m.out.ids(A) + m.out.ids(B))) == 4
            assert [(row.state, row.attempts, row.status) for row in rows] == [("done", 1, 200)] * 4
            assert m.worker.counts.done == 4

    run(scene())


def test_what_is_under_way_keeps_its_moment_and_its_successor_waits() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.gates[A] = asyncio.Event()
            feed = await m.open(A)
            await m.say(feed, WORKING)
            await m.say(feed, DONE)
            await until(lambda: bool(m.out.under_way[A]))
            m.worker._woken.set()
            await asyncio.sleep(0.01)
            assert m.out.states(A) == ["working"]
            m.out.gates[A].set()
            await m.settled()
            assert m.out.states(A) == ["working", "completed"]

    run(scene())


async def _three_days(m: Mail) -> list[int]:
    """The waits between attempts at the first delivery, until it is given up."""
    waits: list[int] = []
    while True:
        row = await m.attempted(len(waits) + 1)
        if row.due is None:
            assert (row.state, row.status) == ("dead", 503)
            return waits
        waits.append(row.due - m.clock.ms)
        # Not a millisecond early.
        m.clock.ms = row.due - 1
        m.worker._woken.set()
        await asyncio.sleep(0.005)
        assert (await m.rows())[0].attempts == len(waits)
        m.clock.ms = row.due
        m.worker._woken.set()


def test_row_63_a_receiver_that_is_down_for_three_days() -> None:
    async def scene() -> None:
        async with mail(long=True) as m:
            m.out.scripts[A] = [503] * 13 + [200]
            feed = await m.open(A)
            await m.say(feed, WORKING)
            await m.say(feed, DONE)
            waits = await _three_days(m)
            assert waits[:3] == [1 * SECOND, 3 * SECOND, 9 * SECOND]
            promised = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]
            assert len(waits) == 3 + len(promised)
            for wait, seconds in zip(waits[3:], promised, strict=True):
                assert 0.8 * seconds * SECOND <= wait <= 1.2 * seconds * SECOND
            # Its successor has waited all the time, and now has its turn.
            first, second = await m.settled()
            assert m.out.states(A) == ["working"] * 13 + ["completed"]
            assert len(set(m.out.ids(A)[:13])) == 1
            assert (first.state, second.state) == ("dead", "done")
            # By hand it can be posted again, under its id.
            assert await m.store.outbox.replay(first.id)
            m.worker._woken.set()
            replayed, _ = await m.settled()
            assert (replayed.state, replayed.attempts) == ("done", 1)
            assert m.out.ids(A)[-1] == m.out.ids(A)[0]
            assert m.worker.counts.dead == 1

    run(scene())


def test_the_quick_schedule_ends_after_three_retries(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = [503]
            feed = await m.open(A)
            await m.say(feed, WORKING)
            assert await _three_days(m) == [1 * SECOND, 3 * SECOND, 9 * SECOND]
            assert len(m.out.posts) == 4

    with caplog.at_level(logging.INFO, "trunkline.webhook"):
        run(scene())
    said = [(one.levelname, one.message.split()[0]) for one in caplog.records]
    assert said == [("WARNING", "delivery.retry")] * 3 + [("ERROR", "delivery.dead")]


def test_a_retry_waits_no_longer_after_the_clock_was_set_back() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = [Answer(429, {"retry-after": "60"}), 200]
            feed = await m.open(A)
            await m.say(feed, WORKING)
            before = await m.attempted(1)
            m.clock.ms -= DAY_MS
            m.worker._woken.set()
            row = (await m.when(lambda rows: rows[0].due != before.due))[0]
            assert row.due is not None and row.due <= m.clock.ms + 60 * SECOND
            m.clock.ms = row.due
            m.worker._woken.set()
            assert [row.state for row in await m.settled()] == ["done"]

    run(scene())


def test_a_target_that_asks_for_patience_gets_it() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = [Answer(429, {"retry-after": "60"}), 200]
            feed = await m.open(A)
            await m.say(feed, WORKING)
            row = await m.attempted(1)
            assert row.due == m.clock.ms + 60 * SECOND
            m.clock.ms = row.due
            m.worker._woken.set()
            assert [row.state for row in await m.settled()] == ["done"]

    run(scene())


def test_410_disables_and_what_was_due_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = [410]
            feed = await m.open(A, B)
            await m.say(feed, WORKING, DONE)
            rows = await m.settled()
            assert m.out.states(A) == ["working"]
            assert m.out.states(B) == ["working", "completed"]
            assert [(row.state, row.note) for row in rows if row.target == A] == [
                ("dropped", "HTTP 410: disabled"),
                ("dropped", "nobody wants it any more"),
            ]
            assert list(feed.state.push) == [B]
            assert m.worker.counts.dropped == 2

    with caplog.at_level(logging.INFO, "trunkline.webhook"):
        run(scene())
    assert "status=410" in caplog.text


def test_410_does_not_disable_whoever_came_in_its_place() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = [410]
            m.out.gates[A] = asyncio.Event()
            feed = await m.open(A)
            await m.say(feed, WORKING)
            await until(lambda: bool(m.out.under_way[A]))
            await m.set(feed, PushConfig(B, A))
            m.out.gates[A].set()
            await m.settled()
            await m.say(feed, DONE)
            await m.settled()
            assert m.out.states(B) == ["completed"]

    run(scene())


def test_410_does_not_disable_whoever_is_just_coming_in_its_place() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = [410]
            feed = await m.open(A)
            other = await m.push.target("t", PushConfig(B, A), "1.0")
            change = m.tasks.change

            async def raced(feed: Feed, command: Command, dedup: Dedup | None = None) -> object:
                # On its way to the store before we are.
                m.tasks.append(feed, (PushSet(other, "me"),))
                return await change(feed, command, dedup)

            m.tasks.change = raced  # type: ignore[method-assign, assignment]
            await m.say(feed, WORKING)
            await m.settled()
            assert feed.state.push == {A: other}

    run(scene())


def test_what_goes_to_a_new_place_says_nothing_of_the_old_one() -> None:
    class Notes(Calm):
        said: ClassVar[list[tuple[str, str]]] = []

        def succeeded(self, target: str) -> None:
            self.said.append(("up", target))

        def failed(self, target: str, now: float) -> bool:
            self.said.append(("down", target))
            return False

    async def scene() -> None:
        async with mail(breaker=Notes()) as m:
            m.out.scripts[A] = ["connect"]
            feed = await m.open(A)
            await m.say(feed, WORKING)
            await m.attempted(1)
            await m.set(feed, PushConfig(B, A))
            m.clock.ms += SECOND
            m.worker._woken.set()
            await m.settled()
            assert Notes.said == [("down", lane(A, "t", "me")), ("up", lane(B, "t", "me"))]

    run(scene())


def test_who_was_deleted_gets_nothing_and_who_was_replaced_gets_it_at_the_new_place() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = ["connect"]
            m.out.scripts[B] = ["connect"]
            feed = await m.open(A, B)
            await m.say(feed, WORKING)
            await m.when(lambda rows: all(row.note == "connect" for row in rows))
            await m.push.delete(feed, A, "me")
            await m.set(feed, PushConfig("https://new.example/", B))
            m.clock.ms += SECOND
            m.worker._woken.set()
            rows = await m.settled()
            assert {row.target: row.state for row in rows} == {A: "dropped", B: "done"}
            assert len(m.out.states(A)) == len(m.out.states(B)) == 1
            assert m.out.states("https://new.example/") == ["working"]

    run(scene())


def test_a_hanging_lane_has_nine_on_their_way_at_most_and_hinders_nobody() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.gates[A] = asyncio.Event()
            feeds = [await m.open(A, B) for _ in range(30)]
            for feed in feeds:
                await m.say(feed, WORKING)
            await until(lambda: len(m.out.states(B)) == 30)
            await asyncio.sleep(0.01)
            assert m.out.most[A] <= 9
            m.out.gates[A].set()
            await m.settled()
            assert len(m.out.states(A)) == 30

    run(scene())


def test_many_hanging_lanes_leave_room_for_others() -> None:
    async def scene() -> None:
        async with mail() as m:
            hanging = [f"https://host-{place}.example/" for place in range(32)]
            gate = asyncio.Event()
            m.out.gates.update(dict.fromkeys(hanging, gate))
            for start in range(0, 32, 16):
                for _ in range(8):
                    await m.say(await m.open(*hanging[start : start + 16]), WORKING)
            await until(lambda: len(m.worker._work) >= delivery.IN_FLIGHT - delivery.SPARE)
            await asyncio.sleep(0.05)
            await m.say(await m.open(A), WORKING)
            try:
                async with asyncio.timeout(60):
                    await until(lambda: m.out.states(A) == ["working"])
            finally:
                gate.set()
            await m.settled()

    run(scene())


def test_400_ports_of_one_host_are_one_host() -> None:
    """2.4: a tarpit with many ports holds the places of one host."""

    async def scene() -> None:
        async with mail() as m:
            gate, urls = asyncio.Event(), [f"https://tarpit.example:{port}/" for port in range(1000, 1400)]
            m.out.gates.update(dict.fromkeys(urls, gate))
            for start in range(0, 400, 16):
                await m.say(await m.open(*urls[start : start + 16]), WORKING)
            await until(lambda: len(m.out.posts) >= delivery.PER_LANE)
            await asyncio.sleep(0.02)
            assert len(m.worker._work) == delivery.PER_LANE
            await m.say(await m.open(A), WORKING)
            async with asyncio.timeout(60):
                await until(lambda: m.out.states(A) == ["working"])
            gate.set()
            await m.settled()

    run(scene())


def test_a_principal_of_many_hanging_hosts_keeps_only_itself_waiting() -> None:
    """2.4: the last places are for those who have little on its way."""

    async def scene() -> None:
        async with mail() as m:
            gate, urls = asyncio.Event(), [f"https://tarpit-{n}.example/" for n in range(400)]
            m.out.gates.update(dict.fromkeys(urls, gate))
            for start in range(0, 400, 16):
                await m.say(await m.open(*urls[start : start + 16]), WORKING)
            await until(lambda: len(m.worker._work) >= delivery.IN_FLIGHT - delivery.LAST)
            await asyncio.sleep(0.02)
            assert len(m.worker._work) == delivery.IN_FLIGHT - delivery.LAST
            for tenant, principal in (("t", "other"), ("u", "me")):
                urls = [f"https://{principal}-{tenant}-{n}.example/" for n in range(8)]
                await m.say(await m.open(*urls, tenant=tenant, principal=principal), WORKING)
                async with asyncio.timeout(60):
                    await until(lambda: all(m.out.states(url) == ["working"] for url in urls))  # noqa: B023
            gate.set()
            await m.settled()

    run(scene())


def _filled(due: list[Due], by_lane: Counter[str]) -> list[str]:
    """Take what is due until no share has anything left; whatever was taken hangs."""
    lanes, taken = {name: lane for _, lane, name in due}, list[str]()
    while (room := delivery.IN_FLIGHT - by_lane.total()) > 0:
        left = [one for one in due if one[2] not in taken]
        for places, shares in delivery.shares_of(room, dict(by_lane)):
            if chosen := choose(left, delivery.PER_LANE, shares)[:places]:
                break
        else:
            break
        taken += chosen
        by_lane.update(lanes[name] for name in chosen)
    return taken


@given(st.integers(0, 240), st.integers(1, 9), st.integers(1, 9))
@example(22, 1, 9)
def test_whoever_has_little_on_its_way_finds_a_place_beside_any_tenant(
    hosts: int, principals: int, each: int
) -> None:
    """2.4: as a pure function of what is on its way, however many hosts and principals another tenant has."""
    greedy: list[Due] = [
        (0, f"h{host} greedy p{host % principals}", f"{host}-{n}")
        for host in range(hosts)
        for n in range(each)
    ]
    by_lane: Counter[str] = Counter()
    _filled(greedy, by_lane)
    assert by_lane.total() <= delivery.IN_FLIGHT - delivery.LAST_OF_TENANTS
    assert max(Counter(host_of(lane) for lane in by_lane.elements()).values(), default=0) <= delivery.PER_HOST
    # The place that it is told of may be one where something hangs already, its own too.
    little: list[Due] = [(9, "h-own modest one", f"m{n}") for n in range(delivery.LAST_PER_PRINCIPAL)]
    assert len(_filled(little, by_lane)) == delivery.LAST_PER_PRINCIPAL
    another: list[Due] = [(9, "h-own modest two", "m")]
    assert _filled(another, by_lane) == ["m"]


def test_whoever_has_little_on_its_way_waits_for_no_idle_host() -> None:
    """2.4: one whose host has something on its way already, while others hold all that is for anybody."""

    async def scene() -> None:
        async with mail() as m:
            gate, urls = asyncio.Event(), [f"https://tarpit-{n}.example/" for n in range(32)]
            m.out.gates.update(dict.fromkeys([A, *urls], gate))
            for start in range(0, 32, 16):
                for _ in range(delivery.PER_LANE):
                    await m.say(await m.open(*urls[start : start + 16]), WORKING)
            await until(lambda: len(m.worker._work) == delivery.IN_FLIGHT - delivery.SPARE)
            for _ in range(delivery.LAST_PER_PRINCIPAL):
                await m.say(await m.open(A, tenant="u"), WORKING)
            await until(lambda: m.out.under_way[A] == delivery.LAST_PER_PRINCIPAL)
            gate.set()
            await m.settled()

    run(scene())


def test_memory_is_bounded_by_what_is_under_way() -> None:
    async def scene() -> None:
        async with mail() as m:
            urls = [f"https://host-{place}.example/" for place in range(40)]
            for url in urls:
                m.out.gates[url] = asyncio.Event()
            for _ in range(4):
                for start in range(0, 40, 10):
                    feed = await m.open(*urls[start : start + 10])
                    await m.say(feed, WORKING)
            await asyncio.sleep(0.05)
            assert delivery.IN_FLIGHT - delivery.SPARE <= len(m.worker._work) <= delivery.IN_FLIGHT
            for gate in m.out.gates.values():
                gate.set()
            await m.settled()
            assert len(m.out.posts) == 160

    run(scene())


def test_large_notifications_wait_for_each_other_and_small_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "BYTES", 1)

    async def scene() -> None:
        async with mail() as m:
            m.out.gates[A] = m.out.gates[B] = asyncio.Event()
            large = await m.open(A, B)
            large.state.size = delivery.HELD_BYTES + 1
            await m.say(large, WORKING)
            rows = await m.when(lambda rows: "too much" in "".join(row.note for row in rows))
            # Whichever came first is on its way; the other one goes when that has arrived.
            (first,) = m.out.posts
            (waits,) = [row for row in rows if row.target != first.url]
            assert (waits.due, waits.attempts) == (m.clock.ms + SECOND, 0)
            small = await m.open(C)
            await m.say(small, WORKING)
            await until(lambda: m.out.states(C) == ["working"])
            m.out.gates[A].set()
            await m.when(lambda rows: [row.state for row in rows].count("pending") == 1)
            m.clock.ms += SECOND
            m.worker._woken.set()
            assert {row.attempts for row in await m.settled()} == {1}
            assert m.worker.counts.retried == 0

    run(scene())


def test_the_breaker_leaves_a_dead_lane_alone_and_tries_it_now_and_then() -> None:
    breaker = Later()

    async def scene() -> None:
        async with mail(breaker=breaker) as m:
            m.out.scripts[A] = [500]
            feeds = [await m.open(A) for _ in range(30)]
            for feed in feeds:
                await m.say(feed, WORKING)
            # Each is tried once at most; then the lane is left alone, though most are still due.
            await until(lambda: bool(breaker.busy(asyncio.get_running_loop().time())))
            await until(lambda: not len(m.worker._work))
            opened = len(m.out.posts)
            assert 10 <= opened <= 18
            m.clock.ms += 9 * SECOND
            m.worker._woken.set()
            await asyncio.sleep(0.02)
            assert len(m.out.posts) == opened
            # After its pause a few find out for all, and the next pause is longer.
            breaker.ahead += 10.1
            m.worker._woken.set()
            await until(lambda: len(m.out.posts) > opened and not len(m.worker._work))
            tried = len(m.out.posts) - opened
            assert tried <= delivery.PER_HOST
            breaker.ahead += 10.1
            m.worker._woken.set()
            await asyncio.sleep(0.02)
            assert len(m.out.posts) == opened + tried
            # When it is back, all of it arrives.
            m.out.scripts[A] = [200]
            breaker.ahead += 10.0
            m.clock.ms += 9 * SECOND
            m.worker._woken.set()
            assert {row.state for row in await m.settled()} == {"done"}

    run(scene())


def test_what_waited_too_long_for_a_dead_lane_is_given_up_at_every_opening(
    caplog: pytest.LogCaptureFixture,
) -> None:
    breaker = Later()

    async def scene() -> None:
        async with mail(breaker=breaker) as m:
            m.out.scripts[A] = [500]
            m.store.bad["expire"] = 1
            for _ in range(40):
                await m.say(await m.open(A), WORKING)
            # They have waited for an hour when the first of them is posted, as after a restart.
            m.clock.ms += HOUR
            await until(lambda: "target.down" in caplog.text and not len(m.worker._work))
            for said in ("delivery.unexpired", "delivery.expired"):
                assert not [row for row in await m.rows(state="dead") if "too long" in row.note]
                assert said not in caplog.text
                breaker.ahead += 15 * MINUTE / SECOND
                m.worker._woken.set()
                await until(lambda said=said: said in caplog.text)
            assert m.worker.counts.dead >= 20
            given_up = [row for row in await m.rows(state="dead") if "down for too long" in row.note]
            assert len(given_up) >= 20

    with caplog.at_level(logging.INFO, "trunkline.webhook"):
        run(scene())


@pytest.mark.parametrize("what", ["take", "odd", "settle", "read"])
def test_a_store_that_fails_for_a_while_only_delays(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "PAUSE_S", 0.01)

    async def scene() -> None:
        async with mail() as m:
            feed = await m.open(A)
            m.store.bad[what] = 3
            if what == "read":
                # Too large to be held, so that it has to be read.
                feed.state.size = delivery.HELD_BYTES + 1
                m.tasks._feeds.clear()
            await m.say(feed, WORKING)
            await m.say(feed, DONE)
            for _ in range(4):
                await asyncio.sleep(0.02)
                # Beyond its lease a delivery is posted again; only what waits to be read needs the time.
                m.clock.ms += MINUTE if what == "read" else 0
                m.worker._woken.set()
            await m.settled()
            assert m.out.states(A) == ["working", "completed"]
            assert not m.store.bad[what]

    run(scene())
    assert "delivery.un" in caplog.text
    assert ("ZeroDivisionError" in caplog.text) is (what == "odd")


def test_secrets_of_another_key_are_given_up_at_once_and_say_what_they_need(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with mail() as m:
            feed = await m.open(B)
            await m.set(feed, PushConfig(A, A, token="secret"))
            m.composer._vault = Vault(bytes(32))
            await m.say(feed, WORKING)
            rows = {row.target: row for row in await m.settled()}
            assert (rows[B].state, rows[B].note) == ("done", "HTTP 200")
            assert (rows[A].state, rows[A].attempts) == ("dead", 1)
            assert "secret_key" in rows[A].note
            # With the right key again it can be sent.
            m.composer._vault = m.vault
            assert await m.store.outbox.replay(rows[A].id)
            m.worker._woken.set()
            await m.settled()
            assert m.out.states(A) == ["working"]

    run(scene())
    assert "secret_key" in caplog.text and "Traceback" not in caplog.text


def test_a_letter_that_cannot_be_written_is_given_up_and_hinders_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def sign(webhook_id: str, moment: int, body: bytes) -> str:
        if webhook_id.endswith(digest):
            raise ZeroDivisionError("odd")
        return "v1a,sig"

    digest = delivery_id("", 0, A).rpartition("_")[2]

    async def scene() -> None:
        async with mail() as m:
            m.composer._sign = sign
            feed = await m.open(A, B)
            await m.say(feed, WORKING)
            rows: list[DeliveryRecord] = []
            while not rows or any(row.state == "pending" for row in rows):
                m.clock.ms += 9 * SECOND
                m.worker._woken.set()
                await asyncio.sleep(0.005)
                rows = await m.rows()
            assert {row.target: (row.state, row.note) for row in rows} == {
                A: ("dead", "broke"),
                B: ("done", "HTTP 200"),
            }
            assert m.out.states(A) == []

    run(scene())
    assert "ZeroDivisionError" in caplog.text


def test_a_way_out_that_never_answers_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SLACK_S", -4.99)

    async def scene() -> None:
        async with mail() as m:
            m.out.gates[A] = asyncio.Event()
            await m.say(await m.open(A), WORKING)
            row = await m.attempted(1)
            assert (row.state, row.note) == ("pending", "timeout")

    run(scene())


def test_saturation_of_ours_is_no_attempt_of_theirs() -> None:
    """2.3: while names cannot be looked up a delivery stays due; it is not counted and never given up."""

    async def scene() -> None:
        breaker = Breaker()
        async with mail(breaker=breaker) as m:
            m.out.scripts[A] = ["busy"] * 30 + [200]
            feed = await m.open(A)
            await m.say(feed, WORKING)
            for tried in range(1, 31):
                await until(lambda: len(m.out.posts) >= tried)  # noqa: B023 - awaited at once
                (row,) = await m.when(lambda rows: rows[0].note != "" and rows[0].at >= m.clock.ms)
                assert (row.state, row.attempts) == ("pending", 0)
                m.clock.ms = row.due or 0
                m.worker._woken.set()
            (row,) = await m.settled()
            assert (row.state, row.attempts) == ("done", 1)
            assert len(breaker) == 0 and m.worker.counts.retried == 0

    run(scene())


@pytest.mark.parametrize("slack_ms", [-5_100, -4_000])
def test_nothing_is_posted_under_a_lease_that_may_be_over(
    monkeypatch: pytest.MonkeyPatch, slack_ms: int
) -> None:
    """1.19: what took too long to be written is left to whoever has it by now, or given back untried."""
    monkeypatch.setattr(delivery, "SLACK_MS", slack_ms)

    async def scene() -> None:
        async with mail() as m:
            feed = await m.open(A)
            await m.say(feed, WORKING)
            if slack_ms == -5_100:
                # Over: the row is not touched, it is taken again by itself.
                row = (await m.when(lambda rows: rows[0].attempts > 0))[0]
                await asyncio.sleep(0.01)
                assert (row.state, row.note) == ("pending", "")
            else:
                row = (await m.when(lambda rows: rows[0].note != ""))[0]
                assert (row.state, row.attempts, row.note) == ("pending", 0, "the lease was nearly over")
            assert m.out.posts == []

    run(scene())


def test_stopping_is_quick_and_gives_back_what_did_not_arrive() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.gates[A] = asyncio.Event()
            feed = await m.open(A, B)
            await m.say(feed, WORKING)
            await m.say(feed, DONE)
            await until(lambda: bool(m.out.under_way[A]) and len(m.out.states(B)) == 2)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await m.worker.stop(0.05)
            assert loop.time() - began < 30
            rows = await m.when(lambda rows: "the server stopped" in [row.note for row in rows])
            (row,) = [row for row in rows if row.note == "the server stopped"]
            assert (row.state, row.due, row.attempts) == ("pending", m.clock.ms, 0)
            # Whoever comes next need not wait for a lease, and posts under the same ids.
            m.out.gates[A].set()
            after = m.another()
            running = loop.create_task(after.run())
            after._woken.set()
            rows = await m.settled()
            assert {row.state for row in rows} == {"done"}
            assert m.out.states(A) == ["working", "working", "completed"]
            assert m.out.ids(A)[0] == m.out.ids(A)[1]
            await after.stop(1)
            await running

    run(scene())


def test_what_is_taken_while_stopping_is_given_back() -> None:
    async def scene() -> None:
        async with mail() as m:
            feed = await m.open(A)
            taking, go = asyncio.Event(), asyncio.Event()
            take = m.store.outbox.take

            async def slow(*args: object, **kwargs: object) -> object:
                taking.set()
                await go.wait()
                return await take(*args, **kwargs)

            m.store.outbox.take = slow  # type: ignore[method-assign]
            await m.say(feed, WORKING)
            await taking.wait()
            await m.worker.stop(0)
            go.set()
            row, *_ = await m.when(lambda rows: rows[0].note == "the server stopped")
            assert (row.state, row.due, m.out.posts) == ("pending", m.clock.ms, [])
            # However often servers stop, it has all its retries.
            assert row.attempts == 0

    run(scene())


def test_only_what_is_small_is_held_and_not_beyond_its_end() -> None:
    async def scene() -> None:
        async with mail() as m:
            small, large = await m.open(A), await m.open(A)
            large.state.size = delivery.HELD_BYTES + 1
            await m.say(small, WORKING)
            await m.say(large, WORKING)
            assert list(m.worker._held) == [small.state.task_id]
            await m.say(small, DONE)
            await m.settled()
            assert not m.worker._held

    run(scene())


def test_what_grows_or_is_wanted_no_more_is_no_longer_held() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = ["connect"]
            grown, dropped = await m.open(A), await m.open(A)
            await m.say(grown, WORKING)
            await m.say(dropped, WORKING)
            await m.when(lambda rows: all(row.note == "connect" for row in rows))
            assert len(m.worker._held) == 2
            grown.state.size = delivery.HELD_BYTES + 1
            await m.say(grown, DONE)
            await m.push.delete(dropped, A, "me")
            m.clock.ms += SECOND
            m.worker._woken.set()
            await m.when(lambda rows: "dropped" in [row.state for row in rows])
            assert not m.worker._held

    run(scene())


def test_a_task_that_was_let_go_meanwhile_is_told_as_it_stands_now() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = ["connect"]
            feed = await m.open(A)
            await m.say(feed, WORKING)
            await m.say(feed, DONE)
            await m.attempted(1)
            # It is past its time, but still to be told of: whoever asks gets it from the store.
            m.tasks.forget(m.clock.ms)
            again = await m.tasks.find("t", "me", feed.state.task_id, ("",))
            await m.push.delete(again, A, "me")
            m.clock.ms += SECOND
            m.worker._woken.set()
            assert [row.state for row in await m.settled()] == ["dropped", "dropped"]
            assert m.out.states(A) == ["working"]

    run(scene())


def test_the_lag_is_that_of_the_oldest_that_was_taken_last() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = ["connect", 200]
            await m.say(await m.open(A), WORKING)
            await m.attempted(1)
            m.clock.ms += MINUTE
            m.worker._woken.set()
            await until(lambda: len(m.out.posts) == 2)
            assert m.worker.counts.lag_ms == 59 * SECOND

    run(scene())


def test_AG_28_what_is_under_way_survives_the_garbage_collector() -> None:
    async def scene() -> None:
        async with mail() as m:
            m.out.scripts[A] = [500, 500, 200]
            await m.say(await m.open(A), WORKING)
            for attempt in (1, 2):
                row = await m.attempted(attempt)
                assert row.due is not None
                gc.collect()
                m.clock.ms = row.due
                m.worker._woken.set()
            assert [(row.state, row.attempts) for row in await m.settled()] == [("done", 3)]
            assert len(set(m.out.ids(A))) == 1

    run(scene())


def test_what_another_process_announced_is_found_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LOOK_S", 0.01)

    async def scene() -> None:
        async with mail() as m:
            m.tasks.announced = None
            for _ in range(3):
                await asyncio.sleep(0.03)
                await m.say(await m.open(A), WORKING)
                assert {row.state for row in await m.settled()} == {"done"}

    run(scene())


def test_a_worker_that_is_cancelled_from_within_says_so() -> None:
    async def scene() -> None:
        made = Mail()
        await made.store.open()

        async def cancelled() -> bool:
            raise asyncio.CancelledError

        made.worker._take = cancelled  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="ended by itself"):
            await made.worker.run()
        await made.store.close()

    run(scene())
