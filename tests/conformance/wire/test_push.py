"""Push configs and what is delivered: PSH-01 to PSH-09, PDL-01 to PDL-08, in both bindings of 1.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from google.protobuf import json_format

from tests.conformance.wire.bindings import (
    BINDINGS,
    EVERY,
    UNKNOWN,
    Answer,
    Binding,
    Proto03,
    Rest,
    Rpc,
    Rpc03,
)
from tests.conformance.wire.conftest import Serve
from tests.hooks import Hooks

pb = pytest.importorskip("a2a.types.a2a_pb2")


class Configs:
    """The four operations in any binding; results come in one shape."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.old = binding.version == "0.3"

    def set(self, task_id: str, config: Any) -> Answer:
        if isinstance(self.binding, Rest):
            body = {"pushNotificationConfig": config} if self.old else config
            return self.binding.call("POST", f"/tasks/{task_id}/pushNotificationConfigs", body)
        assert isinstance(self.binding, Rpc)
        params = (
            {"taskId": task_id, "pushNotificationConfig": config}
            if self.old
            else {"taskId": task_id, **config}
        )
        return self.binding.call("push_set", params)

    def get(self, task_id: str, config_id: str) -> Answer:
        return self._named("get", task_id, config_id)

    def delete(self, task_id: str, config_id: str) -> Answer:
        return self._named("delete", task_id, config_id)

    def _named(self, what: str, task_id: str, config_id: str) -> Answer:
        if isinstance(self.binding, Rest):
            verb = {"get": "GET", "delete": "DELETE"}[what]
            return self.binding.call(verb, f"/tasks/{task_id}/pushNotificationConfigs/{config_id}")
        assert isinstance(self.binding, Rpc)
        names = ("id", "pushNotificationConfigId") if self.old else ("taskId", "id")
        return self.binding.call(f"push_{what}", dict(zip(names, (task_id, config_id), strict=True)))

    def list(self, task_id: str) -> Answer:
        if isinstance(self.binding, Rest):
            return self.binding.call("GET", f"/tasks/{task_id}/pushNotificationConfigs")
        assert isinstance(self.binding, Rpc)
        return self.binding.call("push_list", {"id" if self.old else "taskId": task_id})


@pytest.fixture
def pushing(serve: Serve) -> str:
    """The demo agent, which may post to this machine."""
    return serve("trunkline.demo:agent", "--dev").base


@pytest.fixture(params=BINDINGS)
def push1(request: pytest.FixtureRequest, pushing: str, http: httpx2.Client) -> Binding:
    """Both bindings of 1.0."""
    return BINDINGS[request.param](pushing, http)


@pytest.fixture(params=EVERY)
def push(request: pytest.FixtureRequest, pushing: str, http: httpx2.Client) -> Binding:
    """Any of the five ways."""
    return EVERY[request.param](pushing, http)


@pytest.fixture(scope="module")
def hooks() -> Iterator[Hooks]:
    with Hooks() as made:
        yield made


_paths = iter(range(1_000_000))


@pytest.fixture
def path() -> str:
    return f"/wire/{next(_paths)}"


def done(binding: Binding) -> str:
    """The id of a task that has ended."""
    result = binding.send_message(binding.message("echo"), wait=True).result
    return result.get("task", result)["id"]


def inner(result: Any) -> Any:
    """A config out of its envelope, if it has one."""
    return result.get("pushNotificationConfig", result)


def test_PSH_01_create_gives_the_config_with_an_id(push: Binding, hooks: Hooks, path: str) -> None:
    configs, task_id = Configs(push), done(push)
    named = configs.set(task_id, {"id": "mine", "url": hooks.url(path)}).result
    assert (inner(named)["id"], inner(named)["url"]) == ("mine", hooks.url(path))
    if isinstance(push, Proto03):
        assert named["name"] == f"tasks/{task_id}/pushNotificationConfigs/mine"
    else:
        assert named["taskId"] == task_id
    unnamed = [inner(configs.set(task_id, {"url": hooks.url(path)}).result)["id"] for _ in range(2)]
    assert len({"mine", *unnamed}) == 3 and all(unnamed)


def test_PSH_02_create_for_an_unknown_task(push1: Binding, pushing: str, http: httpx2.Client) -> None:
    config = {"url": "https://example.com/hook"}
    push1.expect(Configs(push1).set(UNKNOWN, config), "TASK_NOT_FOUND")
    # Before its url is looked at: who may not see the task learns nothing of our network either.
    push1.expect(Configs(push1).set(UNKNOWN, {"url": "http://10.0.0.1/"}), "TASK_NOT_FOUND")
    assert Configs(Rpc03(pushing, http)).set(UNKNOWN, config).error["code"] == -32001
    assert Configs(Proto03(pushing, http)).set(UNKNOWN, config).http == 404


