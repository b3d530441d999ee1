"""`trunkline serve --reload`: a child process serves, and begins anew when a file of Python changes here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trunkline.cli.console import print_notice

_LOOK_S = 0.5
_FLAG = "--reload"


Child = subprocess.Popen[bytes]


def run_reloading(typed: Sequence[str]) -> int:
    """Serve what was typed until a signal, beginning anew at every change; gives the exit code."""
    command = [sys.executable, "-m", "trunkline.cli", *(word for word in typed if word != _FLAG)]
    # As Ctrl-C does, so that the child is ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pause = threading.Event()
    return supervise(
        lambda: subprocess.Popen(command), lambda: changed_at(Path.cwd()), lambda: pause.wait(_LOOK_S)
    )


def supervise(
    start: Callable[[], Child], look: Callable[[], Mapping[str, int]], pause: Callable[[], object]
) -> int:
    """Keep a child running on what is seen; one that fails is begun anew at the next change.

    The exit code is that of a child that ended well by itself, or at a signal.
    """
    seen = look()
    child = start()
    try:
        while child.poll() != 0:
            pause()
            now = look()
            if now != seen:
                changed = sorted({name for name, _ in seen.items() ^ now.items()})
                print_notice("Reloading", ", ".join(changed[:3]))
                seen = now
                _end(child)
                child = start()
    except KeyboardInterrupt:
        return _end(child)
    return 0


def changed_at(folder: Path) -> dict[str, int]:
    """When each file of Python below a folder was changed; what is hidden or installed is left out."""
    found: dict[str, int] = {}
    for place, folders, files in os.walk(folder):
        hidden = [name for name in folders if name.startswith((".", "__")) or name == "node_modules"]
        folders[:] = [
            name for name in folders if name not in hidden and not Path(place, name, "pyvenv.cfg").exists()
        ]
        for path in (Path(place, name) for name in files if name.endswith(".py")):
            # It may have gone meanwhile, as editors replace files.
            if path.exists():
                found[str(path.relative_to(folder))] = path.stat().st_mtime_ns
    return found


def _end(child: Child) -> int:
    if child.poll() is None:
        child.terminate()
    return child.wait()
