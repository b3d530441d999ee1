"""The program of a worker process: it runs jq filters that strangers wrote, and may be killed at any time.

It is started by path, alone: it imports nothing of this package, and nothing of the environment is left.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import jq

try:
    import resource
except ImportError:  # a system without limits for processes
    resource = None

CACHED = 256
_compile: Callable[[str], Any] = jq.compile  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
# What would have written to standard error counts as an error, and nothing ends the process.
SILENCED = re.compile(r"\b(?:debug|stderr|halt|halt_error|input_line_number)\b")
SILENCERS = (
    'def debug: error("debug writes to standard error");'
    "def debug(f): debug; def stderr: debug;"
    'def halt: error("halt is not for filters");'
    "def halt_error: halt; def halt_error(f): halt; def input_line_number: null; "
)


def main() -> None:
    """Answer requests from standard input until it ends."""
    # Python itself may have set something, and `$ENV` shows all there is.
    os.environ.clear()
    memory, longest_s, outputs, weight = (int(word) for word in sys.argv[1:5])
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # A filter that finds a way to read or write finds nothing there.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    before = _limit(memory)
    programs: OrderedDict[str, Any] = OrderedDict()
    answers.write(b".")
    answers.flush()
    while header := requests.read(9):
        only_compile, sizes = header[:1] == b"?", header[1:]
        program = requests.read(int.from_bytes(sizes[:4], "big")).decode()
        root = requests.read(int.from_bytes(sizes[4:], "big")).decode()
        _allow_time(longest_s)
        try:
            found = compiled(programs, program)
            _answer(answers, b"=", b"[]" if only_compile else outputs_of(found, root, outputs, weight))
        except MemoryError:
            os._exit(1)
        except (ValueError, RecursionError) as error:
            _answer(answers, b"!", str(error).encode("utf-8", "replace"))
        if resource and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > before + memory // 4096:
            # What this filter needed may not have been given back; the next one finds a fresh worker.
            return


def compiled(programs: OrderedDict[str, Any], program: str) -> Any:
    """The program, compiled, from the cache where it is there.

    Raises:
        ValueError: it does not compile.
    """
    found = programs.pop(program, None)
    if found is None:
        if SILENCED.search(program):
            # Compiled alone first, for the sake of what it says of a mistake.
            _compile(program)
            found = _compile(SILENCERS + program)
        else:
            found = _compile(program)
        if len(programs) >= CACHED:
            programs.popitem(last=False)
    programs[program] = found
    return found


def outputs_of(program: Any, root: str, outputs: int, weight: int) -> bytes:
    """All that a program makes of a value, as one JSON array.

    Raises:
        ValueError: it failed, or gives too much.
    """
    pieces: list[str] = []
    written = 0
    for value in program.input_text(root):
        piece = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        written += len(piece) + 1
        if len(pieces) >= outputs or written > weight:
            raise ValueError(f"it gives more than {outputs} values or {weight} characters")
        pieces.append(piece)
    return f"[{','.join(pieces)}]".encode()


def _answer(answers: BinaryIO, kind: bytes, body: bytes) -> None:
    answers.write(kind + len(body).to_bytes(4, "big") + body)
    answers.flush()


def _limit(memory: int) -> int:
    """Bound what the process may take; the peak of its memory so far, in KiB."""
    if resource is None:
        return 0
    limits = {"RLIMIT_AS": memory, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0}
    for name, limit in limits.items():
        with suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (limit, limit))
    with suppress(OSError):
        os.nice(5)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _allow_time(longest_s: int) -> None:
    """Should the process that asks die first, this one ends by itself."""
    if resource is None:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    with suppress(ValueError, OSError):
        resource.setrlimit(
            resource.RLIMIT_CPU,
            (int(used.ru_utime + used.ru_stime) + longest_s + 1, resource.RLIM_INFINITY),
        )


if __name__ == "__main__":
    main()
