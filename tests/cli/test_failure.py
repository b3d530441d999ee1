"""Errors as the contract tells them: codes, exit codes, both formats."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted
from trunkline import errors as e
from trunkline.cli.failure import EXITS, CommandFailure, failure_of, is_json_typed

Make = Callable[..., Scripted]


@pytest.mark.parametrize(
    ("error", "finding", "credentials", "code", "ended"),
    [
        (e.Misuse("x"), False, False, "A2ACLI_ERR_USAGE", 2),
        (e.RouteNotFound("x"), True, False, "A2ACLI_ERR_CARD_NOT_FOUND", 3),
        (e.Unreadable("x"), True, False, "A2ACLI_ERR_CARD_INVALID", 1),
        (e.Unreadable("x"), False, False, "A2ACLI_ERR_INTERNAL", 1),
        (e.Unreachable("x", reason="name"), True, False, "A2ACLI_ERR_UNREACHABLE", 3),
        (e.TimedOut("x", reason="connect"), False, False, "A2ACLI_ERR_UNREACHABLE", 3),
        (e.TimedOut("x", reason="total"), False, False, "A2ACLI_ERR_TIMEOUT", 5),
        (e.Unauthenticated("x"), False, False, "A2ACLI_ERR_CREDENTIALS_MISSING", 4),
        (e.Unauthenticated("x"), True, True, "A2ACLI_ERR_AUTH_FAILED", 4),
        (e.Forbidden("x"), False, True, "A2ACLI_ERR_AUTH_FAILED", 4),
        (e.TaskNotFound("x"), False, False, "TaskNotFoundError", 1),
        (e.ExtendedCardNotConfigured("x"), False, False, "ExtendedAgentCardNotConfiguredError", 1),
        (e.PeerError("x", code=-32006), False, False, "InvalidAgentResponseError", 1),
        (e.PeerError("x", code=-32008), False, False, "ExtensionSupportRequiredError", 1),
        (e.PeerError("x", code=-32099), False, False, "TRUNKLINE_PEER_ERROR", 1),
        (e.TooManyRequests("x"), False, False, "TRUNKLINE_TOO_MANY_REQUESTS", 1),
        (e.Uncertain("x", reason="sent", message_id="m"), False, False, "TRUNKLINE_UNCERTAIN", 1),
        (ZeroDivisionError("x"), False, False, "A2ACLI_ERR_INTERNAL", 1),
    ],
)
def test_codes(error: Exception, finding: bool, credentials: bool, code: str, ended: int) -> None:
    failure = failure_of(error, finding_card=finding, has_credentials=credentials)
    assert (failure.code, failure.exit) == (code, ended)


def test_no_code_of_the_contract_is_invented() -> None:
    known = {"USAGE", "CARD_NOT_FOUND", "CARD_INVALID", "UNREACHABLE", "CREDENTIALS_MISSING", "AUTH_FAILED"}
    of_contract = {f"A2ACLI_ERR_{name}" for name in known | {"TIMEOUT", "INTERNAL"}}
    assert of_contract == EXITS.keys() - {"TRUNKLINE_STORE"}


@pytest.mark.parametrize(
    "error", [e.TaskNotFound, e.TaskNotCancelable, e.UnsupportedOperation, e.InvalidParams]
)
def test_names_of_the_protocol_stay(error: type[e.Refused]) -> None:
    assert failure_of(error("x"), finding_card=False, has_credentials=False).code == f"{error.__name__}Error"


def test_an_error_is_on_standard_error_in_text_and_in_place_of_the_result_in_json(
    trunkline: Run, demo_url: str
) -> None:
    code, out, err = trunkline("get", demo_url, "none")
    assert (code, out) == (1, "")
    assert err.splitlines()[1] == "Code: TaskNotFoundError"
    assert err.splitlines()[2] == f"Hint: trunkline task list -a {demo_url}"
    code, out, err = trunkline("get", demo_url, "none", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, err) == (1, "")
    assert error.keys() == {"code", "message", "hint", "a2aCode"}
    assert (error["code"], error["a2aCode"]) == ("TaskNotFoundError", -32001)


@pytest.mark.parametrize(
    "words", [("send", "--bogus"), ("task", "nothing"), ("nothing",), ("push", "get", "--id", "x")]
)
def test_usage_is_told_the_same_way_before_any_flag_is_read(trunkline: Run, words: tuple[str, ...]) -> None:
    code, out, _ = trunkline(*words, "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert error["hint"].startswith("trunkline help")
    code, out, err = trunkline(*words)
    assert (code, out) == (2, "")
    assert "Code: A2ACLI_ERR_USAGE" in err


def test_the_environment_can_ask_for_json_errors_too(trunkline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2ACLI_OUTPUT", "json")
    assert json.loads(trunkline("send", "--bogus")[1])["error"]["code"] == "A2ACLI_ERR_USAGE"
    assert json.loads(trunkline("send", "hello")[1])["error"]["code"] == "A2ACLI_ERR_USAGE"


@pytest.mark.parametrize(
    ("typed", "json_wanted"),
    [
        (["-o", "json"], True),
        (["-ojson"], True),
        (["--output=json"], True),
        (["-o", "text"], False),
        ([], False),
    ],
)
def test_whether_json_is_wanted(typed: list[str], json_wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A2ACLI_OUTPUT", raising=False)
    assert is_json_typed(typed) is json_wanted


def test_what_an_agent_says_in_an_error_controls_no_terminal(trunkline: Run, scripted: Make) -> None:
    peer = scripted()

    def refuse(_: object) -> None:
        raise RuntimeError((-32004, "\x1b[2Jgone\nState: forged"))

    peer.methods["CancelTask"] = refuse
    _, _, err = trunkline("cancel", peer.url, "t1")
    assert "\x1b" not in err
    assert "gone State: forged" in err.splitlines()[0]


def test_an_agent_that_is_not_running_is_told_so(trunkline: Run) -> None:
    code, _, err = trunkline("send", "http://127.0.0.1:9", "hi")
    assert code == 3
    assert "trunkline serve" in err


def test_exit_codes_are_those_of_the_contract() -> None:
    assert {CommandFailure(code, "").exit for code in EXITS} == {1, 2, 3, 4, 5}
    assert CommandFailure("SomethingError", "").exit == 1
