"""Configs of tasks: checked, sealed, set by an event, shown without their secrets."""

from __future__ import annotations

import pytest

from tests.run.desk import run
from tests.run.mail import DONE, IDS, KEY, WORKING, Mail, Passes
from trunkline.auth.vault import Vault
from trunkline.errors import InvalidParams, TaskNotFound, Unavailable
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.notifications import PUSH_LIMIT
from trunkline.net.egress import Egress
from trunkline.net.resolver import ResolverBusy
from trunkline.run.push_configs import Proof, PushConfigs, proof_of
from trunkline.run.tasks import Tasks
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import PushConfig

URL = "https://hooks.example/a"
FULL = PushConfig(URL, "c-1", "the-token", "Basic", "the-credentials")


def test_a_config_is_an_event_and_its_secrets_are_sealed_in_it() -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open()
        target = await m.push.target("t", FULL, "0.3")
        shown = await m.push.set(feed, target, "me")
        assert shown == PushConfig(URL, "c-1", scheme="Basic")
        (recorded,) = await m.store.log.read("t", feed.state.task_id, 1)
        assert recorded.event == ev.PushSet(target, "me")
        text = encoding.encode_one(recorded.event)
        assert b"the-token" not in text and b"the-credentials" not in text
        assert proof_of(target, m.vault) == Proof("the-token", "the-credentials")
        assert target.version == "0.3"
        # Two seals of one secret do not look alike.
        assert (await m.push.target("t", FULL, "0.3")).sealed != target.sealed
        await m.store.close()

    run(scene())


def test_without_secrets_there_is_no_seal_and_without_an_id_there_is_one() -> None:
    async def scene() -> None:
        m = Mail()
        first, second = [await m.push.target("t", PushConfig(URL), "1.0") for _ in range(2)]
        assert first.sealed == "" and proof_of(first, m.vault) == Proof()
        assert first.id and second.id and first.id != second.id

    run(scene())


def test_get_list_delete() -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open()
        with pytest.raises(TaskNotFound):
            await m.push.get(feed, "")
        for name in ("a", "b", "c"):
            await m.set(feed, PushConfig(f"{URL}/{name}", name))
        assert [config.id for config in await m.push.list(feed)] == ["a", "b", "c"]
        assert (await m.push.get(feed, "b")).url == f"{URL}/b"
        assert (await m.push.get(feed, "")).id == "a"
        await m.set(feed, PushConfig(f"{URL}/new", "b"))
        assert [config.url for config in await m.push.list(feed)] == [f"{URL}/a", f"{URL}/new", f"{URL}/c"]
        seq = feed.state.seq
        await m.push.delete(feed, "b", "me")
        await m.push.delete(feed, "b", "me")
        assert feed.state.seq == seq + 1
        with pytest.raises(TaskNotFound):
            await m.push.get(feed, "b")
        assert [config.id for config in await m.push.list(feed)] == ["a", "c"]
        await m.store.close()

    run(scene())


def test_who_may_not_be_called_is_refused_by_the_field() -> None:
    async def scene() -> None:
        m = Mail()
        with pytest.raises(InvalidParams, match=r"configuration\.x: bad.example cannot be called") as refused:
            await m.push.target("t", PushConfig("https://bad.example/?secret"), "1.0", "configuration.x")
        assert refused.value.field == "configuration.x"
        assert refused.value.details["reason"] == "PUSH_URL_REFUSED"
        assert "secret" not in str(refused.value)

    run(scene())


def test_a_task_has_sixteen_at_most() -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open(*[f"{URL}/{place}" for place in range(PUSH_LIMIT)])
        with pytest.raises(InvalidParams, match="delete one"):
            await m.set(feed, PushConfig(URL, "one too many"))
        await m.set(feed, PushConfig(URL, f"{URL}/3"))
        await m.push.delete(feed, f"{URL}/5", "me")
        await m.set(feed, PushConfig(URL, "fits"))
        await m.store.close()

    run(scene())


def test_push_secrets_show() -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open()
        open_push = PushConfigs(m.tasks, IDS, lambda _: Passes(), m.vault, show=True)
        assert await open_push.set(feed, await open_push.target("t", FULL, "1.0"), "me") == FULL
        assert await open_push.list(feed) == [FULL]
        assert await m.push.list(feed) == [PushConfig(URL, "c-1", scheme="Basic")]
        await m.store.close()

    run(scene())


def test_what_another_process_did_to_an_ended_task_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteStore, "shared", True)

    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open(*[f"{URL}/{place}" for place in range(PUSH_LIMIT)])
        await m.say(feed, WORKING, DONE)
        elsewhere = PushConfigs(Tasks(m.store), IDS, lambda _: Passes(), m.vault, show=False)
        there = await elsewhere._tasks.find("t", "me", feed.state.task_id, ("",))
        # There is room again, though this process has not heard of it.
        await elsewhere.delete(there, f"{URL}/5", "me")
        await m.set(feed, PushConfig(URL, "fits"))
        await elsewhere.delete(there, "fits", "me")
        await elsewhere.set(there, await elsewhere.target("t", PushConfig(URL, "unheard of"), "1.0"), "me")
        # Without an id all are meant, also those that were set elsewhere.
        await m.push.delete(feed, "", "me")
        assert await elsewhere.list(there) == []
        await m.store.close()

    run(scene())


def test_who_comes_along_with_every_message_is_told_once() -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open()
        for place in range(PUSH_LIMIT + 2):
            target = await m.push.target(
                "t", PushConfig(URL, token=f"token-{place}"), "1.0", known=feed.state.push
            )
            await m.push.set(feed, target, "me")
        (known,) = feed.state.push.values()
        assert proof_of(known, m.vault).token == f"token-{PUSH_LIMIT + 1}"
        other = await m.push.target("t", PushConfig(f"{URL}/other"), "1.0", known=feed.state.push)
        named = await m.push.target("t", PushConfig(URL, "mine"), "1.0", known=feed.state.push)
        assert other.id not in feed.state.push and named.id == "mine"
        await m.store.close()

    run(scene())


def test_a_resolver_that_is_busy_says_nothing_about_the_url() -> None:
    async def busy(host: str, port: int) -> list[str]:
        raise ResolverBusy

    async def scene() -> None:
        push = PushConfigs(Mail().tasks, IDS, lambda _: Egress(resolver=busy), Vault(KEY), show=False)
        with pytest.raises(Unavailable, match="try again"):
            await push.target("t", PushConfig(URL), "1.0")

    run(scene())


def test_an_inner_name_is_refused_like_an_unknown_one(caplog: pytest.LogCaptureFixture) -> None:
    """2.13: whoever may name urls must not learn which names lead into the inner network."""
    known = {"hooks": ["10.0.0.7"], "loop": ["127.0.0.1"], "meta": ["169.254.169.254"]}

    async def resolve(host: str, port: int) -> list[str]:
        if host not in known:
            raise OSError("unknown")
        return known[host]

    async def scene() -> None:
        push = PushConfigs(Mail().tasks, IDS, lambda _: Egress(resolver=resolve), Vault(KEY), show=False)
        told: set[str] = set()
        for host in (*known, "nobody"):
            with pytest.raises(InvalidParams) as refused:
                await push.target("t", PushConfig(f"https://{host}/x"), "1.0")
            told.add(str(refused.value).replace(host, "HOST"))
        assert len(told) == 1

    with caplog.at_level("INFO", "trunkline.net"):
        run(scene())
    assert [record.getMessage().split()[2] for record in caplog.records] == ["reason=refused"] * 3 + [
        "reason=name"
    ]
