"""The files of a tenant: nothing leads out of its folder, and there is a bound on what is in it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trunkline.errors import Misuse
from trunkline.gateway.model import folder as folders
from trunkline.gateway.model.folder import TenantFolder


def test_files_are_written_read_and_listed_byte_for_byte(tmp_path: Path) -> None:
    folder = TenantFolder(tmp_path, "acme")
    assert folder.list() == []
    folder.write("a.txt", b"one")
    folder.write("deep/er/b.bin", bytes(range(256)))
    folder.write("a.txt", b"two")
    assert folder.read("deep/./er//b.bin") == bytes(range(256))
    assert folder.list() == [("a.txt", 3), ("deep/er/b.bin", 256)]
    assert folder.list("deep") == [("deep/er/b.bin", 256)]
    assert folder.list(".") == folder.list("/") == folder.list(" ") == folder.list()
    for path in ("..", "...", "deep/..", "a.txt", "none"):
        with pytest.raises(Misuse):
            folder.list(path)
    assert TenantFolder(tmp_path, "other").list() == []


def test_a_folder_is_no_file_and_is_not_left_open(tmp_path: Path) -> None:
    folder = TenantFolder(tmp_path, "acme")
    folder.write("deep/a", b"x")
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(Misuse, match="no file 'deep'"):
            folder.read("deep")
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize(
    "path",
    [
        "../other/x",
        "a/../../x",
        "/etc/passwd",
        "",
        "..",
        "a/" * 9 + "b",
        "n" * 200,
        "a\\b",
        "a\nb",
        "a\0b",
        "a\ud800b",
        ".writing-x",
    ],
)
def test_no_path_leads_out(tmp_path: Path, path: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_bytes(b"secret")
    folder = TenantFolder(tmp_path, "acme")
    folder.write("a/y", b"own")
    for use in (folder.read, lambda one: folder.write(one, b"z")):
        with pytest.raises(Misuse):
            use(path)
    assert (tmp_path / "other" / "x").read_bytes() == b"secret"


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "x").write_bytes(b"secret")
    folder = TenantFolder(tmp_path, "acme")
    folder.write("own", b"own")
    own = tmp_path / "acme"
    (own / "folder").symlink_to(tmp_path / "secret")
    (own / "file").symlink_to(tmp_path / "secret" / "x")
    os.mkfifo(own / "pipe")
    for path in ("folder/x", "file", "pipe"):
        with pytest.raises(Misuse):
            folder.read(path)
    with pytest.raises(Misuse):
        folder.write("folder/y", b"z")
    # A link that is written over is gone; what it led to is as it was.
    folder.write("file", b"mine")
    assert (tmp_path / "secret" / "x").read_bytes() == b"secret"
    assert sorted(os.listdir(tmp_path / "secret")) == ["x"]
    assert folder.list() == [("file", 4), ("own", 3)]


def test_there_is_a_bound_on_files_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "FILE_LIMIT", 10)
    monkeypatch.setattr(folders, "TOTAL_LIMIT", 25)
    monkeypatch.setattr(folders, "FILES_LIMIT", 3)
    folder = TenantFolder(tmp_path, "acme")
    with pytest.raises(Misuse, match="at most"):
        folder.write("a", b"x" * 11)
    folder.write("a", b"x" * 10)
    folder.write("b", b"x" * 10)
    with pytest.raises(Misuse, match="together"):
        folder.write("c", b"x" * 6)
    folder.write("c", b"x" * 5)
    folder.write("c", b"y")
    with pytest.raises(Misuse, match="3 files"):
        folder.write("d", b"")
    (tmp_path / "acme" / "a").write_bytes(b"x" * 11)
    with pytest.raises(Misuse, match="more than"):
        folder.read("a")


def test_writers_at_once_keep_the_bound_and_each_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "FILES_LIMIT", 3)
    folder = TenantFolder(tmp_path, "acme")
    bodies = [bytes([n]) * (1000 * n) for n in range(1, 9)]

    def write(n: int) -> bool:
        try:
            folder.write(f"own-{n}", b"x")
        except Misuse:
            return False
        finally:
            folder.write("same", bodies[n])
        return True

    folder.write("same", b"")
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(write, range(8)))
    assert kept.count(True) == 2 and len(folder.list()) == 3
    assert folder.read("same") in bodies


def test_a_tenant_that_goes_takes_its_files_along(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_bytes(b"stays")
    folder = TenantFolder(tmp_path, "acme")
    folder.remove()
    folder.write("deep/a", b"own")
    (tmp_path / "acme" / "link").symlink_to(tmp_path / "other")
    folder.remove()
    assert [one.name for one in tmp_path.iterdir()] == ["other"]
    assert (tmp_path / "other" / "x").read_bytes() == b"stays"
