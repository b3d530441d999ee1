"""Checks of push configs: how they are kept, and what is refused."""

from __future__ import annotations

from typing import Any

from trunkline.doctor.binding import (
    BAD_PARAMS,
    INVALID,
    NO_METHOD,
    NO_PUSH,
    NOT_FOUND,
    UNSUPPORTED,
    ProbeAnswer,
    ProbeBinding,
)
from trunkline.doctor.finding import ERROR, CheckVerdict, NotPossible, failed, judge, of_way, skipped
from trunkline.doctor.fixtures import new_id
from trunkline.doctor.json_access import at, items, text


@of_way(
    "push-undeclared-refused",
    ERROR,
    "§3.3.4, PSH-07, AG-03",
    means="The card says that there is no push, and there is; or the refusal is not the agreed one.",
    fix="Declare capabilities.pushNotifications, or refuse with PushNotificationNotSupported (-32003).",
)
async def undeclared(way: ProbeBinding) -> CheckVerdict:
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
async def unknown_task(way: ProbeBinding) -> CheckVerdict:
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
async def missing_url(way: ProbeBinding) -> CheckVerdict:
    """A config without a url is refused."""
    way.subject.needs("pushNotifications")
    task = await way.subject.trials(way).task()
    answer = await way.call("push-set", {"taskId": task["id"], "id": "doctor"})
    if not answer.refused:
        await forget(way, task["id"], answer)
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
async def config_kept(way: ProbeBinding) -> CheckVerdict:
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
async def two_configs(way: ProbeBinding) -> CheckVerdict:
    """Two configs without ids get two ids."""
    way.subject.needs("pushNotifications")
    task = await way.subject.trials(way).task()
    one, other = await _accepted(way, taskId=task["id"]), await _accepted(way, taskId=task["id"])
    for answer in (one, other):
        await forget(way, task["id"], answer)
    return judge(_name(one) != _name(other), f"both are {_name(one)!r}", one.exchange, other.exchange)


async def _accepted(way: ProbeBinding, **given: str) -> ProbeAnswer:
    """A config that the agent takes: for this machine, else for an address that is nobody's."""
    told = ""
    urls = ["https://example.com/trunkline-doctor"]
    if way.subject.is_reached:
        # Port 9 throws away what it is sent, where anybody listens there at all.
        urls.insert(0, f"http://{way.subject.options.receiver}:9/trunkline-doctor")
    for url in urls:
        answer = await way.call("push-set", {**given, "url": url})
        if not answer.refused and answer.result is not None:
            return answer
        told = answer.told()
    raise NotPossible(f"no webhook was taken, neither at this machine nor at example.com: {told}")


async def forget(way: ProbeBinding, task_id: str, made: ProbeAnswer) -> None:
    """Take back a config."""
    name = _name(made)
    if name:
        await way.call("push-delete", {"taskId": task_id, "id": name})


def _name(answer: ProbeAnswer) -> str:
    """The id of a config, in either version."""
    return text(at(answer.result, "id")) or text(at(answer.result, "pushNotificationConfig", "id"))


def _names(answer: ProbeAnswer) -> list[str]:
    listed: list[Any] = items(answer.result) or items(at(answer.result, "configs"))
    return [text(at(one, "id")) or text(at(one, "pushNotificationConfig", "id")) for one in listed]
