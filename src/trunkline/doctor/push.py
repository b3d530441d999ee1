"""Checks of push notifications: configs, the round trip to this machine, and where webhooks may lead."""

from __future__ import annotations

from typing import Any

from trunkline.doctor.finding import ERROR, PASSED, NotPossible, Verdict, failed, judge, of_way, skipped
from trunkline.doctor.look import TERMINAL, at, items, members, parsed, state_of, text, unwrapped
from trunkline.doctor.trials import new_id
from trunkline.doctor.way import BAD_PARAMS, INVALID, NO_METHOD, NO_PUSH, NOT_FOUND, UNSUPPORTED, Answer, Way

_PRIVATE = ("http://10.0.0.1/", "http://192.168.0.1/", "http://[::ffff:10.0.0.1]/", "http://100.64.0.1/")
_LOOPBACK = ("http://127.0.0.1:9/", "http://localhost:9/", "http://[::1]:9/", "http://2130706433:9/")
_MEMBERS = ("task", "message", "statusUpdate", "artifactUpdate")


@of_way(
    "push-undeclared-refused",
    ERROR,
    "§3.3.4, PSH-07, AG-03",
    means="The card says that there is no push, and there is; or the refusal is not the agreed one.",
    fix="Declare capabilities.pushNotifications, or refuse with PushNotificationNotSupported (-32003).",
)
async def undeclared(way: Way) -> Verdict:
    """What is not declared is refused."""
    if way.subject.flag("pushNotifications"):
        return skipped("the card declares push notifications")
    answer = await way.call("push-set", {"taskId": new_id(), "url": "https://example.com/doctor"})
    good = answer.is_code(NO_PUSH)
    if way.version != "1.0":
        good = answer.is_code(NO_METHOD) or answer.is_code(UNSUPPORTED) or good
    return judge(good, answer.told(), answer.exchange)


@of_way(
    "push-unknown-task",
    ERROR,
    "§3.1.7, PSH-02",
    means="Callers wait for notifications of a task that is not there.",
    fix="Answer a push config for a task that nobody knows with TaskNotFound (-32001).",
)
async def unknown_task(way: Way) -> Verdict:
    """A config for a task that never was is refused."""
    way.subject.needs("pushNotifications")
    answer = await way.call("push-list", {"taskId": new_id()})
    return judge(answer.is_code(NOT_FOUND), answer.told(), answer.exchange)


@of_way(
    "push-missing-url",
    ERROR,
    "§4.3.1, PSH-08",
    means="A caller's mistake goes unnoticed, and it waits for ever.",
    fix="Refuse a push config without a url with invalid params (-32602).",
    first=True,
    sends=True,
)
async def missing_url(way: Way) -> Verdict:
    """A config without a url is refused."""
    way.subject.needs("pushNotifications")
    task = await way.subject.trials(way).task()
    answer = await way.call("push-set", {"taskId": task["id"], "id": "doctor"})
    if not answer.refused:
        await _forget(way, task["id"], answer)
    good = answer.is_code(BAD_PARAMS) or answer.is_code(INVALID)
    return judge(good, answer.told(), answer.exchange)


@of_way(
    "push-config-kept",
    ERROR,
    "§3.1.7, PSH-01, PSH-03, PSH-05, PSH-06",
    means="Callers cannot see or end the notifications that they have asked for.",
    fix="Give each config an id; get and list show it until it is deleted.",
    first=True,
    sends=True,
)
async def config_kept(way: Way) -> Verdict:
    """A config can be made, read, listed and deleted."""
    way.subject.needs("pushNotifications")
    task = await way.subject.trials(way).task()
    # A name of its own: an agent that keeps one unnamed config must not lose it to another check.
    given = {"taskId": task["id"], "id": new_id()}
    made = await _accepted(way, **given)
    name = _name(made)
    if name != given["id"]:
        return failed(f"the config was named {given['id']!r} and is {name!r}", made.exchange)
    got = await way.call("push-get", given)
    listed = await way.call("push-list", {"taskId": task["id"]})
    gone = await way.call("push-delete", given)
    after = await way.call("push-list", {"taskId": task["id"]})
    if got.refused or _name(got) != name:
        return failed(f"get gives {got.told()}", made.exchange, got.exchange)
    if name not in _names(listed):
        return failed("it is not in the list", listed.exchange)
    if gone.refused:
        return failed(f"delete gives {gone.told()}", gone.exchange)
    return judge(name not in _names(after), "it is in the list after its delete", after.exchange)


@of_way(
    "push-two-configs",
    ERROR,
    "§3.1.7, PSH-01",
    means="A second webhook takes the place of the first, which is told nothing more.",
    fix="Give each config without an id a new one.",
    versions=("1.0",),
    first=True,
    sends=True,
)
async def two_configs(way: Way) -> Verdict:
    """Two configs without ids get two ids."""
    way.subject.needs("pushNotifications")
    task = await way.subject.trials(way).task()
    one, other = await _accepted(way, taskId=task["id"]), await _accepted(way, taskId=task["id"])
    for answer in (one, other):
        await _forget(way, task["id"], answer)
    return judge(_name(one) != _name(other), f"both are {_name(one)!r}", one.exchange, other.exchange)


