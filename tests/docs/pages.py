"""The code blocks of README and docs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """All blocks of a page in one language, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found == language]
