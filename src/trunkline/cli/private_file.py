"""Files that only their owner can read, under their name only when they are whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_private(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file of mode 0600 in place of what has its name; a link there is replaced, never followed.

    Raises:
        OSError: it cannot be written.
    """
    # A name of its own: another run may write the same file, and a name that can be guessed may be a link.
    descriptor, part = tempfile.mkstemp(".part", f"{path.name}.", path.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
