"""What a remote agent is told: the skill, the correlation id, our task's id, and nothing else of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.agents import COMPLETED, HOME, Stand, card, task
from tests.peer.rig import CALLER, calling, served
from tests.run.desk import run
from trunkline import Agent, Turn
from trunkline.errors import Misuse
from trunkline.log.events import DISPATCH_KEY
from trunkline.peer.executor import remote_id
from trunkline.peer.remote import CALL_KEY, Reachable
from trunkline.run import hops
from trunkline.wire.types import Correlation, Message, Part, Role, SendRequest, TaskState


def quiet() -> Agent:
    agent = Agent("quiet")

    @agent.skill
    async def echo(turn: Turn) -> str:
        """Say it again."""
        return turn.text

    return agent


async def nothing(turn: Turn) -> None:
    raise AssertionError


def test_hb06_a_peer_is_told_what_the_list_allows() -> None:
    sent: list[tuple[dict[bytes, bytes], bytes]] = []

    async def main() -> None:
        async with served(quiet()) as app:

            async def spy(scope: Any, receive: Any, send: Any) -> None:
                async def read() -> Any:
                    event = await receive()
                    sent.append((dict(scope["headers"]), event.get("body", b"")))
                    return event

                await app(scope, read, send)

            async with calling(nothing, spy) as runner:
                metadata = {
                    CALL_KEY: {"target": "peer", "skill": "echo", "context": "ours"},
                    hops.KEY: {"hops": 1},
                    "payload": "canary-message",
                    "trunkline.done": True,
                }
                message = Message("m", "ours", "", Role.USER, (Part(text="hi"),), metadata)
                of_request = {DISPATCH_KEY: {"correlationId": "c-1", "trigger": "api"}, "x": "canary-request"}
                request = SendRequest(message, metadata=of_request)
                feed, opened = runner.submit("t", "me", request, agent=remote_id(CALLER))
                await opened
                assert await runner.ended(feed) is TaskState.COMPLETED
                headers, body = next(one for one in sent if b'"hi"' in one[1])
                assert headers[b"x-correlation-id"] == b"c-1"
                assert headers[b"x-parent-id"] == feed.state.task_id.encode()
                params = json.loads(body)["params"]
                assert params["message"]["contextId"] == "ours"
                told = {**params.get("metadata", {}), **params["message"]["metadata"]}
                assert told.keys() == {"skillHint", "skillId", hops.KEY}
                assert told["skillHint"] == "echo"
                assert not any(b"canary" in body for _, body in sent)

    run(main())


def test_a_0_3_peer_reads_the_work_in_both_metadata() -> None:
    stand = Stand(lambda _: task(COMPLETED)["task"], card(protocolVersion="0.3.0", url=f"{HOME}/a2a"))
    del stand.card["supportedInterfaces"]

    async def main() -> None:
        async with calling(nothing, stand) as runner:
            metadata = {CALL_KEY: {"target": "peer", "skill": "echo"}}
            message = Message("m", "", "", Role.USER, (Part(text="hi"),), metadata)
            request = SendRequest(message, correlation=Correlation("co", "theirs"))
            feed, opened = runner.submit("t", "me", request, agent=remote_id(CALLER))
            await opened
            await runner.ended(feed)
            sent = [one for one in stand.asked if one.method.startswith("message/")]
            named = {"skillHint": "echo", "correlationId": "co", "parentId": feed.state.task_id}
            assert sent[0].params["metadata"] == named
            assert named.items() <= sent[0].params["message"]["metadata"].items()
            assert sent[0].headers["x-correlation-id"] == "co"

    run(main())


def test_who_calls_nobody_is_told_of_its_own_agents_and_not_of_all_that_are_carried() -> None:
    reachable = Reachable("caller:calls", ["own"], ["of-another-tenant"])
    assert reachable.agent("of-another-tenant") == "of-another-tenant"
    with pytest.raises(Misuse, match="there is no agent 'nobody' to call") as refused:
        reachable.agent("nobody")
    assert "own" in str(refused.value) and "of-another-tenant" not in str(refused.value)
