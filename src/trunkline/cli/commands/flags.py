"""Flags that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

StoreUrl = Annotated[
    str | None, typer.Option("--store", help="The store's URL; the setting `store` unless told.")
]
# Under which heading the help of the tool lists a command.
CALL, TRY, SERVE, TOOL = "Call an agent", "Try one out", "Serve agents", "The tool itself"
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
