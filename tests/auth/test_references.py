from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.auth.references import KeyReference, Secrets
from trunkline.errors import Misuse


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "a2a").write_text(" k-file \n")
    (folder / "empty").write_text(" \n")
    (tmp_path / "outside").write_text("k-outside")
    return Secrets({"KEY": "k-env", "BLANK": " "}, folder)


def test_references_are_read_from_the_environment_and_from_files(secrets: Secrets) -> None:
    assert secrets.text("env:KEY") == "k-env"
    assert secrets.text("file:a2a") == "k-file"
    found = secrets.key(KeyReference(ref="file:a2a"))
    assert found is not None
    assert found.reveal() == "k-file"
    assert "k-file" not in repr(found)


@pytest.mark.parametrize(
    "ref",
    [
        "env:NONE",
        "env:BLANK",
        "env:",
        "file:none",
        "file:empty",
        "file:../outside",
        "file:/etc/passwd",
        "k-plain",
        "",
    ],
)
def test_what_leads_nowhere_is_refused_and_gives_no_key(secrets: Secrets, ref: str) -> None:
    with pytest.raises(Misuse):
        secrets.text(ref)
    assert secrets.key(KeyReference(ref=ref)) is None


def test_files_need_a_folder() -> None:
    with pytest.raises(Misuse, match="env:NAME"):
        Secrets({}).text("file:a2a")
