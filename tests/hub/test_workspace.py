"""What the files of a hub's workspace may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.errors import Misuse
from trunkline.hub.workspace import read_hub


def test_the_limits_of_alerts_stand_in_hub_yaml(tmp_path: Path) -> None:
    file = tmp_path / "hub.yaml"
    file.write_text("alerts:\n  daily_cost_usd: 5\n  cooldown: 1h\n")
    limits = read_hub(tmp_path).alerts
    assert (limits.daily_cost_usd, limits.cooldown, limits.failure_rate_1h) == (5.0, "1h", 0.5)
    file.write_text("alerts:\n  costs: 5\n")
    with pytest.raises(Misuse, match=r"hub.yaml, line 2: .*costs"):
        read_hub(tmp_path)
