"""The official Python SDK and push: its clients set, get, list and delete configs, and read what is posted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from a2a.client import Client
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from google.protobuf import json_format

from tests.conftest import Shelf
from tests.harness import SECRET, ServerProcess
from tests.hooks import Hooks
from tests.interop.test_python_sdk import UNKNOWN, Wire, events_of, send, sending

pytestmark = pytest.mark.sdk


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    directory, store = tmp_path_factory.mktemp("sdk-push"), shelf.store()
    with ServerProcess(directory, "trunkline.demo:agent", "--dev", store=store, env=SECRET) as made:
        yield made


@pytest.fixture(scope="module")
def hooks() -> Iterator[Hooks]:
    with Hooks() as made:
        yield made


@pytest.fixture(params=["1.0-JSONRPC", "1.0-HTTP+JSON", "0.3-JSONRPC", "0.3-HTTP+JSON"])
def wire(request: pytest.FixtureRequest, server: ServerProcess) -> Wire:
    version, _, binding = request.param.partition("-")
    return Wire(server.base, version, binding)


def config_for(task_id: str, url: str) -> pb.TaskPushNotificationConfig:
    return pb.TaskPushNotificationConfig(
        id="c",
        task_id=task_id,
        url=url,
        token="tok",
        authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="cred"),
    )


def test_set_get_list_delete(wire: Wire, hooks: Hooks) -> None:
    url = hooks.url(f"/sdk/{wire.version}/{wire.binding}")

    async def scene(client: Client) -> None:
        task = await send(client, "echo done")
        made = await client.create_task_push_notification_config(config_for(task.id, url))
        one = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="c")
        got = await client.get_task_push_notification_config(one)
        for config in (made, got):
            assert (config.id, config.task_id, config.url) == ("c", task.id, url)
            # Write-only: what was given is not given back.
            assert (config.token, config.authentication.credentials) == ("", "")
            assert config.authentication.scheme == "Bearer"
        if (wire.version, wire.binding) != ("0.3", "HTTP+JSON"):  # which that client does not have
            every = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
            listed = await client.list_task_push_notification_configs(every)
            assert [config.id for config in listed.configs] == ["c"]
            gone = pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="c")
            await client.delete_task_push_notification_config(gone)
            assert not (await client.list_task_push_notification_configs(every)).configs

    wire.run(scene)


def test_a_config_in_a_message_and_what_is_posted(wire: Wire, hooks: Hooks) -> None:
    path = f"/sdk/{wire.version}/{wire.binding}/inline"
    wanted = sending("echo hello")
    wanted.configuration.task_push_notification_config.CopyFrom(config_for("", hooks.url(path)))
    wire.run(lambda client: events_of(client.send_message(wanted)))
    posts = hooks.wait(path, 2)
    assert [post.state for post in posts] == ["working", "completed"]
    assert {post.headers["x-a2a-notification-token"] for post in posts} == {"tok"}
    if wire.version == "1.0":
        first, last = (json_format.ParseDict(post.body, pb.StreamResponse()) for post in posts)
        assert first.status_update.status.state == pb.TaskState.TASK_STATE_WORKING
        assert last.task.artifacts[0].parts[0].text == "echo hello"
    else:
        assert [post.body["kind"] for post in posts] == ["status-update", "status-update"]
        assert posts[1].body["artifact"]["parts"] == [{"kind": "text", "text": "echo hello"}]


def test_refusals(wire: Wire, hooks: Hooks) -> None:
    config = config_for(UNKNOWN, hooks.url("/nowhere"))
    unknown = errors.TaskNotFoundError
    wire.refuses(unknown, lambda client: client.create_task_push_notification_config(config))
    one = pb.GetTaskPushNotificationConfigRequest(task_id=UNKNOWN, id="c")
    wire.refuses(unknown, lambda client: client.get_task_push_notification_config(one))
    task = wire.run(lambda client: send(client, "echo done"))
    inside = config_for(task.id, "http://10.0.0.1/")
    bad = errors.InvalidParamsError
    wire.refuses(bad, lambda client: client.create_task_push_notification_config(inside))
