"""What the reply of an advisor means."""

from __future__ import annotations

import pytest

from trunkline.gateway.model.gate import GateVerdict, gate_question, verdict_of


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("CONTINUE", GateVerdict("continue")),
        ("**Redirect:** say more\nplease", GateVerdict("redirect", "say more please")),
        ("halt.\nIt is a secret.", GateVerdict("halt", "It is a secret.")),
        ("HALT " + "x" * 999, GateVerdict("halt", "x" * 500)),
        ("", GateVerdict("halt", "the advisor gave no verdict")),
        ("I would continue", GateVerdict("halt", "the advisor gave no verdict")),
    ],
)
def test_a_reply_begins_with_its_verdict(reply: str, verdict: GateVerdict) -> None:
    assert verdict_of(reply, malformed_halts=True) == verdict


def test_a_reply_without_one_may_let_pass() -> None:
    assert verdict_of("I would continue", malformed_halts=False) == GateVerdict("continue")
    assert gate_question("a", "b") == "What was asked for:\na\n\nThe answer:\nb"
