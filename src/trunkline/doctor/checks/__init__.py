"""Every check, by family. Importing this package fills the registry, so take `CHECKS` from here."""

from __future__ import annotations

from trunkline.doctor.check import CHECKS
from trunkline.doctor.checks import (
    bindings,
    card,
    interfaces,
    push,
    security,
    sending,
    shapes,
    streaming,
    tasks,
)

__all__ = ["CHECKS", "bindings", "card", "interfaces", "push"]
__all__ += ["security", "sending", "shapes", "streaming", "tasks"]
