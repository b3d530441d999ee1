"""Agents on the official SDKs behind a hub, spoken to in the version that they do not have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import free_port
from tests.hub.yesterday import Front, fronting
from tests.interop.test_servers import (
    Served,
    Wire,
    test_a_failure_is_told,
    test_a_question_is_answered_on_the_same_task,
    test_a_receipt_and_the_wait_for_it,
    test_a_running_task_is_canceled_and_an_ended_one_is_not,
    test_a_running_task_is_followed_again,
    test_a_stream,
    test_send_and_get,
)
from tests.node import why_no_js
from trunkline.mock.serve import BackgroundServer

# The same scenes as without a hub between.
__all__ = [
    "test_a_failure_is_told",
    "test_a_question_is_answered_on_the_same_task",
    "test_a_receipt_and_the_wait_for_it",
    "test_a_running_task_is_canceled_and_an_ended_one_is_not",
    "test_a_running_task_is_followed_again",
    "test_a_stream",
    "test_send_and_get",
]
WIRES = [
    pytest.param((server, version, binding), marks=mark, id=f"{version}-{binding}-to-{server}")
    for server, mark, version in (
        ("python", pytest.mark.sdk, "0.3"),
        ("server-1", pytest.mark.js, "0.3"),
        ("server-03", pytest.mark.js, "1.0"),
    )
    for binding in ("JSONRPC", "HTTP+JSON")
]


class FrontedServers(Served):
    """Where the servers are for callers: at the hub."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front

    def _start(self, name: str) -> str:
        return self._front.site(name)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from tests.interop import sdk_server

    real = Served()
    urls: dict[str, str] = {}
    try:
        for name in ("server_1", "server_03") if not why_no_js() else ():
            urls[name.replace("_", "-")] = real.at(name)[0]
        port = free_port()
        own = urls["python"] = f"http://127.0.0.1:{port}"
        with BackgroundServer(sdk_server.application("1.0", base=own), port=port):
            with fronting(tmp_path_factory.mktemp("front"), urls, "--dev") as front:
                made = FrontedServers(front)
                yield made
                made.close()
    finally:
        real.close()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest, served: Served) -> Wire:
    return Wire(served, *request.param)
