from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.webhook.webhooks import NEW, NOW_S, OLD, WHPK, WHSEC, Clock, bearer, body, jwks, signed
from trunkline import clock
from trunkline.errors import InvalidParams, Misuse, ParseError, TooLarge, Unauthenticated
from trunkline.net import webhook_signature
from trunkline.webhook import Receiver
from trunkline.wire.types import TaskState

TOKEN = "token-5f0c1e"


def receiver(**given: Any) -> Receiver:
    return Receiver(**{"clock": Clock(), **given})


def refusal(one: Receiver, headers: dict[str, str], content: bytes) -> str:
    with pytest.raises(Unauthenticated) as caught:
        one.receive(headers, content)
    return caught.value.details["reason"]


def test_a_token_as_bearer_or_in_its_own_header() -> None:
    one = receiver(tokens=["other", TOKEN])
    for headers in (
        bearer(TOKEN),
        {"authorization": f"bearer  {TOKEN} "},
        {"X-A2A-Notification-Token": TOKEN},
        {"x-a2a-notification-token": "other"},
        # The bearer token may be for a proxy on the way.
        {"Authorization": "Bearer gateway", "X-A2A-Notification-Token": TOKEN},
    ):
        assert one.receive(headers, body()).state is TaskState.COMPLETED


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "missing"),
        (bearer(""), "missing"),
        ({"Authorization": f"Basic {TOKEN}"}, "missing"),
        ({"Authorization": TOKEN}, "missing"),
        (bearer("wrong"), "token"),
        (bearer(TOKEN + "x"), "token"),
        (bearer(TOKEN[:-1]), "token"),
        ({"X-A2A-Notification-Token": "\udc80é"}, "token"),
    ],
)
def test_a_wrong_token(headers: dict[str, str], reason: str) -> None:
    assert refusal(receiver(tokens=[TOKEN]), headers, body()) == reason
    assert refusal(receiver(tokens=lambda task_id: TOKEN), headers, body()) == reason


def test_a_stranger_learns_nothing_of_what_is_read() -> None:
    assert refusal(receiver(tokens=[TOKEN]), bearer("wrong"), b"{") == "token"
    assert refusal(receiver(tokens=lambda task_id: TOKEN), {}, b"{") == "missing"


def test_a_token_per_task() -> None:
    one = receiver(tokens={"t1": TOKEN, "t2": "second", "t3": ""}.get)
    assert one.receive(bearer(TOKEN), body("t1")).task_id == "t1"
    assert one.receive(bearer("second"), body("t2")).task_id == "t2"
    said: set[str] = set()
    for token, task_id in [(TOKEN, "t2"), (TOKEN, "unknown"), ("second", "t1"), ("x", "t3")]:
        with pytest.raises(Unauthenticated) as caught:
            one.receive(bearer(token), body(task_id))
        said.add(f"{caught.value.message} {caught.value.details}")
    assert len(said) == 1, "an unknown task is answered like a wrong token"


@pytest.mark.parametrize(
    "keys",
    [
        jwks(OLD),
        json.dumps(jwks(NEW, OLD)),
        json.dumps(jwks(OLD)).encode(),
        WHPK,
        [WHSEC, WHPK],
        [jwks(NEW), jwks(OLD)],
        iter([jwks(OLD)]),
    ],
)
def test_keys_in_every_form(keys: Any) -> None:
    one = receiver(keys=keys)
    assert one.receive(signed(body(), OLD), body()).id == "evt-1"
    assert refusal(one, signed(body(), OLD), body("t2")) == "signature"


def test_a_shared_secret() -> None:
    secret = webhook_signature.signing_key(WHSEC)
    assert receiver(keys=WHSEC).receive(signed(body(), secret), body()).id == "evt-1"
    assert refusal(receiver(keys=jwks(OLD)), signed(body(), secret), body()) == "signature"


def test_age() -> None:
    now = Clock()
    one = receiver(keys=jwks(OLD), clock=now)
    for age, reason in [(301, "stale"), (-301, "future")]:
        now.now_s = NOW_S + age
        assert refusal(one, signed(body(), OLD), body()) == reason
    for age in (300, -300):
        now.now_s = NOW_S + age
        assert one.receive(signed(body(), OLD), body())


def test_both_are_required_if_both_are_given() -> None:
    one = receiver(tokens=[TOKEN], keys=jwks(OLD))
    assert refusal(one, bearer(TOKEN), body()) == "missing"
    assert refusal(one, signed(body(), OLD), body()) == "missing"
    assert refusal(one, {**signed(body(), NEW), **bearer(TOKEN)}, body()) == "signature"
    assert one.receive({**signed(body(), OLD), **bearer(TOKEN)}, body()).task_id == "t1"


