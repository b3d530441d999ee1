"""An agent as a judge: it reads an output and gives it a score. Whatever goes wrong is a score of 0."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Struct

from trunkline.bridge.outcome import ToolClient
from trunkline.client.result import Result
from trunkline.errors import TrunklineError
from trunkline.wire.spellings import plain_state

log = logging.getLogger("trunkline.bridge")
# As much of a reply as is looked at, and as many beginnings of an object.
_LONGEST = 200_000
_TRIES = 500
_ASKED = (
    "Judge the output below against the criteria. Answer with one JSON object and nothing else: "
    '{"score": a number from 0 to 1, "passed": true or false, "reasoning": "why"}.'
)


class Judgement(Struct, frozen=True):
    """What a judge says of an output. `error` is why there is no score, which counts as 0."""

    score: float
    passed: bool
    reasoning: str = ""
    error: str = ""


async def judge(
    client: ToolClient,
    output: str,
    *,
    criteria: str = "",
    messages: Sequence[Mapping[str, Any]] = (),
    extra: Mapping[str, Any] | None = None,
    min_score: float | None = None,
    skill: str = "",
) -> Judgement:
    """Have an agent judge an output, with the conversation that led to it if given.

    It has passed with `min_score` or more; without one as the judge says, or with a score of 0.5. How long it
    may take is the client's `timeout_s`. Nothing an agent does is raised.
    """
    given = {"criteria": criteria, "messages": [dict(one) for one in messages], "extra": extra}
    context = {"current_output": output, **{name: value for name, value in given.items() if value}}
    text = f"{_ASKED}\n\n{msgspec.json.encode(context).decode()}"
    try:
        result = await client.send([text], skill=skill)
    except TrunklineError as error:
        return _unjudged(f"the judge was not heard: {error}")
    if not result.ok:
        state = plain_state(result.state)
        return _unjudged(f"the judge's task is {state}: {result.text or 'it gives no reason'}")
    return read_verdict(result, min_score)


def read_verdict(result: Result, min_score: float | None = None) -> Judgement:
    """The verdict in an answer: a data part, or a JSON object anywhere in the text. The last one counts."""
    objects = [one for one in result.all_data if _is_verdict(one)] or [
        one for one in _objects(result.text) if _is_verdict(one)
    ]
    if not objects:
        return _unjudged(f"no score in the judge's reply: {result.text[:200]!r}")
    said = cast("dict[str, Any]", objects[-1])
    passed = said.get("passed")
    score = _score(said.get("score", passed))
    if score is None:
        return _unjudged(f"a score is a number from 0 to 1, not {said.get('score')!r}")
    if min_score is not None:
        passed = score >= min_score
    elif not isinstance(passed, bool):
        passed = score >= 0.5
    reasoning = said.get("reasoning", said.get("reason", said.get("explanation", "")))
    return Judgement(score, passed, reasoning if isinstance(reasoning, str) else "")


def _unjudged(error: str) -> Judgement:
    log.warning("judge.failed error=%r", error)
    return Judgement(0.0, False, error=error)


def _is_verdict(value: object) -> bool:
    return isinstance(value, dict) and bool({"score", "passed"} & cast("dict[str, object]", value).keys())


def _score(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    try:
        score = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return None
    return score if 0 <= score <= 1 else None


def _objects(text: str) -> list[object]:
    """The JSON objects in a text, whatever stands around them."""
    # The one decoder that stops where the object ends.
    decoder = json.JSONDecoder(parse_constant=_no_number)
    found: list[object] = []
    text, at = text[-_LONGEST:], 0
    for _ in range(_TRIES):
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, at = decoder.raw_decode(text, at)
            found.append(value)
        except (ValueError, RecursionError):
            at += 1
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
