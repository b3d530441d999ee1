"""Evaluates untrusted jq filters and JSON Schemas in a worker process, which the pool may kill at any time.

It runs as a script: it imports nothing of this package, and its environment is empty.
A filter sees its input value only. Three barriers keep it from files, each of which suffices:
every filter is compiled behind `PRELUDE`, where jq's grammar allows no import; the functions that read
anything else are not defined; and the process cannot open a file descriptor once it accepts requests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, cast

import jq
from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ReferencingError, ValidationError

try:
    import resource
except ImportError:  # a system without limits for processes
    resource = None

# Size limits of each cache of compiled texts: entries, and characters of their sources in all.
CACHED, CACHED_CHARS = 256, 1 << 20
# Limits of the patterns of one schema: how many, and the bytes of each when compiled.
PATTERNS, PATTERN_BYTES = 200, 1 << 20
# A pattern that looks around gives up on a text after this many steps back.
BACKTRACKS = 100_000
# The message about alternatives repeats the value for each of them: from this product of sizes on it is short
EXPLAINED = 50_000_000
_compile: Callable[[str], Any] = jq.compile  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
# Functions that read files, the environment or other inputs, write to standard error, or end the process.
REFUSED = (
    "debug", "debug(f)", "env", "get_jq_origin", "get_prog_origin", "get_search_list", "halt", "halt_error",
    "halt_error(f)", "input", "input_filename", "input_line_number", "inputs", "modulemeta", "stderr",
)  # fmt: skip
_MARK = "trunkline_refuses_"
# Redefines each of them by a name that does not exist. jq drops a definition that nothing calls before it
# looks up names, so that a filter compiles unless it calls one. jq's grammar allows `module`, `import` and
# `include` only at the start of a program, which this text takes.
PRELUDE = "".join(f"def {one}: {_MARK}{one.partition('(')[0]}; " for one in REFUSED)
_CALLED = re.compile(rf"{_MARK}(\w+)/0 is not defined")
_MODULE = re.compile(r"syntax error, unexpected (module|import|include)\b")
_POSITION = re.compile(r"(?<= at <top-level>, line 1, column )\d+")
_CODE = re.compile(r"""\#(?:\\(?:\\|\r?\n)|.)* | " | [()] | \$ENV(?![A-Za-z0-9_]|::)""", re.VERBOSE)
_TEXT = re.compile(r"""\\\(|\\.|\"""", re.DOTALL)


def main() -> None:
    """Answer requests from standard input until it ends."""
    isolate()
    memory, outputs, weight = (int(word) for word in sys.argv[1:4])
    longest_s = float(sys.argv[4])
    requests, answers = open_pipes()
    before = limit_resources(memory)
    programs, schemas = CompiledTexts(compiled_filter), CompiledTexts(compiled_schema)
    answers.write(b".")
    answers.flush()
    while header := requests.read(9):
        sizes = header[1:]
        text = requests.read(int.from_bytes(sizes[:4], "big")).decode()
        value = requests.read(int.from_bytes(sizes[4:], "big")).decode()
        # The signal ends this process: the request has used its processor time.
        signal.setitimer(signal.ITIMER_PROF, longest_s)
        began = time.thread_time_ns()
        try:
            match header[:1]:
                case b"=":
                    body = outputs_of(programs.find(text), value, outputs, weight)
                case b"?":
                    programs.find(text)
                    body = b"[]"
                case b"s":
                    body = json.dumps(fault_of(schemas.find(text), text, value)).encode()
                case _:
                    body = json.dumps(schema_faults(text)).encode()
            kind = b"="
        except MemoryError:
            os._exit(1)
        except (ValueError, RecursionError) as error:
            kind, body = b"!", str(error).encode("utf-8", "replace")
        signal.setitimer(signal.ITIMER_PROF, 0)
        spent_us = (time.thread_time_ns() - began) // 1000
        answers.write(kind + len(body).to_bytes(4, "big") + spent_us.to_bytes(5, "big") + body)
        answers.flush()
        if resource and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > before + memory // 4096:
            # What this filter needed may not have been given back; the next one finds a fresh worker.
            return


def isolate() -> None:
    """Leave the terminal, the processor and the environment to the hub."""
    # An interrupt from the terminal is for the pool. In a session of its own this process would take as much
    # of the processor as the hub: Linux compares priorities within a session only.
    os.setpgid(0, 0)
    # A service manager may stop all processes at once, while the hub lets runs end. The pool kills this one.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(10)
    # Python itself may have set variables. jq loads the file .jq of the home directory if there is one.
    os.environ.clear()
    os.environ["HOME"] = os.devnull


def open_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes from and to the pool, which are not the standard streams any more."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    return requests, answers


