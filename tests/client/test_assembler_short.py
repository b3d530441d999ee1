"""The short way that most frames go tells and keeps the same as the long one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.client.agents import COMPLETED, WORKING, chunk, status, task
from tests.client.test_assembler import frame, text
from trunkline.client.assembler import Assembler, Update
from trunkline.client.size_limit import LIMIT
from trunkline.client.transport import Frame


def named(name: str, **part: Any) -> dict[str, Any]:
    told = chunk("named ")
    told["artifactUpdate"]["artifact"] |= {"name": name, "parts": [{"text": "n ", **part}]}
    return told


KINDS: list[Any] = [
    *[chunk("more ")] * 8,
    chunk("first ", append=False),
    chunk("other ", artifact_id="a1"),
    named("poem"),
    named("poem", metadata={"a": 1}),
    named("", filename="f"),
    status(),
    status(COMPLETED),
    task(WORKING, "first more "),
]
# Mostly the next id; else one before, one that leaves a gap, or something that is no number.
STEPS = st.one_of(*[st.just("1")] * 4, st.sampled_from(["0", "-1", "2", "", "x", "01"]))


def either_way(gather: Assembler, one: Frame) -> tuple[Update, ...]:
    found = gather.more(one)
    return gather.take(one) if found is None else (found,)


def ids(steps: list[str]) -> list[str]:
    place, found = 0, list[str]()
    for step in steps:
        if step.lstrip("-").isdigit():
            place += int(step)
        found.append(f"{step[:1]}{place}" if step in ("x", "01") else str(place) if step else "")
    return found


def known(gather: Assembler) -> list[Any]:
    flags = [
        gather.doubtful,
        gather.damaged,
        gather.last_id,
        gather.task_id,
        gather.size.total > LIMIT,
        gather.rests,
    ]
    return [gather.result(), *flags]


@given(st.lists(st.tuples(st.sampled_from(KINDS), STEPS, st.booleans()), max_size=40))
def test_both_ways_tell_and_keep_the_same(frames: list[tuple[Any, str, bool]]) -> None:
    long, short = Assembler(), Assembler()
    for told, given_id, new_connection in zip(
        [one[0] for one in frames], ids([one[1] for one in frames]), [one[2] for one in frames], strict=True
    ):
        one = frame((given_id, told))
        if new_connection:
            short.pause()
        assert either_way(short, one) == long.take(one)
        assert known(short) == known(long)


def test_the_short_way_is_gone_after_the_second_piece() -> None:
    gather = Assembler()
    frames = [frame((place, chunk(str(place), append=place > 1))) for place in range(1, 8)]
    ways = [gather.more(one) is not None or not gather.take(one) for one in frames]
    assert ways == [False, False, True, True, True, True, True]
    assert text(gather) == "1234567"


def test_after_a_pause_the_long_way_comes_first() -> None:
    gather = Assembler()
    for place in range(1, 5):
        either_way(gather, frame((place, chunk("x", append=place > 1))))
    gather.pause()
    assert gather.more(frame((5, chunk("x")))) is None


def test_what_is_too_much_is_not_taken() -> None:
    gather = Assembler()
    gather.take(frame((1, chunk("x", append=False))))
    gather.take(frame((2, chunk("x"))))
    place = 2
    # A text of a megabyte, again and again.
    large = chunk("x" * (1 << 20))
    while gather.size.total <= LIMIT:
        place += 1
        assert place < 200
        assert gather.more(frame((place, large))) is not None
    assert gather.more(frame((place + 1, large))) is None
