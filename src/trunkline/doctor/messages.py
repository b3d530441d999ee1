"""Checks of messages that are wrong, and of those that only hold more than is known."""

from __future__ import annotations

from trunkline.doctor.binding import BAD_PARAMS, INVALID, NOT_FOUND, ProbeBinding
from trunkline.doctor.finding import ERROR, PASSED, WARNING, CheckVerdict, failed, judge, of_way
from trunkline.doctor.fixtures import new_id


@of_way(
    "send-bad-message",
    ERROR,
    "§5.7, SND-21",
    means="Messages that are none start work; nobody learns of the mistake.",
    fix="Refuse a message without messageId, role or parts with invalid params (-32602), naming the member.",
    sends=True,
)
async def bad_message(way: ProbeBinding) -> CheckVerdict:
    """A message without messageId, role or parts is refused."""
    trials = way.subject.trials(way)
    await trials.sent()
    for name in ("messageId", "role", "parts"):
        message = {key: value for key, value in trials.message().items() if key != name}
        answer = await trials.send_odd(message)
        if not (answer.is_code(BAD_PARAMS) or answer.is_code(INVALID)):
            return failed(f"without {name}: {answer.told()}", answer.exchange)
    return PASSED


@of_way(
    "send-empty-parts",
    ERROR,
    "§5.7, SND-21, AG-10",
    means="Empty messages start work.",
    fix="Refuse a message whose parts are empty with invalid params (-32602).",
    versions=("1.0",),
    first=True,
    sends=True,
)
async def empty_parts(way: ProbeBinding) -> CheckVerdict:
    """A message without any part is refused."""
    trials = way.subject.trials(way)
    await trials.sent()
    answer = await trials.send_odd(trials.message(parts=[]))
    good = answer.is_code(BAD_PARAMS) or answer.is_code(INVALID)
    return judge(good, answer.told(), answer.exchange)


@of_way(
    "send-part-without-content",
    ERROR,
    "§4.1.6, SND-22",
    means="A caller's mistake, such as a wrong member name, is taken for an empty text.",
    fix="Refuse a part with none of text, raw, url and data with invalid params (-32602).",
    versions=("1.0",),
    first=True,
    sends=True,
)
async def part_without_content(way: ProbeBinding) -> CheckVerdict:
    """A part that holds nothing is refused."""
    trials = way.subject.trials(way)
    await trials.sent()
    answer = await trials.send_odd(trials.message(parts=[{"mediaType": "text/plain"}]))
    good = answer.is_code(BAD_PARAMS) or answer.is_code(INVALID)
    return judge(good, answer.told(), answer.exchange)


@of_way(
    "unknown-members-ignored",
    WARNING,
    "§5.7, SND-24",
    means="Newer clients, which send more, are turned away.",
    fix="Ignore members that are not known.",
)
async def unknown_members(way: ProbeBinding) -> CheckVerdict:
    """A member that nobody knows does not matter."""
    answer = await way.call("get", {"id": new_id(), "trunklineDoctor": "1"})
    return judge(answer.is_code(NOT_FOUND), answer.told(), answer.exchange)
