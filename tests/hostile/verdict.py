"""What a right answer to a hostile request is: no 5xx, no silence, and a refusal says what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from tests.hostile.shapes import Case
from tests.hostile.sockets import Answer

# JSON-RPC's own and A2A's; -32603, our own fault, is not among them.
CODES = {-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004, -32005, -32007, -32008, -32009}
FINE = {200, 201, 202, 204}
REFUSED = {400, 404, 405, 409, 413, 415}
# What strange credentials and strange pages get, and who names the version of a card it has.
AT_THE_DOOR = frozenset({304, 401, 403, 431})
# What 0.3 says of push notifications and of other things that an agent does not do.
NOT_DONE = ("PushNotificationNotSupportedError", "UnsupportedOperationError")


def wrong(case: Case, answer: Answer, also: frozenset[int] = frozenset()) -> str:
    """What is not right about an answer; nothing if all is."""
    if answer.status == 0:
        return "no answer"
    if answer.status >= 500 and not any(name.encode() in answer.body for name in NOT_DONE):
        return f"{answer.status} {answer.body[:300]!r}"
    if answer.status in also:
        return ""
    if case.rpc:
        return _wrong_rpc(answer)
    if answer.status in FINE or answer.status == 501:
        return ""
    if answer.status not in REFUSED:
        return f"status {answer.status}"
    if case.raw.startswith(b"HEAD ") or (answer.status == 405 and answer.header(b"allow")):
        return ""
    if answer.header(b"content-type") not in (b"application/json", b"application/a2a+json"):
        return f"{answer}"
    said = json.loads(answer.body)
    return "" if said.get("message") or said.get("error", {}).get("message") else f"no message in {said}"


def _wrong_rpc(answer: Answer) -> str:
    if answer.status == 204 and not answer.body:
        return ""
    if answer.status != 200:
        return f"status {answer.status}"
    if answer.header(b"content-type") == b"text/event-stream":
        return ""
    said = json.loads(answer.body)
    if "result" in said:
        return ""
    return "" if said["error"]["code"] in CODES and said["error"]["message"] else f"{said}"


def all_wrong(
    cases: Sequence[Case], answers: Sequence[Answer], also: frozenset[int] = frozenset()
) -> list[str]:
    """What is not right, each with the name of its case."""
    print(len(cases), "cases:", sorted(Counter(answer.status for answer in answers).items()))
    return [
        f"{case.name}: {said}"
        for case, answer in zip(cases, answers, strict=True)
        if (said := wrong(case, answer, also))
    ]
