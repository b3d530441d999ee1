from __future__ import annotations

import pytest

from tests.wire.samples import TASK, plain
from trunkline.wire.writer import WRITERS, Dialect


@pytest.mark.parametrize("dialect", Dialect)
def test_every_dialect_has_its_writer(dialect: Dialect) -> None:
    writer = WRITERS[dialect]
    body = plain(writer.task(TASK))
    assert body["id"] == TASK.id
    assert ("kind" in body) is (dialect is Dialect.V03)