def test_PSH_03_a_config_is_readable_until_it_is_deleted(push1: Binding, hooks: Hooks, path: str) -> None:
    configs, task_id = Configs(push1), done(push1)
    made = configs.set(task_id, {"id": "c", "url": hooks.url(path)}).result
    assert configs.get(task_id, "c").result == made
    hooks.wait(path, 1)
    assert configs.get(task_id, "c").result == made
    configs.delete(task_id, "c")
    push1.expect(configs.get(task_id, "c"), "TASK_NOT_FOUND")


def test_PSH_04_get_gives_the_config_without_its_secrets(push: Binding, hooks: Hooks, path: str) -> None:
    configs, task_id = Configs(push), done(push)
    known = {"schemes": ["Basic"]} if configs.old else {"scheme": "Basic"}
    secrets = {"token": "hush", "authentication": {**known, "credentials": "hush"}}
    made = configs.set(task_id, {"id": "c", "url": hooks.url(path), **secrets})
    got = configs.get(task_id, "c")
    assert got.result == made.result
    assert inner(got.result)["authentication"] == known
    assert b"hush" not in made.body + got.body + configs.list(task_id).body


def test_PSH_04_an_unknown_config(push1: Binding, pushing: str, http: httpx2.Client) -> None:
    configs, task_id = Configs(push1), done(push1)
    push1.expect(configs.get(task_id, "none"), "TASK_NOT_FOUND")
    push1.expect(configs.get(UNKNOWN, "none"), "TASK_NOT_FOUND")
    old = Rpc03(pushing, http)
    assert old.call("push_get", {"id": task_id}).error["code"] == -32001
    assert Rpc(pushing, http).call("push_get", {"taskId": task_id}).error["code"] == -32602


def test_PSH_05_list_gives_all(push: Binding, hooks: Hooks, path: str) -> None:
    configs, task_id = Configs(push), done(push)
    empty = configs.list(task_id).result
    made = [configs.set(task_id, {"id": name, "url": hooks.url(path)}).result for name in ("a", "b", "c")]
    listed = configs.list(task_id).result
    bare = isinstance(empty, list)
    assert bare is (push.version == "0.3" and not isinstance(push, Proto03))
    assert (empty, listed) == (
        ([], made) if bare else ({"configs": [], "nextPageToken": ""}, {"configs": made, "nextPageToken": ""})
    )


def test_PSH_06_delete_removes_and_twice_is_fine(push: Binding, hooks: Hooks, path: str) -> None:
    configs = Configs(push)
    task_id = push.send_message(push.message("ask"), wait=True).result
    task_id = task_id.get("task", task_id)["id"]
    configs.set(task_id, {"id": "c", "url": hooks.url(path)})
    hooks.wait(path, 1)
    for _ in range(2):
        answer = configs.delete(task_id, "c")
        assert (answer.http, answer.error) == (200, None)
        assert answer.result == ({} if isinstance(push, Rest) else None)
    push.send_message(push.message("blue", taskId=task_id), wait=True)
    configs.set(task_id, {"id": "after", "url": hooks.url(f"{path}/after")})
    hooks.wait(f"{path}/after", 1)
    assert len(hooks.on(path)) == 1


def test_PSH_08_a_config_without_a_url(push1: Binding) -> None:
    configs, task_id = Configs(push1), done(push1)
    for config in ({}, {"url": ""}, {"token": "t"}):
        answer = configs.set(task_id, config)
        push1.expect(answer, "INVALID_PARAMS")
        assert answer.fields == ["url"]


@pytest.mark.parametrize("wait", [True, False])
def test_PSH_09_a_config_that_comes_with_a_message(
    push1: Binding, hooks: Hooks, path: str, wait: bool
) -> None:
    config = {"id": "c", "url": hooks.url(path)}
    task = push1.send_message(push1.message("echo"), wait=wait, taskPushNotificationConfig=config).task
    assert hooks.states(path, 2) == ["working", "completed"]
    assert [one["id"] for one in Configs(push1).list(task["id"]).result["configs"]] == ["c"]


def test_PSH_09_a_config_that_comes_with_a_streamed_message(push1: Binding, hooks: Hooks, path: str) -> None:
    with push1.stream(push1.message("echo"), taskPushNotificationConfig={"url": hooks.url(path)}) as frames:  # type: ignore[attr-defined]
        frames.all()
    assert hooks.states(path, 2) == ["working", "completed"]


def test_PSH_09_a_config_that_comes_with_an_answer(push1: Binding, hooks: Hooks, path: str) -> None:
    task_id = push1.send_message(push1.message("ask"), wait=True).task["id"]
    message = push1.message("blue", taskId=task_id)
    push1.send_message(message, taskPushNotificationConfig={"url": hooks.url(path)})
    assert hooks.states(path, 2) == ["working", "completed"]


