"""Checks of push: how configs are kept, what is delivered to this machine, and which webhooks are refused."""

from __future__ import annotations

from trunkline.clock import new_id
from trunkline.doctor.check import ERROR, V1, CheckFailed, Family, assume, expect, expect_refusal
from trunkline.doctor.exchange import (
    TERMINAL,
    WRAPPERS,
    NotPossible,
    at,
    items,
    members,
    parsed,
    protocol_object,
    text,
)
from trunkline.doctor.fixtures import NotificationProbe
from trunkline.doctor.probe import (
    BAD_PARAMS,
    INVALID,
    NO_METHOD,
    NO_PUSH,
    NOT_FOUND,
    UNSUPPORTED,
    InterfaceProbe,
    ProbeAnswer,
)
from trunkline.errors import Refused, Unauthenticated
from trunkline.webhook import Receiver

push = Family("push", first=True, needs="pushNotifications")
delivery = Family("delivery", first=True, needs="pushNotifications")
egress = Family("egress", first=True, needs="pushNotifications")


@push.interface("push-undeclared-refused", ERROR, "§3.3.4, PSH-07, AG-03", first=False, needs="")
async def undeclared(probe: InterfaceProbe) -> None:
    """What is not declared is refused.

    Means: The card says that there is no push, and there is; or the refusal is not the agreed one.
    Fix: Declare capabilities.pushNotifications, or refuse with PushNotificationNotSupported (-32003).
    """
    assume(not probe.subject.flag("pushNotifications"), "the card declares push notifications")
    answer = await probe.call("push-set", {"taskId": new_id(), "url": "https://example.com/doctor"})
    older = () if probe.is_v1 else (NO_METHOD, UNSUPPORTED)
    expect_refusal(answer, NO_PUSH, *older)


@push.interface("push-unknown-task", ERROR, "§3.1.7, PSH-02", first=False)
async def unknown_task(probe: InterfaceProbe) -> None:
    """A config for a task that never was is refused.

    Means: Callers wait for notifications of a task that is not there.
    Fix: Answer a push config for a task that nobody knows with TaskNotFound (-32001).
    """
    expect_refusal(await probe.call("push-list", {"taskId": new_id()}), NOT_FOUND)


@push.interface("push-missing-url", ERROR, "§4.3.1, PSH-08")
async def missing_url(probe: InterfaceProbe) -> None:
    """A config without a url is refused.

    Means: A caller's mistake goes unnoticed, and it waits for ever.
    Fix: Refuse a push config without a url with invalid params (-32602).
    """
    task = await probe.fixtures.task()
    answer = await probe.call("push-set", {"taskId": task["id"], "id": "doctor"})
    if not answer.refused:
        await _delete(probe, task["id"], answer)
    expect_refusal(answer, BAD_PARAMS, INVALID)


@push.interface("push-config-kept", ERROR, "§3.1.7, PSH-01, PSH-03, PSH-05, PSH-06")
async def config_kept(probe: InterfaceProbe) -> None:
    """A config can be made, read, listed and deleted.

    Means: Callers cannot see or end the notifications that they have asked for.
    Fix: Give each config an id; get and list show it until it is deleted.
    """
    task = await probe.fixtures.task()
    # A name of its own: an agent that keeps one unnamed config must not lose it to another check.
    given = {"taskId": task["id"], "id": new_id()}
    made = await _accepted(probe, **given)
    name = _config_id(made.result)
    expect(name == given["id"], f"the config was named {given['id']!r} and is {name!r}", made)
    got = await probe.call("push-get", given)
    listed = await probe.call("push-list", {"taskId": task["id"]})
    gone = await probe.call("push-delete", given)
    after = await probe.call("push-list", {"taskId": task["id"]})
    expect(not got.refused and _config_id(got.result) == name, f"get gives {got.summary()}", made, got)
    expect(name in _config_ids(listed), "it is not in the list", listed)
    expect(not gone.refused, f"delete gives {gone.summary()}", gone)
    expect(name not in _config_ids(after), "it is in the list after its delete", after)


