"""Checks of what an agent does with too much: it must refuse and live."""

from __future__ import annotations

from trunkline.doctor.binding import ProbeAnswer, ProbeBinding
from trunkline.doctor.finding import ERROR, RPC, WARNING, CheckVerdict, failed, judge, of_way
from trunkline.doctor.fixtures import new_id

_HUGE = 4 * 1024 * 1024
_DEEP = 20_000


@of_way(
    "body-limit",
    WARNING,
    "§13.4, SEC-07",
    means="One large request breaks the agent or hangs.",
    fix="Limit the size of bodies and answer more with HTTP 413.",
    bindings=RPC,
    first=True,
)
async def body_limit(way: ProbeBinding) -> CheckVerdict:
    """A body of 4 MiB for a method that does not exist is refused, and the agent lives."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"trunkline/doctor","params":{"x":"' + b"x" * _HUGE + b'"}}'
    return await _survived(way, await way.post(body), "a body of 4 MiB")


@of_way(
    "deep-nesting",
    ERROR,
    "§3.3.2, SEC-06",
    means="One small request breaks the agent.",
    fix="Limit how deep JSON may be nested; answer more with -32700 or -32600.",
    bindings=RPC,
    first=True,
)
async def deep_nesting(way: ProbeBinding) -> CheckVerdict:
    """JSON nested twenty thousand deep is refused, and the agent lives."""
    inner = b"[" * _DEEP + b"]" * _DEEP
    body = b'{"jsonrpc":"2.0","id":1,"method":"trunkline/doctor","params":' + inner + b"}"
    return await _survived(way, await way.post(body), "JSON nested 20000 deep")


async def _survived(way: ProbeBinding, answer: ProbeAnswer, what: str) -> CheckVerdict:
    after = await way.call("get", {"id": new_id()})
    if not after.exchange.status:
        return failed(f"after {what}: {after.exchange.trouble}", answer.exchange, after.exchange)
    seen = answer.exchange
    # Whoever has read enough may hang up: that is a refusal too.
    refused = seen.trouble.startswith("the connection failed") or 0 < seen.status < 500
    return judge(refused, f"{what} gives {seen.told()}", seen)
