"""The official JavaScript clients through a hub to agents of the other version, each with less than the hub offers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.hooks import Hooks
from tests.hub.yesterday import front_of_two
from tests.interop.test_js_sdk import (  # noqa: F401 - the same scenes, through the hub
    hooks,
    play,
    shown,
    test_cancel,
    test_data,
    test_drop_the_stream_and_resubscribe,
    test_every_scene_was_played,
    test_file_artifact,
    test_history_length,
    test_list,
    test_other_ends,
    test_push_configs,
    test_push_notifications,
    test_question_and_answer,
    test_question_and_answer_streamed,
    test_receipt_and_poll,
    test_refusal,
    test_send_and_wait,
    test_stream,
    test_subscribe_to_a_finished_task,
    test_unknown_version,
)

pytestmark = pytest.mark.js


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, hooks: Hooks) -> Iterator[dict[str, dict[str, Any]]]:  # noqa: F811
    with front_of_two(tmp_path_factory.mktemp("front"), "--dev") as front:
        # These clients take an address without a slash at its end for a file beside the card.
        bases = {"sdk_03": f"{front.site('new')}/", "sdk_1": f"{front.site('old')}/"}
        yield play(bases, hooks.url("/js"))
