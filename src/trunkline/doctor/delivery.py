"""Checks of notifications on their way: a task's end is told to this machine."""

from __future__ import annotations

from trunkline.doctor.binding import ProbeBinding
from trunkline.doctor.finding import ERROR, PASSED, CheckVerdict, failed, judge, of_way, skipped
from trunkline.doctor.json_access import TERMINAL, members, parsed, state_of, text, unwrapped
from trunkline.errors import Refused, Unauthenticated
from trunkline.webhook import Receiver

_MEMBERS = ("task", "message", "statusUpdate", "artifactUpdate")


@of_way(
    "push-round-trip",
    ERROR,
    "§4.3.3, PDL-03, AG-37",
    means="Push is declared and nothing arrives; callers fall back to polling, or wait for ever.",
    fix="Look into the agent's log for the delivery: address, token, refused host, swallowed error.",
    first=True,
    sends=True,
)
async def round_trip(way: ProbeBinding) -> CheckVerdict:
    """A notification of the end of a task arrives at this machine."""
    way.subject.needs("pushNotifications")
    pushed = await way.subject.trials(way).pushed()
    states = [_state(one.body) for one in pushed.heard]
    if not states:
        return failed(f"nothing arrived at {pushed.url}", pushed.answer.exchange)
    good = any(state in TERMINAL for state in states)
    return judge(good, f"no notification of an end: {states}", pushed.answer.exchange)


@of_way(
    "push-token",
    ERROR,
    "§4.3.3, PDL-02, AG-31",
    means="Receivers cannot know that it is their agent who calls, and refuse.",
    fix="Send the config's token as X-A2A-Notification-Token or as a bearer token.",
    first=True,
    sends=True,
)
async def token(way: ProbeBinding) -> CheckVerdict:
    """The token comes along."""
    way.subject.needs("pushNotifications")
    pushed = await way.subject.trials(way).pushed()
    if not pushed.heard:
        return skipped("nothing arrived; see push-round-trip")
    receiver = Receiver(tokens=[pushed.token])
    for one in pushed.heard:
        try:
            receiver.receive(one.headers, one.body)
        except Unauthenticated as error:
            return failed(f"a notification came, but {error}", pushed.answer.exchange)
        except Refused:
            # What is in it is for `push-body` to say.
            continue
    return PASSED


@of_way(
    "push-body",
    ERROR,
    "§4.3.3, PDL-01, VER-06, AG-41",
    means="Receivers cannot read what they are told.",
    fix="Post one of task, message, statusUpdate and artifactUpdate in 1.0; an object with kind in 0.3.",
    first=True,
    sends=True,
)
async def body(way: ProbeBinding) -> CheckVerdict:
    """The body is what the version says."""
    way.subject.needs("pushNotifications")
    pushed = await way.subject.trials(way).pushed()
    if not pushed.heard:
        return skipped("nothing arrived; see push-round-trip")
    for one in pushed.heard:
        found = members(parsed(one.body))
        if way.version == "1.0":
            good = len([name for name in _MEMBERS if name in found]) == 1
        else:
            good = bool(text(found.get("kind")))
        if not good:
            return failed(f"the body has {', '.join(found) or 'no members'}", pushed.answer.exchange)
    return PASSED


def _state(raw: bytes) -> str:
    found = unwrapped(parsed(raw))
    return "" if found is None else state_of(found.value)
