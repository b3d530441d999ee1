"""Checks of extensions: those that are required, and those that nobody knows."""

from __future__ import annotations

from trunkline.doctor.binding import NO_EXTENSION, NOT_FOUND, ProbeAnswer, ProbeBinding
from trunkline.doctor.finding import ERROR, WARNING, CheckVerdict, NotPossible, judge, of_way
from trunkline.doctor.fixtures import new_id

_NOBODYS = "https://doctor.example/ext/nobody-knows/v1"


@of_way(
    "extension-required",
    ERROR,
    "§3.3.4, §4.6.3, EXT-01",
    means="The card requires an extension, and callers without it are served as if they spoke it.",
    fix="Refuse callers that do not name it with ExtensionSupportRequired (-32008), or require it no more.",
    versions=("1.0",),
    sends=True,
)
async def required(way: ProbeBinding) -> CheckVerdict:
    """A send without a required extension is refused."""
    if not way.subject.extensions(required=True):
        raise NotPossible("the card requires no extension")
    answer = await _with(way, "send", way.subject.trials(way).sending(), "")
    return judge(answer.is_code(NO_EXTENSION), answer.told(), answer.exchange)


@of_way(
    "extension-unknown-ignored",
    WARNING,
    "§4.6.3, EXT-02",
    means="Callers that speak more than the agent are turned away.",
    fix="Ignore extensions that are not known.",
)
async def unknown(way: ProbeBinding) -> CheckVerdict:
    """An extension that nobody knows does not matter."""
    names = [*way.subject.extensions(required=True), _NOBODYS]
    answer = await _with(way, "get", {"id": new_id()}, ", ".join(names))
    return judge(answer.is_code(NOT_FOUND), answer.told(), answer.exchange)


async def _with(way: ProbeBinding, operation: str, given: dict[str, object], names: str) -> ProbeAnswer:
    request = way.request(operation, given, headers=((way.extending, names),))
    return way.understood(await way.subject.line.fetch(request, operation, way.subject.send_s))
