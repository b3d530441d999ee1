"""The files of a tenant: a folder that nothing leads out of, with a bound on what is in it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trunkline.errors import Misuse

# The folder of a workspace that has a folder of files for each tenant.
FILES = "files"
FILE_LIMIT = 1 << 20
FILES_LIMIT = 1000
TOTAL_LIMIT = 64 << 20
_DEPTH = 8
_NAME_LENGTH = 128
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = ".writing-"


class TenantFolder:
    """One tenant's files below a folder of all; every step of a path is opened without following links."""

    def __init__(self, root: Path, tenant: str) -> None:
        self._path = root / tenant

    def read(self, path: str) -> bytes:
        """A whole file.

        Raises:
            Misuse: there is none, or it is too large.
        """
        *folders, name = _steps(path)
        with self._opened(folders) as folder:
            try:
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            except OSError:
                raise Misuse(f"there is no file {path!r}") from None
            if not stat.S_ISREG(os.fstat(file).st_mode):
                # A folder would not be closed by opening it as a file.
                os.close(file)
                raise Misuse(f"there is no file {path!r}")
            with os.fdopen(file, "rb") as opened:
                body = opened.read(FILE_LIMIT + 1)
        if len(body) > FILE_LIMIT:
            raise Misuse(f"{path!r} has more than {FILE_LIMIT >> 20} MiB")
        return body

    def write(self, path: str, body: bytes) -> None:
        """Put a whole file in the place of what was there.

        Raises:
            Misuse: it is too large, or there are too many.
        """
        *folders, name = _steps(path)
        if len(body) > FILE_LIMIT:
            raise Misuse(f"a file has at most {FILE_LIMIT >> 20} MiB")
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._opened([]) as root:
            # One writes at a time, of whatever process: else two of them find room for one more.
            fcntl.flock(root, fcntl.LOCK_EX)
            known = dict(self.list())
            others = [size for one, size in known.items() if one != "/".join([*folders, name])]
            if len(others) >= FILES_LIMIT or sum(others) + len(body) > TOTAL_LIMIT:
                raise Misuse(f"a tenant has at most {FILES_LIMIT} files of {TOTAL_LIMIT >> 20} MiB together")
            self._put(folders, name, body)

    def _put(self, folders: list[str], name: str, body: bytes) -> None:
        with self._opened(folders, make=True) as folder:
            temporary = f"{_TEMPORARY}{name}"[:200]
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as opened:
                opened.write(body)
            try:
                # Readers see the old file or the new one, whatever happens here.
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise Misuse(f"{'/'.join([*folders, name])!r} is a folder") from None

    def list(self, path: str = "") -> list[tuple[str, int]]:
        """The files below a folder, each with its size, by name.

        Raises:
            Misuse: there is no such folder.
        """
        folders = _steps(path) if path.strip() not in ("", ".", "/", "./") else []
        if not folders and not self._path.is_dir():
            return []
        with self._opened(folders) as folder:
            prefix = "".join([f"{one}/" for one in folders])
            return sorted(_found(folder, prefix, _DEPTH))

    def remove(self) -> None:
        """Remove all of it."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._path)

    @contextmanager
    def _opened(self, folders: list[str], *, make: bool = False) -> Generator[int]:
        try:
            at = os.open(self._path, _FOLDER)
        except OSError:
            raise Misuse("there are no files yet") from None
        try:
            for name in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=at)
                try:
                    below = os.open(name, _FOLDER, dir_fd=at)
                except OSError:
                    raise Misuse(f"there is no folder {name!r}") from None
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)


def _steps(path: str) -> list[str]:
    steps = [one for one in path.split("/") if one not in ("", ".")]
    if not steps or path.startswith("/") or len(steps) > _DEPTH:
        raise Misuse(f"give a path of at most {_DEPTH} names with / between them, not {path[:80]!r}")
    for one in steps:
        if one == ".." or not one.isprintable() or len(one.encode()) > _NAME_LENGTH or "\\" in one:
            raise Misuse(f"{one[:80]!r} is no name of a file")
        if one.startswith(_TEMPORARY):
            raise Misuse(f"names that begin with {_TEMPORARY} are taken")
    return steps


def _found(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as listed:
        entries = [*listed]
    for one in entries:
        if one.is_file(follow_symlinks=False):
            if not one.name.startswith(_TEMPORARY):
                yield f"{prefix}{one.name}", one.stat(follow_symlinks=False).st_size
        elif depth > 1 and one.is_dir(follow_symlinks=False):
            below = os.open(one.name, _FOLDER, dir_fd=folder)
            try:
                yield from _found(below, f"{prefix}{one.name}/", depth - 1)
            finally:
                os.close(below)
