"""Files of ceremonies: by what is in them, with lines in errors; one that is broken changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from trunkline.errors import Misuse
from trunkline.fleet.ceremonies.ceremony import Ceremony
from trunkline.fleet.ceremonies.ceremony_store import CeremonyFault
from trunkline.fleet.ceremonies.files import CeremonyFiles, read_ceremony_file

TEXT = 'name: Stand-up\nschedule: "0 14 * * *"\nskill: report\ntargets: [writer]\n'


class Folder:
    """A folder of ceremonies, and what is known of it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "ceremonies"
        self.path.mkdir()
        self.files = CeremonyFiles(self.path, self._take)
        self.told = 0
        self.known: dict[str, Ceremony] = {}
        self.faults: list[str] = []

    def _take(self, found: Sequence[Ceremony], faults: Sequence[CeremonyFault]) -> None:
        self.told += 1
        self.known = {one.id: one for one in found}
        self.faults = [one.reason for one in faults]

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")
        self.files.check()

    def schedules(self) -> dict[str, str]:
        return {name: one.form.schedule for name, one in self.known.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_hb24_files_come_change_and_go(folder: Folder) -> None:
    folder.write("standup.yaml", TEXT)
    folder.write("other.yml", TEXT.replace("14", "16"))
    assert folder.schedules() == {"standup": "0 14 * * *", "other": "0 16 * * *"}
    # As long as before.
    folder.write("standup.yaml", TEXT.replace("14", "15"))
    assert folder.schedules()["standup"] == "0 15 * * *"
    folder.write("standup.yaml", TEXT + "enabled: false\n")
    assert not folder.known["standup"].form.enabled
    told = folder.told
    folder.files.check()
    assert folder.told == told
    (folder.path / "standup.yaml").unlink()
    folder.files.check()
    assert list(folder.known) == ["other"]


def test_a_file_that_breaks_changes_nothing(folder: Folder) -> None:
    folder.write("standup.yaml", TEXT)
    folder.write("standup.yaml", TEXT.replace("0 14 * * *", "often"))
    assert folder.schedules() == {"standup": "0 14 * * *"}
    (reason,) = folder.faults
    assert reason.startswith("ceremonies/standup.yaml, line 2: schedule: ")
    folder.write("standup.yaml", TEXT.replace("14", "15"))
    assert (folder.schedules(), folder.faults) == ({"standup": "0 15 * * *"}, [])
    (folder.path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    folder.files.check()
    assert len(folder.faults) == 1 and "bytes.yaml" in folder.faults[0]


def test_an_id_stands_in_one_file(folder: Folder) -> None:
    folder.write("a.yaml", TEXT + "id: standup\n")
    folder.write("b.yaml", TEXT + "id: standup\n")
    assert folder.faults == ["ceremonies/b.yaml: a.yaml has the ceremony 'standup' already"]
    (folder.path / "a.yaml").unlink()
    folder.files.check()
    assert (list(folder.known), folder.faults) == (["standup"], [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TEXT.replace("[writer]", "[]"), 4),
        (TEXT + "enabled: maybe\n", 5),
        (TEXT + "cron: x\n", 5),
        (TEXT.replace("skill: report\n", ""), 1),
        (TEXT.replace('"0 14 * * *"', "2030-01-01T00:00:00"), 2),
        ("- a\n", 1),
        ("", 1),
        (TEXT + "data: &a [1]\nmessage: *a\n", 5),
        ("name: [\n", 2),
    ],
)
def test_hb29_errors_name_the_line(folder: Folder, text: str, line: int) -> None:
    with pytest.raises(Misuse, match=rf"x\.yaml, line {line}: "):
        read_ceremony_file("x.yaml", text, "x")
    folder.path.joinpath("x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(Misuse):
        folder.files.start()


def test_a_file_that_is_being_written_is_taken_once_it_stays_as_it_is(folder: Folder) -> None:
    folder.write("standup.yaml", TEXT + "enabled: false\n")
    path = folder.path / "standup.yaml"
    assert [folder.files.settle(), folder.files.settle()] == [False, False]
    # Whole YAML, and half of what was meant: it would wake the ceremony.
    path.write_text(TEXT, encoding="utf-8")
    assert not folder.files.settle()
    path.write_text(TEXT.replace("14", "15") + "enabled: false\n", encoding="utf-8")
    assert [folder.files.settle(), folder.files.settle(), folder.files.settle()] == [False, True, False]
