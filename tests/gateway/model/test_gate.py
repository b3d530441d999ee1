"""What the reply of an advisor means."""

from __future__ import annotations

import pytest

from trunkline.gateway.model.gate import GateVerdict, gate_question, told_in_gate, verdict_of


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("CONTINUE", GateVerdict("continue")),
        ("**Redirect:** say more\nplease", GateVerdict("redirect", "say more please")),
        ("halt.\nIt is a secret.", GateVerdict("halt", "It is a secret.")),
        ("HALT " + "x" * 999, GateVerdict("halt", "x" * 500)),
        ("HALT\tIt is a secret.", GateVerdict("halt", "It is a secret.")),
        ("[HALT]; no", GateVerdict("halt", "no")),
        ("`HALT`", GateVerdict("halt")),
        ("REDIRECT", GateVerdict("redirect", "the advisor wants another answer.")),
        ("", GateVerdict("halt", "the advisor gave no verdict")),
        ("I would continue", GateVerdict("halt", "the advisor gave no verdict")),
    ],
)
def test_a_reply_begins_with_its_verdict(reply: str, verdict: GateVerdict) -> None:
    assert verdict_of(reply, malformed_halts=True) == verdict


def test_a_reply_without_one_may_let_pass() -> None:
    assert verdict_of("I would continue", malformed_halts=False) == GateVerdict("continue")
    assert gate_question("a", "b") == "What was asked for:\na\n\nThe answer:\nb"


def test_an_advisor_is_told_of_what_goes_out_beside_the_answer() -> None:
    beside = [told_in_gate({"name": "a.txt", "file": b"words"}), told_in_gate({"name": "b", "file": b"\xff"})]
    beside.append(told_in_gate({"name": "tool_call", "data": {"tool": "list", "ok": True}}))
    assert gate_question("a", "b", beside).endswith(
        'Beside it:\nFile a.txt:\nwords\nFile b: 1 bytes that are no text\n{"tool":"list","ok":true}'
    )
