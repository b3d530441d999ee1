"""The `.env` files of the client: one name and value per line, found as git finds its own."""

from __future__ import annotations

import re
from pathlib import Path

from trunkline.errors import Misuse

FILE_NAME = ".env"
FOLDER = "~/.config/a2a-cli"
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def config_folder() -> Path:
    """The folder where the global configuration and tokens are kept."""
    return Path(FOLDER).expanduser()


def env_files(given: str) -> list[Path]:
    """The files to read, the strongest first: the one that was named, else the nearest; then the global one.

    Raises:
        Misuse: the named one is not there.
    """
    if given and not Path(given).is_file():
        raise Misuse(f"--config {given}: there is no such file")
    here = Path.cwd()
    near = (
        [Path(given)]
        if given
        else [path / FILE_NAME for path in (here, *here.parents) if (path / FILE_NAME).is_file()]
    )
    above = config_folder() / FILE_NAME
    found = [*near[:1], *([above] if above.is_file() else ())]
    return list(dict.fromkeys(found))


def read_env_file(path: Path) -> dict[str, str]:
    """The names and values of a `.env` file.

    Raises:
        Misuse: it cannot be read, or a line is no assignment.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} cannot be read: {error}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise Misuse(f"{path}:{number}: a line is NAME=value, or begins with #")
        found[match[1]] = _unquoted(match[2].strip())
    return found


def _unquoted(text: str) -> str:
    quote = text[:1]
    if quote in {"'", '"'} and len(text) > 1 and text.endswith(quote):
        inner = text[1:-1]
        return inner if quote == "'" else re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), inner)
    return re.split(r"\s+#", text, maxsplit=1)[0]
