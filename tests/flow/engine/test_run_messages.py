from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trunkline.flow.engine.run_messages import Mode, RunOrder, RunReply, mode_of
from trunkline.log.fold import State
from trunkline.wire.types import Part


@pytest.mark.parametrize(("is_fixed", "mode"), [(True, "in_process"), (False, "host_mediated")])
def test_resumed_run_whose_mode_is_fixed_keeps_it_whatever_answers_were_read(
    is_fixed: bool, mode: Mode
) -> None:
    said = RunReply("host_mediated").message("m1", "q1", Part(data={"ok": True}))
    state: Any = SimpleNamespace(answers=[said], taken=1)
    assert mode_of(cast("State", state), RunOrder("e1", "hash", is_fixed=is_fixed)) == mode
