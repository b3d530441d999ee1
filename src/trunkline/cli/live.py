"""A page of the terminal that is shown anew every few seconds."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live

EVERY_S = 2.0


def watch_page(page: Callable[[], RenderableType], console: Console, sleep: Callable[[float], None]) -> None:
    """Show a page as it is now, again and again until it is interrupted."""
    with Live(page(), console=console, auto_refresh=False) as live:
        try:
            while True:
                sleep(EVERY_S)
                live.update(page(), refresh=True)
        except KeyboardInterrupt:
            return
