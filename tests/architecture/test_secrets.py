"""A secret never prints: not in repr, not in a message, not inside settings."""

from __future__ import annotations

import ast
import logging
import re
import traceback
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from tests.architecture.source import modules
from trunkline.config import Secret, Settings

PLANTED = "planted-5f0c1e"
# How secrets are shown, and no secret itself.
ABOUT = {"push_secrets"}
COMPARED = re.compile(
    r"(^|_)(tokens?|secrets?|digests?|signatures?|credentials?|passwords?|proofs?|mac|sealed|reveal)$"
)
# No secret: a cursor whose spelling is checked, the digest of a message, a file of the operator's own.
NO_SECRETS = {
    "log/ids.py": "base64.urlsafe_b64encode(raw).decode().rstrip('=') != token",
    "store/postgres/append.py": "digest != key.over",
    "server/operations.py": "earlier.digest != dedup.digest",
    "fleet/routing/dispatcher.py": "earlier.digest != dedup.digest",
    "cli/admin_endpoint.py": "found.token == token.reveal()",
}
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


def test_secrets_are_compared_in_constant_time() -> None:
    """Row 62: with `hmac.compare_digest`; `==` ends at the first difference."""
    found = [
        (module.where, ast.unparse(node))
        for module in modules()
        for node in module.walk(ast.AST)
        if isinstance(node, ast.Compare) and _compares_secrets(node)
    ]
    assert dict(found) == NO_SECRETS and len(found) == len(NO_SECRETS), found
    assert {module.room for module in modules()} >= {"auth", "net", "webhook", "server", "run"}


@pytest.mark.parametrize("code", ["a.token == given", "x in self._tokens", "digest != found.digest"])
def test_the_check_sees_a_plain_comparison(code: str) -> None:
    assert _compares_secrets(ast.parse(code, mode="eval").body)


def _compares_secrets(node: Any) -> bool:
    sides = [node.left, *node.comparators]
    equality = any(isinstance(how, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for how in node.ops)
    if not equality or any(isinstance(side, ast.Constant) for side in sides):
        return False
    inside = [inner for side in sides for inner in ast.walk(side)]
    names = [getattr(inner, "attr", getattr(inner, "id", "")) for inner in inside]
    return any(COMPARED.search(name) for name in names)


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
