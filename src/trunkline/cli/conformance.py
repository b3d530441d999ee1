"""`trunkline conformance`: the official test kit, from a checkout of it, against a live agent."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from msgspec import Struct

from trunkline.cli.console import print_field, print_json, print_notice, show_progress
from trunkline.cli.options import CALLING
from trunkline.cli.parsing import Commands
from trunkline.cli.session import Session
from trunkline.errors import Misuse

commands = Commands()
_TRANSPORTS = {"JSONRPC": "jsonrpc", "HTTP+JSON": "http_json"}
_SUITE = Path("tests", "compatibility")
_CLONE = "git clone --branch 1.0-dev https://github.com/a2aproject/a2a-tck tck"


class KitTally(Struct, frozen=True):
    """The results of the test kit over one transport."""

    transport: str
    passed: int
    failed: tuple[str, ...]
    skipped: int


@commands.calling("conformance", "kit", *CALLING)
async def conformance(session: Session) -> int:
    """Run the official test kit against an agent; exit code 1 if it fails."""
    # Its tests of what an agent MUST do, over every transport that the card offers.
    kit = _kit(session.config.text("kit"))
    card = await session.card()
    offered = {each.binding for each in card.interfaces}
    transports = [name for name in _TRANSPORTS if name in offered]
    if not transports:
        raise Misuse("the card offers no transport that the kit tests here: JSONRPC or HTTP+JSON")
    base = session.target.url.removesuffix("/").removesuffix("/a2a")
    tallies: list[KitTally] = []
    async with session.time_limit("the kit did not end in time; --timeout gives it longer"):
        for name in transports:
            show_progress(f"the kit tests {name}")
            tallies.append(await _tested(kit, base, name))
    _show(session, tallies)
    return 1 if any(tally.failed for tally in tallies) else 0


def _kit(told: str) -> Path:
    if not told:
        raise Misuse(
            f"--kit names a checkout of the official test kit: {_CLONE}; trunkline doctor needs none",
            hint=_CLONE,
        )
    if not (Path(told) / _SUITE).is_dir():
        raise Misuse(f"{told} is not a checkout of the test kit for 1.0: it has no {_SUITE}", hint=_CLONE)
    return Path(told).resolve()


async def _tested(kit: Path, base: str, transport: str) -> KitTally:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [
            _python(kit), "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
            str(_SUITE), f"--sut-host={base}", f"--transport={_TRANSPORTS[transport]}", "-m", "must",
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *command, cwd=kit, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            said, _ = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return _read(report, transport, said)


def _python(kit: Path) -> str:
    own = kit / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def _read(report: Path, transport: str, said: bytes) -> KitTally:
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):
        end = said.decode(errors="replace").strip()[-500:]
        raise Misuse(f"the kit did not run; give it a .venv with what it depends on: {end}") from None
    broken = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    failed = tuple([case.get("name", "") for case in broken])
    skipped = sum(case.find("skipped") is not None for case in cases)
    return KitTally(transport, len(cases) - len(failed) - skipped, failed, skipped)


def _show(session: Session, tallies: list[KitTally]) -> None:
    if session.config.as_json:
        print_json({"transports": tallies})
    else:
        for tally in tallies:
            print_field("Transport", tally.transport)
            print_field("Passed", str(tally.passed))
            print_field("Failed", str(len(tally.failed)))
            print_field("Skipped", str(tally.skipped))
            for name in tally.failed:
                print_field("Failure", name)
    for tally in tallies:
        if tally.failed:
            print_notice("Warning", f"{len(tally.failed)} tests of the kit failed over {tally.transport}")
