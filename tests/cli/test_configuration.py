"""Which value of an option applies: flag, environment, nearest file, global file, default."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.cli.configuration import duration, load_configuration
from trunkline.cli.options import OPTIONS
from trunkline.config import Secret
from trunkline.errors import Misuse


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.config/a2a-cli").mkdir(parents=True)
    (tmp_path / "work/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work/deep")
    for option in OPTIONS.values():
        if option.variable:
            monkeypatch.delenv(option.variable, raising=False)
    return tmp_path


def test_each_source_beats_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        load_configuration({}).text("agent-card"),
        load_configuration({}).values["agent-card"].source,
    ) == (
        "",
        "default",
    )
    above = folder / "home/.config/a2a-cli/.env"
    above.write_text("A2ACLI_AGENT_CARD=global\nA2ACLI_TIMEOUT=7s\nOTHER=1\n")
    assert (
        load_configuration({}).text("agent-card"),
        load_configuration({}).values["agent-card"].source,
    ) == (
        "global",
        str(above),
    )
    near = folder / "work/.env"
    near.write_text("A2ACLI_AGENT_CARD=near\n")
    assert (
        load_configuration({}).text("agent-card"),
        load_configuration({}).values["agent-card"].source,
    ) == (
        "near",
        str(near),
    )
    told = folder / "told.env"
    told.write_text("A2ACLI_AGENT_CARD=told\n")
    assert load_configuration({"config": str(told)}).text("agent-card") == "told"
    monkeypatch.setenv("A2ACLI_AGENT_CARD", "environment")
    assert load_configuration({"config": str(told)}).text("agent-card") == "environment"
    assert load_configuration({"agent_card": "flag"}).values["agent-card"].source == "flag"
    # What the nearer file does not say, the global one does.
    assert load_configuration({}).seconds("timeout") == 7.0
    assert load_configuration({}).unknown == ()


def test_the_nearest_file_is_the_only_local_one(folder: Path) -> None:
    (folder / "work/.env").write_text("A2ACLI_API_KEY=outer\n")
    (folder / "work/deep/.env").write_text("A2ACLI_OUTPUT=json\n")
    choices = load_configuration({})
    assert choices.as_json and choices.secret("api-key") is None


def test_a_file_has_quotes_comments_and_exports(folder: Path) -> None:
    (folder / "work/deep/.env").write_text(
        "# mine\n\nexport A2ACLI_SKILL='a #b'\nA2ACLI_CONTEXT_ID=plain # rest\n"
        'A2ACLI_TASK_ID="x\\ty\\"z"\nA2ACLI_SVC_PARAM=["a:1", "b:2"]\nA2ACLI_ASYNC=yes\nA2ACLI_METADATA={"a":1}\n'
    )
    choices = load_configuration({})
    assert choices.text("skill") == "a #b"
    assert choices.text("context-id") == "plain"
    assert choices.text("task-id") == 'x\ty"z'
    assert choices.items("svc-param") == ("a:1", "b:2")
    assert choices.flag("async")
    assert choices.members("metadata") == {"a": 1}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("A2ACLI_TIMEOUT=soon", "A2ACLI_TIMEOUT in"),
        ("A2ACLI_ASYNC=perhaps", "true or false"),
        ("A2ACLI_HISTORY=-1", "whole number"),
        ("A2ACLI_OUTPUT=xml", "choose text or json"),
        ("A2ACLI_SVC_PARAM=[1]", "JSON list"),
        ("A2ACLI_METADATA=7", "JSON object"),
        ("what is this", ":1: a line is NAME=value"),
    ],
)
def test_a_wrong_value_names_its_place(folder: Path, line: str, says: str) -> None:
    (folder / "work/deep/.env").write_text(line)
    with pytest.raises(Misuse, match=says.replace("(", "\\(")):
        load_configuration({})


def test_a_file_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(Misuse, match="no such file"):
        load_configuration({"config": str(folder / "none")})


def test_names_that_set_nothing_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2ACLI_STREAM", "1")
    monkeypatch.setenv("A2ACLI_TIMOUT", "1")
    assert load_configuration({}).unknown == ("A2ACLI_STREAM", "A2ACLI_TIMOUT")
    assert not load_configuration({}).flag("stream")


def test_secrets_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2ACLI_BEARER", "hush-hush")
    value = load_configuration({}).values["bearer"].value
    assert isinstance(value, Secret) and value.reveal() == "hush-hush"


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2), ("500ms", 0.5), ("1m30s", 90), ("1.5h", 5400), ("1d", 86400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "0", "1 s", "5x", "1e9d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        duration(text)


def test_a_file_whose_secret_others_can_read_is_known(folder: Path) -> None:
    file = folder / "work/.env"
    file.write_text("A2ACLI_API_KEY=hush\n")
    file.chmod(0o644)
    assert load_configuration({}).exposed == (str(file),)
    file.chmod(0o600)
    assert load_configuration({}).exposed == ()
    file.write_text("A2ACLI_TIMEOUT=1s\n")
    file.chmod(0o644)
    assert load_configuration({}).exposed == ()
