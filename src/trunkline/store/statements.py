"""SQL lives in `.sql` files; this reads them.

Named statements follow a line `-- name: …`; migrations are `NNN_*.sql` in the same folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

_FOLDER = Path(__file__).parent / "sql"
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"\d{3}_\w+\.sql\Z")


class Migration(Struct, frozen=True):
    """One step of the schema; `version` is the schema's after it."""

    version: int
    script: str


Value = int | str | bytes | bytearray | None


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """The named statements of a dialect."""
    text = (_FOLDER / dialect / "statements.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    # What follows the semicolon is a comment on the next statement.
    return {name: body.rpartition(";")[0].strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def migrations(dialect: str) -> tuple[Migration, ...]:
    """All steps of a dialect's schema, oldest first."""
    files = sorted(path for path in (_FOLDER / dialect).iterdir() if _MIGRATION.match(path.name))
    return tuple(Migration(int(path.name[:3]), path.read_text(encoding="utf-8")) for path in files)
