"""Sealed texts: who can open them, and where the key comes from."""

from __future__ import annotations

import base64
import os
import stat
import threading
from pathlib import Path

import pytest

from trunkline.auth.vault import Vault, can_seal, find_key
from trunkline.config import Secret, Settings
from trunkline.errors import Misuse

KEY = bytes(range(32))


def file_store(path: Path, **more: Secret) -> Settings:
    return Settings(store=f"sqlite:///{path}", **more)


def test_what_is_sealed_is_opened_again() -> None:
    vault = Vault(KEY)
    sealed = vault.seal("a secret \u2603", "task/1")
    assert Vault(KEY).open(sealed, "task/1") == "a secret \u2603"
    assert b"a secret" not in base64.b64decode(sealed)
    assert vault.seal("a secret \u2603", "task/1") != sealed


@pytest.mark.parametrize("about", ["task/2", "", "task/1 "])
def test_it_cannot_be_opened_about_something_else(about: str) -> None:
    sealed = Vault(KEY).seal("text", "task/1")
    with pytest.raises(Misuse, match="cannot be opened"):
        Vault(KEY).open(sealed, about)


def test_another_key_opens_nothing_and_says_why() -> None:
    sealed = Vault(KEY).seal("text", "task/1")
    with pytest.raises(Misuse, match=r"task/1 cannot be opened: it needs the secret_key") as caught:
        Vault(KEY[::-1]).open(sealed, "task/1")
    assert "text" not in str(caught.value)


@pytest.mark.parametrize("damage", ["", "x", "AAAA", "!!!!", "schl\u00fcssel"])
def test_what_is_no_sealed_text(damage: str) -> None:
    with pytest.raises(Misuse, match="cannot be opened"):
        Vault(KEY).open(damage, "task/1")


def test_every_altered_byte_is_seen() -> None:
    raw = bytearray(base64.b64decode(Vault(KEY).seal("text", "task/1")))
    for place in range(len(raw)):
        raw[place] ^= 1
        with pytest.raises(Misuse):
            Vault(KEY).open(base64.b64encode(raw).decode(), "task/1")
        raw[place] ^= 1


def test_the_setting_decides() -> None:
    made = {
        find_key(Settings(store=store, secret_key=Secret(text)))
        for store in ("memory:", "postgresql://me@db/x")
        for text in ("a long enough secret", base64.b64encode(KEY).decode())
    }
    assert len(made) == 2
    assert all(key is not None and len(key) == 32 for key in made)
    assert KEY not in made


def test_a_short_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(Misuse, match="at least 16 characters") as caught:
        find_key(Settings(secret_key=Secret("fifteen letters")))
    assert "fifteen" not in str(caught.value)


def test_in_memory_each_process_has_its_own() -> None:
    settings = Settings(store="memory:")
    assert find_key(settings) != find_key(settings)


def test_a_shared_database_without_a_secret_has_none() -> None:
    assert find_key(Settings(store="postgresql://me@db/x")) is None


def test_a_file_is_made_beside_the_database(tmp_path: Path) -> None:
    settings = file_store(tmp_path / "tasks.db")
    key = find_key(settings)
    made = tmp_path / "tasks.db.key"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert find_key(settings) == key
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.db.key"]
    assert key is not None and Vault(key).open(Vault(key).seal("text", "x"), "x") == "text"


def test_two_names_of_a_database_have_one_key(tmp_path: Path) -> None:
    (tmp_path / "tasks.db").touch()
    (tmp_path / "other.db").symlink_to(tmp_path / "tasks.db")
    assert find_key(file_store(tmp_path / "tasks.db")) == find_key(file_store(tmp_path / "other.db"))


def test_all_who_make_one_at_once_get_the_same(tmp_path: Path) -> None:
    settings, found = file_store(tmp_path / "tasks.db"), set[bytes | None]()
    gate = threading.Barrier(8)

    def make() -> None:
        gate.wait(60)
        found.add(find_key(settings))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_read_is_refused(tmp_path: Path, mode: int) -> None:
    find_key(file_store(tmp_path / "tasks.db"))
    made = tmp_path / "tasks.db.key"
    made.chmod(mode)
    with pytest.raises(Misuse, match=f"chmod 600 {made}"):
        find_key(file_store(tmp_path / "tasks.db"))


@pytest.mark.parametrize("text", [b"", b"short", b"\xff" * 44, base64.b64encode(b"x" * 31)])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: bytes) -> None:
    fd = os.open(tmp_path / "tasks.db.key", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, text)
    os.close(fd)
    with pytest.raises(Misuse, match="holds no key"):
        find_key(file_store(tmp_path / "tasks.db"))


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"cannot be made: .*set secret_key"):
        find_key(file_store(tmp_path / "nowhere" / "tasks.db"))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "tasks.db.key").mkdir()
    (tmp_path / "tasks.db.key").chmod(0o700)
    with pytest.raises(Misuse, match=r"cannot be read: .*set secret_key"):
        find_key(file_store(tmp_path / "tasks.db"))


def test_whether_there_is_a_place_for_a_key(tmp_path: Path) -> None:
    database = "postgresql://me@db/x"
    assert can_seal(Settings(store="memory:")) and can_seal(file_store(tmp_path / "tasks.db"))
    assert not can_seal(Settings(store=database))
    assert can_seal(Settings(store=database, secret_key=Secret("a long enough secret")))
    assert list(tmp_path.iterdir()) == [], "to ask makes none"