@push.interface("push-two-configs", ERROR, "§3.1.7, PSH-01", versions=V1)
async def two_configs(probe: InterfaceProbe) -> None:
    """Two configs without ids get two ids.

    Means: A second webhook takes the place of the first, which is told nothing more.
    Fix: Give each config without an id a new one.
    """
    task = await probe.fixtures.task()
    one, other = [await _accepted(probe, taskId=task["id"]) for _ in range(2)]
    for answer in (one, other):
        await _delete(probe, task["id"], answer)
    name = _config_id(one.result)
    expect(name != _config_id(other.result), f"both are {name!r}", one, other)


async def _accepted(probe: InterfaceProbe, **given: str) -> ProbeAnswer:
    """The answer to a config that the agent accepts: for this machine, else for an address that is nobody's.

    Raises:
        NotPossible: it accepts neither.
    """
    refusal = ""
    urls = ["https://example.com/trunkline-doctor"]
    if probe.subject.is_reached:
        # Port 9 throws away what it is sent, where anybody listens there at all.
        urls.insert(0, f"http://{probe.subject.options.receiver}:9/trunkline-doctor")
    for url in urls:
        answer = await probe.call("push-set", {**given, "url": url})
        if not answer.refused and answer.result is not None:
            return answer
        refusal = answer.summary()
    raise NotPossible(f"no webhook was taken, neither at this machine nor at example.com: {refusal}")


async def _delete(probe: InterfaceProbe, task_id: str, made: ProbeAnswer) -> None:
    """Delete a config that the agent has accepted."""
    if name := _config_id(made.result):
        await probe.call("push-delete", {"taskId": task_id, "id": name})


def _config_id(config: object) -> str:
    """The id of a config, in either version."""
    return text(at(config, "id")) or text(at(config, "pushNotificationConfig", "id"))


def _config_ids(answer: ProbeAnswer) -> list[str]:
    return [_config_id(one) for one in items(answer.result) or items(at(answer.result, "configs"))]


@delivery.interface("push-round-trip", ERROR, "§4.3.3, PDL-03, AG-37")
async def round_trip(probe: InterfaceProbe) -> None:
    """A notification of the end of a task arrives at this machine.

    Means: Push is declared and nothing arrives; callers fall back to polling, or wait for ever.
    Fix: Look into the agent's log for the delivery: address, token, refused host, swallowed error.
    """
    answer, hook = await probe.fixtures.pushed()
    states = [protocol_object(parsed(one.body)).state for one in hook.received]
    expect(states, f"nothing arrived at {hook.url}", answer)
    expect(any(state in TERMINAL for state in states), f"no notification of an end: {states}", answer)


@delivery.interface("push-token", ERROR, "§4.3.3, PDL-02, AG-31")
async def token(probe: InterfaceProbe) -> None:
    """The token comes along.

    Means: Receivers cannot know that it is their agent who calls, and refuse.
    Fix: Send the config's token as X-A2A-Notification-Token or as a bearer token.
    """
    answer, hook = await _pushed(probe)
    receiver = Receiver(tokens=[hook.token])
    for one in hook.received:
        try:
            receiver.receive(one.headers, one.body)
        except Unauthenticated as error:
            raise CheckFailed(f"a notification came, but {error}", answer) from None
        except Refused:
            # What is in it is for `push-body` to say.
            continue


@delivery.interface("push-body", ERROR, "§4.3.3, PDL-01, VER-06, AG-41")
async def body(probe: InterfaceProbe) -> None:
    """The body is what the version says.

    Means: Receivers cannot read what they are told.
    Fix: Post one of task, message, statusUpdate and artifactUpdate in 1.0; an object with kind in 0.3.
    """
    answer, hook = await _pushed(probe)
    for one in hook.received:
        found = members(parsed(one.body))
        good = len(found.keys() & WRAPPERS) == 1 if probe.is_v1 else text(found.get("kind"))
        expect(good, f"the body has {', '.join(found) or 'no members'}", answer)


