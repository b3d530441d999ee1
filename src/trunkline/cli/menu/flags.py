"""Flags that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

StoreUrl = Annotated[
    str | None, typer.Option("--store", help="The store's URL; the setting `store` unless told.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
