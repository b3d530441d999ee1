"""SQL lives in `.sql` files; this reads them.

Named statements follow a line `-- name: …`; migrations are `NNN_*.sql` in the same folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

_FOLDER = Path(__file__).parent / "sql"
_NAME = re.compile(r"^-- name: (\w+)(\*?)$", re.MULTILINE)
_ROW = re.compile(r"(\(\?[?, ']*\))")
_LARGEST = 64
_MIGRATION = re.compile(r"\d{3}_\w+\.sql\Z")


class Migration(Struct, frozen=True):
    """One step of the schema; `version` is the schema's after it."""

    version: int
    script: str


Value = int | str | bytes | None
Step = tuple[str, Sequence[Value]]


class RowsStatement:
    """A statement over any number of rows.

    Its rows travel in powers of two. A text for each number of rows would make hundreds of prepared
    statements, which take 25 MiB, and each is parsed when it is first needed.
    """

    __slots__ = ("_sizes", "_width", "one")

    def __init__(self, text: str) -> None:
        start, row, end = _ROW.split(text)
        self.one = text
        self._width = row.count("?")
        powers = [1 << power for power in range(_LARGEST.bit_length())]
        # Largest first: how many values, and the text that takes them.
        self._sizes = [(rows * self._width, start + ", ".join([row] * rows) + end) for rows in powers[::-1]]

    def steps(self, values: list[Value]) -> list[Step]:
        """What to execute, given the values of all rows one after the other."""
        steps: list[Step] = []
        start, left = 0, len(values)
        for size, text in self._sizes:
            while size <= left:
                steps.append((text, values[start : start + size] if size < len(values) else values))
                start += size
                left -= size
        return steps


def statements(dialect: str) -> tuple[Mapping[str, str], Mapping[str, RowsStatement]]:
    """The named statements of a dialect: those of one call, and those over rows."""
    text = (_FOLDER / dialect / "statements.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    plain: dict[str, str] = {}
    over_rows: dict[str, RowsStatement] = {}
    for name, star, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        # What follows the semicolon is a comment on the next statement.
        statement = body.rpartition(";")[0].strip()
        if star:
            over_rows[name] = RowsStatement(statement)
        else:
            plain[name] = statement
    return plain, over_rows


def migrations(dialect: str) -> tuple[Migration, ...]:
    """All steps of a dialect's schema, oldest first."""
    files = sorted(path for path in (_FOLDER / dialect).iterdir() if _MIGRATION.match(path.name))
    return tuple(Migration(int(path.name[:3]), path.read_text(encoding="utf-8")) for path in files)


def json_text(values: Sequence[int] | Sequence[str]) -> str:
    """A list as one parameter of a SQLite statement, which reads it by `json_each`."""
    return msgspec.json.encode(values).decode()
