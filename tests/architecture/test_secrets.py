"""A secret never prints: not in repr, not in a message, not inside settings."""

from __future__ import annotations

import logging
import re
import traceback
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from trunkline.config import Secret, Settings

PLANTED = "planted-5f0c1e"
# How secrets are shown, and no secret itself.
ABOUT = {"push_secrets"}
SECRETIVE = re.compile(r"(^|_)(key|keys|secret|secrets|token|tokens|password|credentials)$")


@pytest.mark.parametrize(
    "show",
    [repr, str, format, ascii, "{}".format, "%s".__mod__, "%r".__mod__, "{!r:>20}".format],
    ids=["repr", "str", "format", "ascii", "braces", "percent-s", "percent-r", "padded"],
)
@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: [s], lambda s: {"key": s}], ids=["bare", "list", "dict"]
)
def test_a_secret_does_not_print(show: Any, wrap: Any) -> None:
    shown = show(wrap(Secret(PLANTED)))
    assert PLANTED not in shown
    assert "***" in shown


def test_a_secret_can_be_read_on_purpose() -> None:
    assert Secret(PLANTED).reveal() == PLANTED


def test_a_secret_is_not_encoded() -> None:
    try:
        encoded = msgspec.json.encode({"key": Secret(PLANTED)})
    except TypeError:
        return
    assert PLANTED.encode() not in encoded


def test_a_secret_stays_out_of_logs_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(PLANTED)
    logging.getLogger("trunkline.test").warning("key=%s all=%r", secret, [secret])
    try:
        raise ValueError(secret)
    except ValueError as error:
        printed = "".join(traceback.format_exception(error))
    assert PLANTED not in caplog.text + printed


def test_settings_hold_secrets_as_secrets() -> None:
    hints = get_type_hints(Settings)
    named = {name: hint for name, hint in hints.items() if SECRETIVE.search(name) and name not in ABOUT}
    plain = [name for name, hint in named.items() if not _holds_secret(hint)]
    assert plain == [], "a setting with such a name is a Secret"


def test_settings_do_not_print_secrets() -> None:
    hints = {name: hint for name, hint in get_type_hints(Settings).items() if _holds_secret(hint)}
    assert hints, "no setting is a Secret: is this test looking at the right type?"
    settings = Settings(**{name: _plant(hint) for name, hint in hints.items()})
    for shown in (repr(settings), str(settings), f"{settings}"):
        assert PLANTED not in shown


def _holds_secret(hint: Any) -> bool:
    return hint is Secret or any(_holds_secret(inner) for inner in get_args(hint))


def _plant(hint: Any) -> Any:
    """A value of this type with the planted secret in it."""
    if hint is Secret:
        return Secret(PLANTED)
    origin = getattr(hint, "__origin__", None)
    if origin in {tuple, list, frozenset, set}:
        return origin([Secret(PLANTED)])
    return next(_plant(inner) for inner in get_args(hint) if _holds_secret(inner))
