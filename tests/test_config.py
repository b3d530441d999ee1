"""Settings: where they come from, which wins, what is refused, and what never prints."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trunkline.config import (
    Secret,
    Settings,
    assignment,
    collect,
    explain,
    find_unknown_variables,
    load,
)
from trunkline.errors import Misuse


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No settings of the machine, and a folder without a file."""
    for field in Settings.__struct_fields__:
        monkeypatch.delenv(f"TRUNKLINE_{field.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_are_safe() -> None:
    settings = load()
    assert settings == Settings()
    assert (settings.host, settings.open, settings.dev, settings.trust_forwarded) == (
        "127.0.0.1",
        False,
        False,
        False,
    )
    assert settings.body_limit == 1 << 20


def test_each_layer_wins_over_the_one_before(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    author = {"port": 1, "wait_limit": 1, "reply": "receipt", "keep_alive": 1}
    assert load(author).port == 1
    (clean / "trunkline.toml").write_text("port = 2\nwait_limit = 2.0\nkeep_alive = 2\n")
    assert load(author).port == 2
    monkeypatch.setenv("TRUNKLINE_PORT", "3")
    monkeypatch.setenv("TRUNKLINE_KEEP_ALIVE", "3")
    assert load(author).port == 3
    settings = load(author, {"port": 4})
    assert (settings.reply, settings.wait_limit, settings.keep_alive, settings.port) == (
        "receipt",
        2.0,
        3.0,
        4,
    )


def test_a_flag_that_was_not_given_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_PORT", "3")
    assert load({}, {"port": None}).port == 3


def test_lists_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_KEYS", " first-key , second-key ,, ")
    monkeypatch.setenv("TRUNKLINE_ALLOWED_HOSTS", "a.example,b.example")
    settings = load()
    assert [key.reveal() for key in settings.keys] == ["first-key", "second-key"]
    assert settings.allowed_hosts == ("a.example", "b.example")


def test_other_variables_are_none_of_our_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_NOTHING", "x")
    monkeypatch.setenv("TRUNKLINE_PORT", "8000")
    monkeypatch.setenv("PORT", "5")
    assert load() == Settings()
    # But who serves is told, for it may be a setting that somebody has mistyped.
    assert "TRUNKLINE_NOTHING" in find_unknown_variables() and not {"TRUNKLINE_PORT", "PORT"} & set(
        find_unknown_variables()
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port=5", ("port", "5")),
        (" body-limit =9", ("body_limit", "9")),
        ("keys=a,b", ("keys", ("a", "b"))),
        ("public_url=http://x/?a=b", ("public_url", "http://x/?a=b")),
        ("store=", ("store", "")),
    ],
)
def test_an_assignment_is_a_setting(text: str, expected: tuple[str, Any]) -> None:
    assert assignment(text) == expected


def test_an_assignment_without_equals_is_refused() -> None:
    with pytest.raises(Misuse, match="name=value"):
        assignment("port")


BAD: list[tuple[str, Any]] = [
    ("port", "x"), ("port", -1), ("port", 65536), ("port", 1.5), ("wait_limit", "nan"), ("wait_limit", "inf"), ("wait_limit", -1), ("keep_alive", 0), ("stall_limit", 0),
    ("write_limit", "soon"), ("body_limit", 0), ("body_limit", -5), ("body_limit", 2**40), ("body_limit", (64 << 20) + 1), ("body_timeout", 0), ("body_timeout", "-inf"), ("cancel_limit", -0.1), ("drain_limit", "x"), ("takeover_limit", 0),
    ("coalesce_characters", -1), ("coalesce_milliseconds", 1.5), ("log_level", "loud"), ("reply", "never"), ("open", "perhaps"), ("dev", 7), ("host", 5), ("host", "a\nb"),
    ("store", "sqlite:///a\0b"), ("keys", "not-a-list"), ("keys", [5]), ("allowed_hosts", {"a": 1}), ("public_url", "agent.example"), ("public_url", "ftp://agent.example"),
    ("public_url", "https://"), ("public_url", "http://[::1"), ("public_url", "https://me:pw@agent.example"), ("public_url", "https://agent.example?x"), ("public_url", "https://a b"),
    ("public_url", "https://agent.example:99999"), ("public_url", "https://agent.example\r\nX: y"), ("workers", 0), ("workers", "x"), ("workers", 1.5), ("nothing", 1), ("trust_forwarded", "x"), ("log_format", "xml"), ("metrics", "perhaps"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(Misuse, match=name):
        load({}, {name: value})


def test_a_file_that_is_not_toml_is_refused_by_name(clean: Path) -> None:
    (clean / "trunkline.toml").write_text("port = = 5")
    with pytest.raises(Misuse, match=r"trunkline\.toml"):
        load()


def test_a_wrong_key_is_not_repeated() -> None:
    with pytest.raises(Misuse) as caught:
        load({}, {"keys": ["planted-key", {"planted": 1}]})
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://agent.example",
        "https://agent.example:8443/some/path",
        "http://[::1]:80",
        "https://xn--bcher-kva.example/",
    ],
)
def test_a_public_url_is_an_address(url: str) -> None:
    assert load({}, {"public_url": url}).public_url == url


@pytest.mark.parametrize(
    "show", [repr, str, format, ascii, lambda secret: f"{secret!r:>9}", lambda secret: f"{[secret]}"]
)
def test_a_secret_does_not_print(show: Any) -> None:
    assert "planted" not in show(Secret("planted"))
    assert "***" in show(Secret("planted"))


@pytest.mark.parametrize(
    "leave", [pickle.dumps, copy.copy, copy.deepcopy, msgspec.json.encode, msgspec.to_builtins]
)
def test_a_secret_does_not_leave_the_process(leave: Any) -> None:
    with pytest.raises(TypeError):
        leave(Secret("planted"))
    with pytest.raises(TypeError):
        leave([Secret("planted")]) if leave is not copy.copy else leave(Secret("planted"))


def test_settings_do_not_print_keys() -> None:
    assert "planted" not in repr(Settings(keys=(Secret("planted"),)))


@pytest.mark.parametrize(
    ("given", "kept_s"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("7d", 604_800), (0, 0), (2.5, 2.5)],
)
def test_retention_is_an_age(given: object, kept_s: float) -> None:
    assert load({"retention": given}).kept_s == kept_s


@pytest.mark.parametrize(
    "given", ["", "d", "-1", "-1d", "7w", "1e3", "nan", "inf", "9999999d", -1, float("nan")]
)
def test_an_invalid_duration_is_refused(given: object) -> None:
    with pytest.raises(Misuse, match="is not a duration; give seconds, or a number with s, m, h or d"):
        load({"retention": given})


@pytest.mark.parametrize("given", [0, "0", "49h", "soon", ""])
def test_a_window_of_health_lies_in_what_is_kept(given: object) -> None:
    assert load({"card_refresh": "30s"}).card_refresh_s == 30
    with pytest.raises(Misuse, match="card_refresh"):
        load({"card_refresh": 0.5})
    assert load({"health_window": "48h"}).health_window_s == 48 * 3600
    with pytest.raises(Misuse, match="health_window"):
        load({"health_window": given})


def test_retention_depends_on_the_store_unless_told() -> None:
    assert load({"store": "memory:"}).kept_s == 3600
    assert load({}).kept_s == 7 * 86_400


def test_a_misspelt_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        Misuse, match=r"^unknown setting 'publc_url' \(from agent\); did you mean 'public_url'\?$"
    ):
        load({"publc_url": "https://agent.example"})
    with pytest.raises(Misuse) as caught:
        load({"qqqq": ""})
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("port", "abc", "expected an integer, not 'abc'"),
        ("rate_limit", "-5", "expected a number >= 0.0, not '-5'"),
        ("log_level", "loud", "invalid value 'loud'; choose debug, info, warning, error"),
    ],
)
def test_an_invalid_value_is_reported_with_its_source(
    clean: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    (clean / "trunkline.toml").write_text(f'{name} = "{value}"\n')
    with pytest.raises(Misuse) as from_file:
        load()
    assert str(from_file.value) == f"setting {name!r} (from trunkline.toml): {text}"
    (clean / "trunkline.toml").unlink()
    monkeypatch.setenv(f"TRUNKLINE_{name.upper()}", value)
    with pytest.raises(Misuse) as from_variable:
        load()
    assert str(from_variable.value) == f"setting {name!r} (from TRUNKLINE_{name.upper()}): {text}"
    assert from_variable.value.hint == f"unset TRUNKLINE_{name.upper()}"


def test_a_misspelt_setting_in_the_file_names_the_file(clean: Path) -> None:
    (clean / "trunkline.toml").write_text("retnetion = 5\n")
    with pytest.raises(
        Misuse, match=r"unknown setting 'retnetion' \(from trunkline.toml\); did you mean 'retention'"
    ):
        load()


def test_a_misspelt_variable_is_listed_with_the_closest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_RETNETION", "7d")
    assert find_unknown_variables()["TRUNKLINE_RETNETION"] == "TRUNKLINE_RETENTION"


def test_explain_returns_every_setting_with_its_source(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clean / "trunkline.toml").write_text("port = 2\n")
    monkeypatch.setenv("TRUNKLINE_RETENTION", "7d")
    found = explain(collect({"reply": "receipt"}, {"host": "127.0.0.2"}))
    assert found.keys() == set(Settings.__struct_fields__)
    assert {name: one.source for name, one in found.items() if one.source != "default"} == {
        "port": "trunkline.toml",
        "retention": "TRUNKLINE_RETENTION",
        "reply": "agent",
        "host": "command line",
    }
    assert (found["port"].value, found["workers"].value) == (2, 1)
