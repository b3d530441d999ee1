"""Every seeded defect is found by its name, and by no other names than those that are listed with it."""

from __future__ import annotations

import pytest

from tests.doctor.conftest import Examine, Sound
from tests.doctor.defects import DEFECTS, Defect
from tests.doctor.faulty_agent import FaultyAgent
from tests.doctor.single_defects import SINGLE_DEFECTS
from trunkline.doctor.checks import CHECKS

# Of these, what follows from them is not told as well.
ALONE = ("send-message-task-exists", "subscribe-refusal-codes")


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.name.replace(" ", "-"))
def test_a_defect_is_found_by_name(defect: Defect, examine: Examine, sound: Sound) -> None:
    app = FaultyAgent(sound(**defect.settings), defect.fault)
    report = examine(app, defect.url, keyed="keys" in defect.settings, **defect.options)
    assert sorted({one.check for one in report.failed()}) == sorted(defect.checks)
    assert all(one.seen and one.means and one.fix and one.evidence for one in report.failed())


@pytest.mark.parametrize("defect", SINGLE_DEFECTS, ids=lambda one: one.name)
def test_a_check_fails(defect: Defect, examine: Examine, sound: Sound) -> None:
    app = FaultyAgent(sound(**defect.settings), defect.fault)
    report = examine(app, defect.url, keyed="keys" in defect.settings, **defect.options)
    found = {one.check for one in report.failed()}
    assert defect.name in found
    assert defect.name not in ALONE or found == {defect.name}


def test_every_check_is_seen_to_fail() -> None:
    named = {name for defect in [*DEFECTS, *SINGLE_DEFECTS] for name in defect.checks}
    assert named == set(CHECKS)
