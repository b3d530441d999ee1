"""Which scope an operation needs; every operation has its row."""

from __future__ import annotations

from trunkline.auth.principal import Scope
from trunkline.wire.operations import Operation

READ, WRITE, METRICS, ADMIN = Scope.READ, Scope.WRITE, Scope.METRICS, Scope.ADMIN
NEEDED: dict[Operation, Scope] = {
    Operation.SEND: WRITE,
    Operation.STREAM: WRITE,
    Operation.CANCEL: WRITE,
    Operation.PUSH_SET: WRITE,
    Operation.PUSH_DELETE: WRITE,
    Operation.GET: READ,
    Operation.LIST: READ,
    Operation.SUBSCRIBE: READ,
    Operation.PUSH_GET: READ,
    Operation.PUSH_LIST: READ,
    Operation.EXTENDED_CARD: READ,
}
# Who may only answer questions comes in too, and is then shown and taken no more than that.
INSTEAD: dict[Operation, Scope] = dict.fromkeys(
    (Operation.SEND, Operation.STREAM, Operation.GET, Operation.LIST), Scope.ANSWER
)