@of_way(
    "push-round-trip",
    ERROR,
    "§4.3.3, PDL-03, AG-37",
    means="Push is declared and nothing arrives; callers fall back to polling, or wait for ever.",
    fix="Look into the agent's log for the delivery: address, token, refused host, swallowed error.",
    first=True,
    sends=True,
)
async def round_trip(way: Way) -> Verdict:
    """A notification of the end of a task arrives at this machine."""
    way.subject.needs("pushNotifications")
    pushed = await way.subject.trials(way).pushed()
    states = [state_of(unwrapped_body(one.body)) for one in pushed.heard]
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
async def token(way: Way) -> Verdict:
    """The token comes along."""
    way.subject.needs("pushNotifications")
    pushed = await way.subject.trials(way).pushed()
    if not pushed.heard:
        return skipped("nothing arrived; see push-round-trip")
    for one in pushed.heard:
        sent = (
            one.headers.get("x-a2a-notification-token"),
            one.headers.get("authorization", "").partition(" ")[2],
        )
        if pushed.token not in sent:
            return failed("a notification came without the token", pushed.answer.exchange)
    return PASSED


@of_way(
    "push-body",
    ERROR,
    "§4.3.3, PDL-01, AG-41",
    means="Receivers cannot read what they are told.",
    fix="Post one of task, message, statusUpdate and artifactUpdate in 1.0; an object with kind in 0.3.",
    first=True,
    sends=True,
)
async def body(way: Way) -> Verdict:
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


@of_way(
    "push-refuses-metadata-service",
    ERROR,
    "§13.2, PDL-06, AG-33",
    means="Any caller can make the agent call the cloud's metadata service, where credentials lie.",
    fix="Resolve the host of a webhook and refuse addresses that are not public, at saving and at sending.",
    first=True,
    sends=True,
)
async def metadata_service(way: Way) -> Verdict:
    """A webhook at 169.254.169.254 is refused."""
    return await _refuses(way, ("http://169.254.169.254/latest/meta-data/",))


@of_way(
    "push-refuses-private-addresses",
    ERROR,
    "§13.2, PDL-06, AG-33",
    means="Any caller can make the agent call machines inside its network.",
    fix="Refuse private, shared and mapped addresses; let the operator allow what is needed.",
    first=True,
    sends=True,
)
async def private(way: Way) -> Verdict:
    """Webhooks into private networks are refused, however the address is written."""
    return await _refuses(way, _PRIVATE)


@of_way(
    "push-refuses-loopback",
    ERROR,
    "§13.2, PDL-06, AG-33",
    means="Any caller can make the agent call services on its own machine.",
    fix="Refuse loopback addresses, however they are written; let the operator allow what is needed.",
    first=True,
    sends=True,
)
async def loopback(way: Way) -> Verdict:
    """Webhooks to the agent's own machine are refused."""
    verdict = await _refuses(way, _LOOPBACK)
    if verdict is not PASSED and way.subject.is_local:
        return skipped("the agent takes webhooks on its own machine, which is also this one")
    return verdict


@of_way(
    "push-refuses-other-schemes",
    ERROR,
    "§13.2, AG-33",
    means="Any caller can make the agent read files or speak other protocols.",
    fix="Take only http and https URLs, without a login in them.",
    first=True,
    sends=True,
)
async def schemes(way: Way) -> Verdict:
    """Only http and https are taken, without a login."""
    return await _refuses(
        way, ("file:///etc/passwd", "gopher://example.com/", "https://user:pw@example.com/")
    )


async def _refuses(way: Way, urls: tuple[str, ...]) -> Verdict:
    way.subject.needs("pushNotifications")
    task = await way.subject.trials(way).task()
    for url in urls:
        answer = await way.call("push-set", {"taskId": task["id"], "url": url})
        if not answer.refused and answer.result is not None:
            await _forget(way, task["id"], answer)
            return failed(f"{url} was accepted", answer.exchange)
    return PASSED


async def _accepted(way: Way, **given: str) -> Answer:
    """A config that the agent takes: for this machine, else for an address that is nobody's."""
    host = way.subject.options.receiver
    told = ""
    # Port 9 throws away what it is sent, where anybody listens there at all.
    for url in (f"http://{host}:9/trunkline-doctor", "https://example.com/trunkline-doctor"):
        answer = await way.call("push-set", {**given, "url": url})
        if not answer.refused and answer.result is not None:
            return answer
        told = answer.told()
    raise NotPossible(f"no webhook was taken, neither at this machine nor at example.com: {told}")


async def _forget(way: Way, task_id: str, made: Answer) -> None:
    name = _name(made)
    if name:
        await way.call("push-delete", {"taskId": task_id, "id": name})


def _name(answer: Answer) -> str:
    """The id of a config, in either version."""
    return text(at(answer.result, "id")) or text(at(answer.result, "pushNotificationConfig", "id"))


def _names(answer: Answer) -> list[str]:
    listed: list[Any] = items(answer.result) or items(at(answer.result, "configs"))
    return [text(at(one, "id")) or text(at(one, "pushNotificationConfig", "id")) for one in listed]


def unwrapped_body(raw: bytes) -> dict[str, Any]:
    """The task or update in a notification."""
    found = unwrapped(parsed(raw))
    return {} if found is None else found.value
