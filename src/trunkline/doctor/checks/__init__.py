"""Every check, by family. Importing this package fills the registry, so take `CHECKS` from here."""

from __future__ import annotations

from trunkline.doctor.check import CHECKS
from trunkline.doctor.checks import (
    card,
    interfaces,
    jsonrpc,
    push,
    rest,
    security,
    sending,
    shapes,
    streaming,
    tasks,
)

__all__ = ["CHECKS", "card", "interfaces", "jsonrpc", "push", "rest"]
__all__ += ["security", "sending", "shapes", "streaming", "tasks"]
