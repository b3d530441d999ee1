"""One process per SQLite file: an exclusive lock on `FILE.lock`, which holds the pid.

The kernel drops the lock with the process, so a killed one leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import os

from trunkline.errors import StoreInUse


class FileLock:
    """The lock beside one database file."""

    __slots__ = ("_database", "_fd")

    def __init__(self, database: str) -> None:
        self._database = database
        self._fd = -1

    def acquire(self) -> None:
        """Take it at once or not at all.

        Raises:
            StoreInUse: somebody has it.
        """
        fd = os.open(f"{self._database}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            who = f"this process (pid {pid})" if pid == str(os.getpid()) else f"process {pid or 'unknown'}"
            raise StoreInUse(
                f"{self._database} is open in {who}; one process per SQLite file: "
                "stop it or choose another --store",
                pid,
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Let the next one in. The file stays: removing it could split the lock in two."""
        if self._fd < 0:
            return
        os.ftruncate(self._fd, 0)
        os.close(self._fd)
        self._fd = -1