def test_rotation() -> None:
    one = receiver(keys=jwks(OLD))
    both = signed(body(), NEW, OLD, webhook_id="during")
    assert one.receive(both, body()).id == "during"
    assert refusal(one, signed(body(), NEW), body()) == "signature"
    one.trust(jwks(NEW))
    assert one.receive(both, body()).repeated
    assert one.receive(signed(body(), NEW), body()).id == "evt-1"
    assert refusal(one, signed(body(), OLD), body()) == "signature"
    with pytest.raises(Misuse, match="at least one key"):
        one.trust([])
    with pytest.raises(Misuse, match="no JWKS"):
        one.trust(b"<html>")
    assert one.receive(signed(body(), NEW, webhook_id="after"), body()).id == "after"


def test_a_replay_is_told() -> None:
    now = Clock()
    one = receiver(keys=jwks(OLD), clock=now)
    headers = signed(body(), OLD)
    assert [one.receive(headers, body()).repeated for _ in range(3)] == [False, True, True]
    # A retry is signed anew and keeps its id.
    now.now_s += 300
    again = signed(body(), OLD, at=NOW_S + 300)
    assert one.receive(again, body()).repeated
    assert not one.receive(signed(body(), OLD, webhook_id="evt-2", at=NOW_S + 300), body()).repeated
    now.now_s += 300
    assert not one.receive(again, body()).repeated, "ten minutes later it is forgotten"


def test_what_is_signed_ahead_of_time_is_remembered_as_long_as_it_is_good() -> None:
    now = Clock()
    for tolerance_s in (300, 2000):
        one = receiver(keys=jwks(OLD), clock=now, tolerance_s=tolerance_s)
        now.now_s = NOW_S - tolerance_s
        assert not one.receive(signed(body(), OLD), body()).repeated
        now.now_s = NOW_S + tolerance_s - 1
        assert one.receive(signed(body(), OLD), body()).repeated


def test_a_sender_without_ids() -> None:
    one = receiver(tokens=[TOKEN])
    assert [one.receive(bearer(TOKEN), body()).repeated for _ in range(2)] == [False, True]
    untimed = body(status={"state": "working"})
    assert [one.receive(bearer(TOKEN), untimed).repeated for _ in range(2)] == [False, False]


def test_one_that_failed_can_be_forgotten() -> None:
    one = receiver(tokens=[TOKEN])
    one.forget(one.receive(bearer(TOKEN), body()))
    assert not one.receive(bearer(TOKEN), body()).repeated


def test_bodies_that_are_none() -> None:
    one = receiver(tokens=[TOKEN], body_limit=500)
    with pytest.raises(ParseError):
        one.receive(bearer(TOKEN), b"{")
    with pytest.raises(InvalidParams) as caught:
        one.receive(bearer(TOKEN), body(status={"state": "lost"}))
    assert caught.value.field == "status.state"
    with pytest.raises(TooLarge, match="500 bytes"):
        one.receive(bearer(TOKEN), b" " * 501)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "tokens or keys"),
        ({"tokens": [], "keys": []}, "tokens or keys"),
        ({"tokens": TOKEN}, "list of tokens"),
        ({"tokens": [TOKEN, ""]}, "must not be empty"),
        ({"keys": "secret"}, "whpk_ or whsec_"),
        ({"keys": [b"{}"]}, "no JWKS"),
        ({"keys": {"keys": []}}, "no Ed25519 key"),
        ({"keys": ["whsk_" + "A" * 44]}, "sender's own"),
    ],
)
def test_misuse(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Misuse, match=said):
        Receiver(**given)


def test_the_clock_of_the_wall_is_the_default() -> None:
    one = Receiver(keys=jwks(OLD))
    assert one.receive(signed(body(), OLD, at=clock.now_ms() // 1000), body())
    assert refusal(one, signed(body(), OLD, at=1_600_000_000), body()) == "stale"


def test_secrets_and_bodies_stay_out_of_errors_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    one = receiver(tokens=[TOKEN], keys=WHSEC)
    planted = body(note="planted-in-body")
    for headers in (
        bearer(TOKEN),
        {**bearer("planted-token"), **signed(planted, webhook_signature.signing_key(WHSEC))},
    ):
        with pytest.raises(Unauthenticated) as caught:
            one.receive(headers, planted)
        for secret in (TOKEN, "planted", WHSEC[6:]):
            assert secret not in f"{caught.value!r} {caught.value.details} {caplog.text} {vars(one)}"
