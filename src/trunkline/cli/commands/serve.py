"""`trunkline serve` and `trunkline demo`."""

from __future__ import annotations

from typing import Annotated

import typer


def serve(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:AGENT", help="Where the Agent is, e.g. scribe:agent.")
    ],
    *,
    host: Annotated[str | None, typer.Option(help="Address to bind to; loopback unless told.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind to.")] = None,
    store: Annotated[str | None, typer.Option(help="sqlite:///FILE, postgresql://… or memory:")] = None,
    workers: Annotated[
        int | None, typer.Option(help="How many processes serve; more than one needs PostgreSQL.")
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key that callers must send; repeatable.")] = None,
    public_url: Annotated[str | None, typer.Option(help="The address that the card names.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Serve other machines without any key.")] = False,
    dev: Annotated[
        bool, typer.Option(help="Show exception texts to callers; let webhooks go to this machine.")
    ] = False,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Serve Prometheus metrics at /metrics.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as name=value.")] = None,
) -> None:
    """Serve an agent over HTTP until interrupted."""
    from trunkline.cli.serve import run

    run(
        target,
        {
            "host": host,
            "port": port,
            "store": store,
            "workers": workers,
            "keys": tuple(key) if key else None,
            "public_url": public_url,
            "open": open_ or None,
            "dev": dev or None,
            "log_level": log_level,
            "log_format": log_format,
            "metrics": metrics or None,
        },
        settings or [],
    )


def demo(
    *,
    once: Annotated[bool, typer.Option(help="End after the tour.")] = False,
    port: Annotated[int, typer.Option(help="Port of the demo server, or the next free one.")] = 8000,
) -> None:
    """Start the demo agent and walk through what it does."""
    from trunkline.demo.tour import run

    raise typer.Exit(run(once=once, port=port))
