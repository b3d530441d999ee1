"""What a log says of a remote agent is enough to follow its task, and holds no secret."""

from __future__ import annotations

import msgspec
import pytest

from tests.run.desk import desk, run
from trunkline.errors import InvalidParams
from trunkline.peer.clients import PeerClients
from trunkline.peer.entry_executor import EntryExecutor, _chosen, _recorded
from trunkline.peer.remote import Peer
from trunkline.wire.types import Message, Metadata, Part, Role, SendRequest, TaskState

PEER = Peer(
    url="http://agent.example/a2a?key=canary",
    api_key_env="AGENT_KEY",
    headers={"X-Secret": "canary"},
    card_url="http://agent.example/card?key=canary",
    verify_tls=False,
    foreign=True,
    external=True,
    uncertain="ask",
)


def asked(**metadata: object) -> SendRequest:
    known: Metadata = dict(metadata)
    return SendRequest(Message("m", role=Role.USER, parts=(Part(text="x"),), metadata=known or None))


def test_what_is_recorded_has_no_secret_and_keeps_every_bound() -> None:
    recorded = _recorded(PEER)
    assert b"canary" not in msgspec.json.encode(recorded)
    followed = _chosen(recorded, None)
    assert followed is not None
    assert followed.url == "http://agent.example/a2a"
    assert (followed.api_key_env, followed.uncertain) == ("AGENT_KEY", "ask")
    # One that came by the API may not be dialled where its own entry could not.
    assert (followed.foreign, followed.external, followed.verify_tls) == (True, True, False)


def test_the_agent_that_has_a_task_keeps_it() -> None:
    recorded = _recorded(PEER)
    assert _chosen(recorded, PEER) is PEER
    moved = _chosen(recorded, Peer(url="http://elsewhere.example"))
    assert moved is not None and moved.url == "http://agent.example/a2a"
    assert _chosen(None, PEER) is PEER
    assert _chosen(None, None) is None


def test_a_skill_is_named_by_a_short_text() -> None:
    executor = EntryExecutor("one", lambda _: PEER, PeerClients())
    assert executor.admit(asked()) == ""
    assert executor.admit(asked(skillHint="draft")) == "draft"
    with pytest.raises(InvalidParams):
        executor.admit(asked(skill=7))


def test_nothing_is_sent_to_an_agent_that_the_tenant_of_the_task_does_not_have() -> None:
    asked_for: list[str] = []

    def listed(tenant: str) -> Peer | None:
        asked_for.append(tenant)
        return None if tenant == "south" else PEER

    async def case() -> None:
        executor = EntryExecutor("one", listed, PeerClients())
        async with desk(executor.run) as runner:
            feed, _ = runner.submit("south", "me", asked(), agent=runner.origin)
            await runner.tasks.rest(feed, 30.0)
            assert feed.state.task().status.state is TaskState.FAILED
            assert asked_for == ["south"]

    run(case())
