"""SQL lives in `.sql` files; this reads them.

Named statements follow a line `-- name: …`; migrations are `NNN_*.sql` in the same folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

_FOLDER = Path(__file__).parent / "sql"
_NAME = re.compile(r"^-- name: (\w+)(\*?)$", re.MULTILINE)
_ROW = re.compile(r"(\([?, ]+\))")
_MIGRATION = re.compile(r"\d{3}_\w+\.sql\Z")


class Migration(Struct, frozen=True):
    """One step of the schema; `version` is the schema's after it."""

    version: int
    script: str


class RowsStatement:
    """A statement over any number of rows; each length is built once and then kept."""

    __slots__ = ("_by_length", "_end", "_row", "_start", "width")

    def __init__(self, text: str) -> None:
        self._start, self._row, self._end = _ROW.split(text)
        self._by_length: dict[int, str] = {}
        self.width = self._row.count("?")

    def rows(self, length: int) -> str:
        """The text for this many rows."""
        text = self._by_length.get(length)
        if text is None:
            text = self._by_length[length] = self._start + ", ".join([self._row] * length) + self._end
        return text


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
