"""Every seeded defect is found by its name, and by no other names than those that are listed with it."""

from __future__ import annotations

import pytest

from tests.doctor.conftest import Examine, Sound
from tests.doctor.defects import DEFECTS, Defect
from tests.doctor.sick import Sick


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.name.replace(" ", "-"))
def test_a_defect_is_found_by_name(defect: Defect, examine: Examine, sound: Sound) -> None:
    app = Sick(sound(**defect.settings), defect.sickness)
    report = examine(app, defect.url, keyed="keys" in defect.settings, **defect.options)
    assert sorted({one.check for one in report.failed()}) == sorted(defect.checks)
    assert all(one.seen and one.means and one.fix for one in report.failed())
    assert report.took_s < 4


def test_there_are_enough_of_them() -> None:
    assert len({defect.checks[0] for defect in DEFECTS}) >= 60
