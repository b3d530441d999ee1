"""Every check, by family. Importing this package fills the registry, so take `CHECKS` from here."""

from __future__ import annotations

from trunkline.doctor.check import CHECKS
from trunkline.doctor.checks import (
    card,
    discovery,
    interfaces,
    jsonrpc,
    negotiation,
    push,
    rest,
    robustness,
    security,
    sending,
    shapes,
    streaming,
    tasks,
)

__all__ = ["CHECKS", "card", "discovery", "interfaces", "jsonrpc", "negotiation", "push", "rest"]
__all__ += ["robustness", "security", "sending", "shapes", "streaming", "tasks"]
