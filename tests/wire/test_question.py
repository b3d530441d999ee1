"""Questions on the wire: by which id they are named."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.wire.question import QUESTION_KEY, answered_question, question_metadata
from trunkline.wire.types import Message


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        (None, ""),
        ({"other": "q"}, ""),
        (question_metadata("q"), "q"),
        ({QUESTION_KEY: "q"}, "q"),
        ({QUESTION_KEY: 5}, ""),
        ({QUESTION_KEY: {"id": 5}}, ""),
    ],
)
def test_a_message_may_name_its_question(metadata: dict[str, Any] | None, named: str) -> None:
    assert answered_question(Message("m", metadata=metadata)) == named