async def _pushed(probe: InterfaceProbe) -> tuple[ProbeAnswer, NotificationProbe]:
    """The notifications of a task, at least one.

    Raises:
        NotPossible: none came.
    """
    pushed = await probe.fixtures.pushed()
    assume(pushed[1].received, "nothing arrived; see push-round-trip")
    return pushed


_METADATA = "http://169.254.169.254/latest/meta-data/"
_PRIVATE = ("http://10.0.0.1/", "http://192.168.0.1/", "http://[::ffff:10.0.0.1]/", "http://100.64.0.1/")
_SCHEMES = ("file:///etc/passwd", "gopher://example.com/", "https://user:pw@example.com/")
_LOOPBACK = ("http://127.0.0.1:9/", "http://localhost:9/", "http://[::1]:9/", "http://2130706433:9/")


@egress.interface("push-refuses-metadata-service", ERROR, "§13.2, PDL-06, AG-33")
async def metadata_service(probe: InterfaceProbe) -> None:
    """A webhook at 169.254.169.254 is refused.

    Means: Any caller can make the agent call the cloud's metadata service, where credentials lie.
    Fix: Resolve the host of a webhook and refuse addresses that are not public, at saving and at sending.
    """
    await _expect_refused(probe, (_METADATA,))


@egress.interface("push-refuses-private-addresses", ERROR, "§13.2, PDL-06, AG-33")
async def private(probe: InterfaceProbe) -> None:
    """Webhooks into private networks are refused, however the address is written.

    Means: Any caller can make the agent call machines inside its network.
    Fix: Refuse private, shared and mapped addresses; let the operator allow what is needed.
    """
    await _expect_refused(probe, _PRIVATE)


@egress.interface("push-refuses-loopback", ERROR, "§13.2, PDL-06, AG-33")
async def loopback(probe: InterfaceProbe) -> None:
    """Webhooks to the agent's own machine are refused.

    Means: Any caller can make the agent call services on its own machine.
    Fix: Refuse loopback addresses, however they are written; let the operator allow what is needed.
    """
    try:
        await _expect_refused(probe, _LOOPBACK)
    except CheckFailed:
        assume(
            not probe.subject.is_local, "the agent takes webhooks on its own machine, which is also this one"
        )
        raise


@egress.interface("push-refuses-other-schemes", ERROR, "§13.2, AG-33")
async def schemes(probe: InterfaceProbe) -> None:
    """Only http and https are taken, without a login.

    Means: Any caller can make the agent read files or speak other protocols.
    Fix: Take only http and https URLs, without a login in them.
    """
    await _expect_refused(probe, _SCHEMES)


@egress.interface("push-refuses-with-message", ERROR, "§13.2, PSH-09, AG-34")
async def with_message(probe: InterfaceProbe) -> None:
    """A webhook at 169.254.169.254 is refused in a message too.

    Means: What is refused as a config of its own gets in with a message.
    Fix: Check the webhook of a message like any other, and refuse the message before a task is made.
    """
    await probe.fixtures.sent()
    answer = await probe.fixtures.send(taskPushNotificationConfig={"url": _METADATA})
    expect(answer.refused, f"a message with the webhook {_METADATA} was accepted", answer)


async def _expect_refused(probe: InterfaceProbe, urls: tuple[str, ...]) -> None:
    """A webhook at each of these addresses is refused; one that is accepted is deleted again."""
    task = await probe.fixtures.task()
    for url in urls:
        answer = await probe.call("push-set", {"taskId": task["id"], "url": url})
        if not answer.refused and answer.result is not None:
            await _delete(probe, task["id"], answer)
            raise CheckFailed(f"{url} was accepted", answer)
