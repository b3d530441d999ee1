"""The files of a workspace that say which ceremonies there are: `ceremonies/*.yaml`, one each.

They are looked at every two seconds, by what is in them. One that cannot be used changes nothing: its
ceremony stays as it was, and the list of ceremonies shows what is wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from trunkline.errors import InvalidParams, Misuse
from trunkline.fleet.ceremonies.ceremony import Ceremony, file_ceremony
from trunkline.fleet.ceremonies.ceremony_store import CeremonyFault
from trunkline.yaml_reader import read_text, read_yaml

log = logging.getLogger("trunkline.fleet")
WATCH_S = 2.0
FILES_LIMIT = 10_000
Take = Callable[[Sequence[Ceremony], Sequence[CeremonyFault]], None]


class CeremonyFiles:
    """The ceremonies of a folder; `take` is handed all of them, and all faults, when a file has changed."""

    def __init__(self, folder: Path, take: Take) -> None:
        self._folder = folder
        self._take = take
        self._texts: dict[str, str] = {}
        # As they were at the last look.
        self._seen: dict[str, str] = {}
        self._read: dict[str, Ceremony] = {}
        self._faults: dict[str, str] = {}

    def start(self) -> None:
        """Read the files for the first time.

        Raises:
            Misuse: one cannot be used; the text names file and line.
        """
        self.check()
        for reason in self._faults.values():
            raise Misuse(reason)

    def check(self) -> None:
        """Read what has changed since the last time."""
        if self._refresh(self._look()):
            self._tell()

    async def watch(self) -> None:
        """Take up changes until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            # A disk may be slow.
            if await asyncio.to_thread(self.settle):
                self._tell()

    def settle(self) -> bool:
        """Take the files if they have stayed as they are since the last look; whether anything is new.

        One that is just being written may be whole YAML and half a ceremony.
        """
        seen, self._seen = self._seen, self._look()
        return self._seen == seen and self._refresh(seen)

    def _tell(self) -> None:
        faults = [CeremonyFault(Path(name).stem, reason) for name, reason in self._faults.items()]
        self._take(list(self._read.values()), faults)

    def _refresh(self, texts: dict[str, str]) -> bool:
        if texts == self._texts:
            return False
        for name in [known for known in {*self._read, *self._faults} if known not in texts]:
            self._read.pop(name, None)
            self._faults.pop(name, None)
        for name, text in texts.items():
            if self._texts.get(name) != text or name in self._faults:
                self._parse(name, text)
        self._texts = texts
        return True

    def _look(self) -> dict[str, str]:
        texts: dict[str, str] = {}
        paths = sorted(path for path in self._folder.glob("*.y*ml") if path.suffix in (".yaml", ".yml"))
        for path in paths[:FILES_LIMIT]:
            try:
                texts[path.name] = read_text(path)
            except FileNotFoundError:
                continue
            except Misuse as error:
                # No YAML begins so: it is told as what it is by whoever parses it.
                texts[path.name] = f"\0{error}"
        return texts

    def _parse(self, name: str, text: str) -> None:
        try:
            one = read_ceremony_file(f"{self._folder.name}/{name}", text, Path(name).stem)
            for other, known in self._read.items():
                if other != name and known.key == one.key:
                    raise Misuse(f"{self._folder.name}/{name}: {other} has the ceremony {one.id!r} already")
            self._read[name] = one
            self._faults.pop(name, None)
        except Misuse as error:
            self._faults[name] = str(error)
            log.warning("ceremonies.file_refused error=%s", error)


def read_ceremony_file(file: str, text: str, stem: str) -> Ceremony:
    """The ceremony that a file describes.

    Raises:
        Misuse: it describes none; the text names file, line and member.
    """
    if text.startswith("\0"):
        raise Misuse(text[1:])
    found = read_yaml(text, file)
    if found is None or not isinstance(found[0], dict):
        raise Misuse(f"{file}, line 1: a ceremony begins with members such as name: and schedule:")
    document, position = found
    try:
        return file_ceremony(cast("dict[Any, Any]", document), stem)
    except InvalidParams as error:
        raise Misuse(f"{position(error.field)}: {error.field}: {error.message}") from None
