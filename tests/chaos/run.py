"""`make chaos`: plays the rows of the catalogue against real servers and prints one line for each.

`SEED=n` repeats a schedule; `--only row1,row7`, `--store sqlite`, `--scale 0.1` and `--kills 20` narrow it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import time
import traceback
from pathlib import Path

import uvloop

from tests import postgres
from tests.chaos import (  # noqa: F401 - their rows enter the table
    bounds,
    canaries,
    disk,
    durability,
    elsewhere,
    flood,
    flows,
    half,
    hostile,
    kills,
    liveness,
    load,
    protocol,
    relayed,
    replicas,
    set_back,
    shutdown,
    soak,
    timing,
    webhooks,
)
from tests.chaos.rows import POSTGRES, ROWS, SQLITE, Result, Row, Run

Line = tuple[Row, str, Result, float]


def main() -> int:
    """Play what was asked for; 1 if anything failed."""
    options = _options()
    # What the models and the checker do to a store on purpose needs no words.
    logging.getLogger("trunkline").setLevel(logging.CRITICAL)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    chosen = _chosen(options)
    print(f"SEED={seed}  {len(chosen)} runs", flush=True)
    lines: list[Line] = []
    for row, kind in chosen:
        lines.append(_play(row, kind, seed, options))
    if options.markdown:
        options.markdown.write_text(_table(lines, seed), encoding="utf-8")
    failed = [line for line in lines if line[2].passed is False]
    print(f"{len(lines)} runs, {len(failed)} failed, SEED={seed}")
    return 1 if failed else 0


def _play(row: Row, kind: str, seed: int, options: argparse.Namespace) -> Line:
    print(f"row {row.number} on {kind}: {row.what}", flush=True)
    began = time.monotonic()
    keep = True
    if kind == POSTGRES and (why := postgres.why_none()):
        return _told(row, kind, Result(None, why), began)
    run = Run(row.number, kind, seed, options.scale, vars(options))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(row.play(run))
        keep = result.passed is False
    except Exception as error:  # noqa: BLE001 - a row that cannot be played has failed; the others go on
        traceback.print_exc()
        result = Result(False, f"{type(error).__name__}: {error}")
    finally:
        run.close(keep=keep or options.keep)
    return _told(row, kind, result, began)


def _told(row: Row, kind: str, result: Result, began: float) -> Line:
    seconds = time.monotonic() - began
    print(f"  {_word(result):7} row {row.number:2} {kind:8} {result.measured} [{seconds:.0f} s]", flush=True)
    return row, kind, result, seconds


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    named = os.environ.get("SEED")
    parser.add_argument("--seed", type=int, default=int(named) if named else None, help="repeats a schedule")
    parser.add_argument("--only", default="", help="rows, as in row1,row7,hostile")
    parser.add_argument("--store", choices=(SQLITE, POSTGRES), help="one store instead of both")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the catalogue's numbers")
    parser.add_argument("--kills", type=int, help="how many kills, crashes or points")
    parser.add_argument("--clients", type=int, help="how many clients")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long the soak lasts")
    parser.add_argument("--keep", action="store_true", help="keep the directories of rows that passed too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[tuple[Row, str]]:
    only = {word.strip().removeprefix("row").strip("_") for word in options.only.split(",") if word}
    unknown = only - {str(row.number) for row in ROWS} - {row.name for row in ROWS}
    if unknown:
        names = sorted({row.name for row in ROWS if row.name})
        sys.exit(
            f"there is no row {sorted(unknown)}; there are {sorted({row.number for row in ROWS})}, {names}"
        )
    return [
        (row, kind)
        for row in sorted(ROWS, key=lambda row: row.number)
        for kind in row.stores
        if (not only or only & {str(row.number), row.name}) and options.store in (None, kind)
    ]


def _table(lines: list[Line], seed: int) -> str:
    rows = ["| Row | What | Store | Target | Measured | Result | s |", "|---|---|---|---|---|---|---|"]
    for row, kind, result, seconds in lines:
        rows.append(
            f"| {row.number} | {row.what} | {kind} | {row.target} | {result.measured} | {_word(result)} | {seconds:.0f} |"
        )
    return "\n".join([*rows, "", f"Seed {seed}.", ""])


def _word(result: Result) -> str:
    return {True: "passed", False: "FAILED", None: "skipped"}[result.passed]


if __name__ == "__main__":
    raise SystemExit(main())