class CompiledTexts:
    """The newest compiled texts, within the limits of the cache."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._chars = 0

    def find(self, text: str) -> Any:
        """Return the result for a text, from the cache if it is there.

        Raises:
            ValueError: it does not compile.
        """
        found = self._kept.pop(text, None)
        if found is None:
            found = self._make(text)
            self._chars += len(text)
        self._kept[text] = found
        while len(self._kept) > CACHED or (self._chars > CACHED_CHARS and len(self._kept) > 1):
            self._chars -= len(self._kept.popitem(last=False)[0])
        return found


def compiled_filter(program: str) -> Any:
    """Compile a filter.

    Raises:
        ValueError: it does not compile, or uses what filters may not use.
    """
    if names_environment(program):
        raise ValueError(_refusal("$ENV"))
    try:
        return _compile(PRELUDE + program)
    except ValueError as error:
        raise ValueError(_compile_error(str(error))) from None


def compiled_schema(text: str) -> Draft202012Validator:
    """Compile a JSON Schema; it fetches nothing.

    Raises:
        ValueError: it is no JSON Schema, refers to another document, or its patterns exceed a limit.
    """
    schema = json.loads(text)
    if (count := count_patterns(schema)) > PATTERNS:
        raise ValueError(f"it has {count} patterns; a schema may have {PATTERNS}")
    options = FancyRegexOptions(BACKTRACKS, size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES // 4)
    try:
        return Draft202012Validator(schema, retriever=_refuse, pattern_options=options)
    except ValidationError as error:
        limit = f" of at most {PATTERN_BYTES >> 20} MiB when compiled" * error.message.endswith('"regex"')
        raise ValueError(f"{error.message}{limit}") from None
    except ReferencingError as error:
        raise ValueError(str(error)) from None


def count_patterns(schema: Any) -> int:
    """Count the patterns that a schema may have; a value that looks like one counts too."""
    count = 0
    left: list[Any] = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            members = cast("dict[str, Any]", one)
            named = members.get("patternProperties")
            count += isinstance(members.get("pattern"), str)
            count += len(cast("dict[str, Any]", named)) if isinstance(named, dict) else 0
            left += members.values()
        elif isinstance(one, list):
            left += cast("list[Any]", one)
    return count


def schema_faults(text: str) -> list[Any]:
    """Return the position of the first schema of a list that does not compile, and why; empty if all do."""
    for place, one in enumerate(json.loads(text)):
        try:
            compiled_schema(json.dumps(one))
        except ValueError as error:
            return [place, str(error)]
    return []


def fault_of(validator: Draft202012Validator, schema: str, text: str) -> list[str]:
    """Return where a value does not fit a schema, and why; empty if it fits."""
    value = json.loads(text)
    if validator.is_valid(value):
        return []
    has_choices = '"anyOf"' in schema or '"oneOf"' in schema
    if has_choices and len(schema) * len(text) > EXPLAINED:
        return ["/: it does not fit its schema"]
    try:
        # Only the first error: to find all of them takes many times as long as the check.
        validator.validate(value)
    except ValidationError as first:
        steps = [str(step).replace("~", "~0").replace("/", "~1") for step in first.instance_path]
        return [f"/{'/'.join(steps)}: {first.message}"]
    return []


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched; write what it defines into the schema")


def names_environment(program: str) -> bool:
    """Return whether a filter reads the variable `$ENV` anywhere but in a text or a comment."""
    if "$ENV" not in program:
        return False
    # The open parentheses of each interpolation `\\(…)` around the position, and of the code within it.
    around: list[int] = []
    depth, is_text, at = 0, False, 0
    while token := (_TEXT.search if is_text else _CODE.search)(program, at):
        at = token.end()
        match is_text, token[0]:
            case False, "$ENV":
                return True
            case _, '"':
                is_text = not is_text
            case True, "\\(":
                around.append(depth)
                depth, is_text = 0, False
            case False, "(":
                depth += 1
            case False, ")" if depth == 0 and around:
                depth, is_text = around.pop(), True
            case False, ")":
                depth -= 1
            case _:
                pass
    return False


def _compile_error(text: str) -> str:
    """Return jq's message about a filter, with the columns of the filter as it was written."""
    found = _CALLED.search(text) or _MODULE.search(text)
    if found is not None:
        return _refusal(found[1])
    # Each message is followed by the line it is about, which shows the prelude.
    lines = [line for line in text.splitlines() if line.startswith("jq: ")]
    return _POSITION.sub(lambda column: str(max(int(column[0]) - len(PRELUDE), 1)), "\n".join(lines)) or text


def _refusal(construct: str) -> str:
    return (
        f"a filter may not use {construct!r}: it reads its input value only,"
        " and no files, modules, environment or other inputs"
    )


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


def limit_resources(memory: int) -> int:
    """Limit the resources of the process; return the peak of its memory so far, in KiB.

    No file descriptor can be opened from here on.
    """
    if resource is None:
        return 0
    limits = {"RLIMIT_AS": memory, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0, "RLIMIT_NOFILE": 0}
    for name, limit in limits.items():
        with suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (limit, limit))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
