"""Reports of runs: where they go, and what they say."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from tests.fleet.ceremonies.stage import ceremony, filed
from trunkline.errors import Unreachable
from trunkline.fleet.ceremonies.ceremony import Ceremony
from trunkline.fleet.ceremonies.reports import RunReports
from trunkline.fleet.ceremonies.runs import CeremonyReport
from trunkline.fleet.notify import ChannelMessage
from trunkline.net.fetch import Fetcher, FullResponse

ABOUT = {"runId": "r1", "taskId": "t1", "status": "failure", "error": "it broke"}
HOOK = "https://hooks.example.com/secret"


class Posts:
    """What was posted, in the place of a network."""

    def __init__(self, status: int = 204) -> None:
        self.status = status
        self.sent: list[tuple[str, Any, dict[str, str]]] = []

    async def post(self, url: str, body: bytes, headers: list[tuple[str, str]]) -> FullResponse:
        self.sent.append((url, json.loads(body), dict(headers)))
        if not self.status:
            raise Unreachable("nobody there", reason="connect")
        return FullResponse(self.status, {}, b"")


def tell(one: Ceremony, guarded: Posts, own: Posts, **variables: str) -> bool:
    reports = RunReports(lambda _: cast("Fetcher", guarded), cast("Fetcher", own), variables.get)
    return asyncio.run(reports.tell(one, CeremonyReport(about=ABOUT, due=0)))


def test_what_came_by_the_api_goes_by_the_egress_rule() -> None:
    guarded, own = Posts(), Posts()
    assert tell(ceremony(notifyWebhook=HOOK), guarded, own)
    ((url, body, headers),) = guarded.sent
    assert (url, headers["Idempotency-Key"], own.sent) == (HOOK, "r1", [])
    assert body == {
        "content": "Stand-up: failure (task t1)\nit broke",
        "ceremonyId": "standup",
        "ceremonyName": "Stand-up",
        **ABOUT,
    }


@pytest.mark.parametrize(
    ("one", "variables"),
    [
        (filed(notifyWebhook=HOOK), {}),
        (filed(notifyWebhookEnv="HOOK", notifyWebhook="https://other.example.com"), {"HOOK": HOOK}),
        (ceremony(notifyChannel="ops-team"), {"DISCORD_WEBHOOK_OPS_TEAM": HOOK}),
    ],
)
def test_what_the_operator_says_goes_where_the_operator_wants(
    one: Ceremony, variables: dict[str, str]
) -> None:
    guarded, own = Posts(), Posts()
    assert tell(one, guarded, own, **variables)
    assert ([sent[0] for sent in own.sent], guarded.sent) == ([HOOK], [])


@pytest.mark.parametrize("channel", ["1469080556720623699", "office"])
def test_a_channel_by_its_id_or_the_name_of_a_receiver_is_sent_a_message(channel: str) -> None:
    posted: list[tuple[str, ChannelMessage]] = []
    answers = iter(["", "status 403", None])

    async def post(place: str, message: ChannelMessage) -> str | None:
        posted.append((place, message))
        return next(answers)

    one, report = ceremony(notifyChannel=channel), CeremonyReport(about=ABOUT, due=0)
    posts = cast("Fetcher", Posts())
    reports = RunReports(lambda _: posts, posts, dict[str, str]().get, post)
    # What is refused is sent again, and what nobody knows is not.
    assert [asyncio.run(reports.tell(one, report)) for _ in range(3)] == [True, False, True]
    place, message = posted[0]
    assert (place, message.id) == (channel, "r1")
    assert message.chat == "Stand-up: failure (task t1)\nit broke"
    assert message.members == {
        "type": "ceremony.report", "ceremonyId": "standup", "ceremonyName": "Stand-up", **ABOUT,
    }  # fmt: skip
    # The variable of a channel comes first, as before there were receivers.
    named = f"DISCORD_WEBHOOK_{channel.upper()}"
    own = Posts()
    reports = RunReports(lambda _: posts, cast("Fetcher", own), {named: HOOK}.get, post)
    assert asyncio.run(reports.tell(one, report)) and own.sent[0][0] == HOOK


def test_what_is_not_taken_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    for status in (0, 302, 404, 500):
        assert not tell(ceremony(notifyWebhook=HOOK), Posts(status), Posts())
    assert tell(ceremony(notifyChannel="unset"), Posts(), Posts())
    assert "variable_unset=DISCORD_WEBHOOK_UNSET" in caplog.text and "secret" not in caplog.text
