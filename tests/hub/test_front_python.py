"""The official Python client through a hub to agents of the other version, each with less than the hub offers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub.yesterday import Front, front_of_two
from tests.interop.test_python_sdk import (  # noqa: F401 - the same scenes, through the hub
    Wire,
    test_cancel,
    test_data_artifact,
    test_data_in,
    test_drop_the_stream_and_resubscribe,
    test_file_artifact,
    test_finished_task,
    test_history_length,
    test_list,
    test_other_ends,
    test_question_and_answer,
    test_question_and_answer_streamed,
    test_receipt_and_poll,
    test_send_and_wait,
    test_stream,
    test_subscribe_to_a_finished_task,
    test_unknown_task,
    test_unknown_version,
)

pytestmark = pytest.mark.sdk


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front_of_two(tmp_path_factory.mktemp("front")) as front:
        yield front


@pytest.fixture(params=["1.0-JSONRPC old", "1.0-HTTP+JSON old", "0.3-JSONRPC new", "0.3-HTTP+JSON new"])
def wire(request: pytest.FixtureRequest, front: Front) -> Wire:
    spoken, _, name = request.param.partition(" ")
    version, _, binding = spoken.partition("-")
    return Wire(front.site(name), version, binding)