@pytest.mark.parametrize("text", ["echo", "fail", "ask", "chunks 3"])
def test_PDL_01_the_body_is_one_stream_response(push1: Binding, hooks: Hooks, path: str, text: str) -> None:
    push1.send_message(push1.message(text), taskPushNotificationConfig={"url": hooks.url(path)})
    for post in hooks.wait(path, 2):
        assert len(post.body) == 1
        read = json_format.ParseDict(post.body, pb.StreamResponse())
        assert read.WhichOneof("payload") in ("task", "status_update")


@pytest.mark.parametrize(
    ("scheme", "credentials"), [("Bearer", "abc.def"), ("Basic", "dXNlcjpwdw=="), ("X-Odd", "a b=c")]
)
def test_PDL_02_credentials_as_configured(
    push1: Binding, hooks: Hooks, path: str, scheme: str, credentials: str
) -> None:
    config = {"url": hooks.url(path), "authentication": {"scheme": scheme, "credentials": credentials}}
    push1.send_message(push1.message("echo"), taskPushNotificationConfig=config)
    assert {post.headers["authorization"] for post in hooks.wait(path, 2)} == {f"{scheme} {credentials}"}


def test_PDL_03_every_webhook_is_tried(push1: Binding, hooks: Hooks, path: str) -> None:
    task_id = push1.send_message(push1.message("ask"), wait=True).task["id"]
    places = [f"{path}/{place}" for place in range(4)]
    for place in places:
        Configs(push1).set(task_id, {"url": hooks.url(place)})
    hooks.scripts[places[0]] = [400]
    push1.send_message(push1.message("blue", taskId=task_id))
    for place in places:
        assert hooks.states(place, 3)[-1] == "completed"


def test_PDL_04_what_fails_is_tried_again(push1: Binding, hooks: Hooks, path: str) -> None:
    # Growing gaps, to the end of the schedule: AG-29.
    hooks.scripts[path] = [503, 200]
    Configs(push1).set(done(push1), {"url": hooks.url(path, f"127.0.4.{1 + (push1.name == 'JSONRPC')}")})
    first, second = hooks.wait(path, 2)
    assert (first.raw, first.id) == (second.raw, second.id)
    assert second.at - first.at >= 0.8


def test_PDL_05_a_hung_webhook_delays_nobody(push1: Binding, hooks: Hooks, path: str) -> None:
    hooks.hold(f"{path}/hung")
    config = {"url": hooks.url(f"{path}/hung", "127.0.4.9")}
    task = push1.send_message(push1.message("echo"), wait=True, taskPushNotificationConfig=config).task
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    Configs(push1).set(task["id"], {"url": hooks.url(path)})
    assert hooks.states(path, 1) == ["completed"]
    hooks.gates.pop(f"{path}/hung").set()


def test_PDL_06_private_addresses_are_refused(push1: Binding) -> None:
    # Loopback is allowed on this server; on others see AG-33.
    configs, task_id = Configs(push1), done(push1)
    for host in (
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "[::ffff:10.0.0.1]",
        "[fd00::1]",
        "0.0.0.0",
    ):
        answer = configs.set(task_id, {"url": f"http://{host}/hook"})
        push1.expect(answer, "INVALID_PARAMS")
        assert answer.fields == ["url"]


def test_PDL_07_redirects_are_not_followed(push1: Binding, hooks: Hooks, path: str) -> None:
    inside = f"{path}/inside"
    hooks.scripts[path] = [(status, {"Location": hooks.url(inside)}) for status in (301, 302, 303, 307, 308)]
    for _ in range(5):
        Configs(push1).set(done(push1), {"url": hooks.url(path)})
    hooks.wait(path, 5)
    Configs(push1).set(done(push1), {"url": hooks.url(f"{path}/last")})
    hooks.wait(f"{path}/last", 1)
    assert (len(hooks.on(path)), hooks.on(inside)) == (5, [])


def test_PDL_08_the_same_payload_whichever_binding_made_the_task(
    pushing: str, hooks: Hooks, path: str, http: httpx2.Client
) -> None:
    def told(binding: Binding, place: str) -> list[Any]:
        config = {"url": hooks.url(place)}
        binding.send_message(binding.message("echo same"), wait=True, **{_inline(binding): config})
        return [_without_ids(post.body) for post in hooks.wait(place, 2)]

    rpc, rest = (told(BINDINGS[name](pushing, http), f"{path}/{name}") for name in ("rpc", "rest"))
    assert rpc == rest
    old = [told(EVERY[name](pushing, http), f"{path}/{name}") for name in ("rpc03", "proto03", "alias03")]
    assert old[0] == old[1] == old[2]
    assert [body["kind"] for body in old[0]] == ["status-update"] * 2


def _inline(binding: Binding) -> str:
    if isinstance(binding, Proto03):
        return "pushNotification"
    return "pushNotificationConfig" if binding.version == "0.3" else "taskPushNotificationConfig"


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_ids(one)
            for name, one in value.items()
            if name not in ("id", "taskId", "contextId", "timestamp")
        }
    return [_without_ids(one) for one in value] if isinstance(value, list) else value
