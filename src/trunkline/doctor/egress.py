"""Checks of where webhooks may lead: not into the agent's own network, whatever a caller says."""

from __future__ import annotations

from trunkline.doctor.binding import ProbeBinding
from trunkline.doctor.finding import ERROR, PASSED, CheckVerdict, failed, judge, of_way, skipped
from trunkline.doctor.push import forget

_METADATA = "http://169.254.169.254/latest/meta-data/"
_PRIVATE = ("http://10.0.0.1/", "http://192.168.0.1/", "http://[::ffff:10.0.0.1]/", "http://100.64.0.1/")
_LOOPBACK = ("http://127.0.0.1:9/", "http://localhost:9/", "http://[::1]:9/", "http://2130706433:9/")


@of_way(
    "push-refuses-metadata-service",
    ERROR,
    "§13.2, PDL-06, AG-33",
    means="Any caller can make the agent call the cloud's metadata service, where credentials lie.",
    fix="Resolve the host of a webhook and refuse addresses that are not public, at saving and at sending.",
    first=True,
    sends=True,
)
async def metadata_service(way: ProbeBinding) -> CheckVerdict:
    """A webhook at 169.254.169.254 is refused."""
    return await _refuses(way, (_METADATA,))


@of_way(
    "push-refuses-private-addresses",
    ERROR,
    "§13.2, PDL-06, AG-33",
    means="Any caller can make the agent call machines inside its network.",
    fix="Refuse private, shared and mapped addresses; let the operator allow what is needed.",
    first=True,
    sends=True,
)
async def private(way: ProbeBinding) -> CheckVerdict:
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
async def loopback(way: ProbeBinding) -> CheckVerdict:
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
async def schemes(way: ProbeBinding) -> CheckVerdict:
    """Only http and https are taken, without a login."""
    return await _refuses(
        way, ("file:///etc/passwd", "gopher://example.com/", "https://user:pw@example.com/")
    )


@of_way(
    "push-refuses-with-message",
    ERROR,
    "§13.2, PSH-09, AG-34",
    means="What is refused as a config of its own gets in with a message.",
    fix="Check the webhook of a message like any other, and refuse the message before a task is made.",
    first=True,
    sends=True,
)
async def with_message(way: ProbeBinding) -> CheckVerdict:
    """A webhook at 169.254.169.254 is refused in a message too."""
    way.subject.needs("pushNotifications")
    trials = way.subject.trials(way)
    await trials.sent()
    answer = await trials.send(taskPushNotificationConfig={"url": _METADATA})
    return judge(answer.refused, f"a message with the webhook {_METADATA} was accepted", answer.exchange)


async def _refuses(way: ProbeBinding, urls: tuple[str, ...]) -> CheckVerdict:
    way.subject.needs("pushNotifications")
    task = await way.subject.trials(way).task()
    for url in urls:
        answer = await way.call("push-set", {"taskId": task["id"], "url": url})
        if not answer.refused and answer.result is not None:
            await forget(way, task["id"], answer)
            return failed(f"{url} was accepted", answer.exchange)
    return PASSED
