"""AG-28 to AG-43 and D-18 to D-22: push notifications over real HTTP, in both versions, on both stores."""

from __future__ import annotations

import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agent.talk import VERSIONS, Talk, until
from tests.conftest import Shelf
from tests.harness import SECRET, Agent, ServerProcess, params, plain_state
from tests.hooks import Hooks
from trunkline.errors import Unauthenticated
from trunkline.webhook import Receiver
from trunkline.wire.types import TaskState

INLINE = {"1.0": "taskPushNotificationConfig", "0.3": "pushNotificationConfig"}


class Pushed(Talk):
    """A conversation with an agent that pushes."""

    def __init__(self, server: ServerProcess, version: str) -> None:
        super().__init__(Agent(server.base), version)
        self.server = server

    def begin(self, text: str, config: Any, *, wait: bool = True) -> Any:
        """The whole answer to a message that brings a config along."""
        given = params(text, self.version, wait)
        given["configuration"][INLINE[self.version]] = config
        return self.agent.rpc(self.methods["send"], given, version=self.version)

    def told(self, text: str, config: Any, *, wait: bool = True) -> str:
        """The id of the task that such a message leads to."""
        result = self.begin(text, config, wait=wait)["result"]
        return result.get("task", result)["id"]

    def set(self, task_id: str, config: Any) -> Any:
        return self.result("push set", self.params(task_id, config))

    def params(self, task_id: str, config: Any) -> Any:
        if self.version == "1.0":
            return {"taskId": task_id, **config}
        return {"taskId": task_id, "pushNotificationConfig": config}

    def delete(self, task_id: str, config_id: str) -> None:
        assert self.result("push delete", self.named(task_id, config_id)) is None

    def named(self, task_id: str, config_id: str) -> Any:
        if self.version == "1.0":
            return {"taskId": task_id, "id": config_id}
        return {"id": task_id, "pushNotificationConfigId": config_id}

    def configs(self, task_id: str) -> list[Any]:
        """All configs, out of their envelopes."""
        if self.version == "1.0":
            return self.result("push list", {"taskId": task_id})["configs"]
        return [one["pushNotificationConfig"] for one in self.result("push list", {"id": task_id})]


@pytest.fixture(scope="module")
def push_server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    """The demo agent, which may post to this machine."""
    directory = tmp_path_factory.mktemp("push")
    with ServerProcess(
        directory, "trunkline.demo:agent", "--dev", "--log-level", "debug", store=shelf.store(), env=SECRET
    ) as server:
        yield server


@pytest.fixture
def pushed(push_server: ServerProcess, version: str) -> Iterator[Pushed]:
    made = Pushed(push_server, version)
    yield made
    made.agent.close()


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> Iterator[ServerProcess]:
    """The demo agent as it is for others: it posts to public addresses only."""
    directory, store = tmp_path_factory.mktemp("guarded"), shelf.store()
    with ServerProcess(directory, store=store, env=SECRET) as server:
        yield server


@pytest.fixture
def guarded(guarded_server: ServerProcess, version: str) -> Iterator[Pushed]:
    made = Pushed(guarded_server, version)
    yield made
    made.agent.close()


@pytest.fixture(scope="module")
def hooks() -> Iterator[Hooks]:
    with Hooks() as made:
        yield made


_paths = iter(range(1_000_000))


@pytest.fixture
def path() -> str:
    """A path of the receiver that nobody else uses."""
    return f"/{next(_paths)}"


# Delivery


@pytest.mark.slow
def test_AG_28_29_the_schedule_of_retries(tmp_path: Path, hooks: Hooks) -> None:
    with ServerProcess(tmp_path, "trunkline.demo:agent", "--dev", store="memory:") as server:
        never, third = {}, {}
        for place, version in enumerate(VERSIONS):
            talk = Pushed(server, version)
            # One delivery each: of an end, to who comes late. Each at a host of its own.
            for kind, script in ((never, [500]), (third, [500, 500, 200])):
                path = f"/schedule/{version}/{len(script)}"
                hooks.scripts[path] = list(script)
                task_id = talk.send("echo")["id"]
                talk.set(task_id, {"url": hooks.url(path, f"127.0.2.{place * 2 + len(script)}")})
                kind[path] = task_id
            talk.agent.close()
        for path, task_id in never.items():
            posts = hooks.wait(path, 4, limit_s=60)
            gaps = [after.at - before.at for before, after in zip(posts, posts[1:], strict=False)]
            for gap, wait in zip(gaps, (1, 3, 9), strict=True):
                assert 0.8 * wait <= gap <= 1.2 * wait + 0.3, gaps
            assert len({post.id for post in posts}) == 1
            said = until(
                lambda task_id=task_id: (
                    re.findall(rf"(\w+) delivery.(\w+) task={task_id}", server.text())[3:]
                    and re.findall(rf"(\w+) delivery.(\w+) task={task_id}", server.text())
                )
            )
            assert said == [("WARNING", "retry")] * 3 + [("ERROR", "dead")]
        for path in third:
            assert len(hooks.on(path)) == 3
        assert all(len(hooks.on(path)) == 4 for path in never)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 302])
def test_AG_30_a_refusal_is_not_repeated_and_not_called_delivered(
    pushed: Pushed, hooks: Hooks, path: str, status: int
) -> None:
    elsewhere = f"{path}/elsewhere"
    hooks.scripts[path] = [(status, {"Location": hooks.url(elsewhere)})]
    task_id = pushed.told("echo", {"url": hooks.url(path)})
    assert hooks.states(path, 2) == ["working", "completed"]
    lines = until(
        lambda: (
            (
                found := re.findall(
                    rf"delivery\.(\w+) task={task_id} state=(\S+) status=(\d+)", pushed.server.text()
                )
            )[1:]
            and found
        )
    )
    assert lines == [("dead", "working", str(status)), ("dead", "completed", str(status))]
    assert (len(hooks.on(path)), hooks.on(elsewhere)) == (2, [])


@pytest.mark.parametrize(
    ("config", "authorization", "token"),
    [
        ({"token": "tok"}, "Bearer tok", "tok"),
        (
            {"authentication": {"schemes": ["Bearer"], "scheme": "Bearer", "credentials": "cred"}},
            "Bearer cred",
            None,
        ),
        ({}, None, None),
    ],
    ids=["token", "credentials", "none"],
)
def test_AG_31_32_the_token_is_a_bearer_token(
    pushed: Pushed, hooks: Hooks, path: str, config: Any, authorization: str | None, token: str | None
) -> None:
    pushed.told("echo", {"url": hooks.url(path), **config})
    for post in hooks.wait(path, 2):
        assert post.headers.get("authorization") == authorization
        assert post.headers.get("x-a2a-notification-token") == token


def test_AG_31_of_two_tokens_the_version_decides(pushed: Pushed, hooks: Hooks, path: str) -> None:
    both = {
        "token": "tok",
        "authentication": {"schemes": ["Bearer"], "scheme": "Bearer", "credentials": "cred"},
    }
    pushed.told("echo", {"url": hooks.url(path), **both})
    wanted = "Bearer cred" if pushed.version == "1.0" else "Bearer tok"
    for post in hooks.wait(path, 2):
        assert post.headers["authorization"] == wanted
        assert post.headers["x-a2a-notification-token"] == "tok"


# Where it may go

UNSAFE = [
    "file:///etc/passwd", "ftp://hooks.example/", "gopher://hooks.example/", "/relative", "https://", "no url",
    "http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://0.0.0.0/", "http://10.1.2.3/",
    "http://172.16.0.1/", "http://172.31.255.255/", "http://192.168.1.1/", "http://169.254.169.254/latest/",
    "http://100.64.0.1/", "http://192.0.0.8/", "http://198.18.0.1/", "http://224.0.0.1/", "http://[fe80::1]/",
    "http://[fc00::1]/", "http://[::ffff:10.0.0.1]/", "http://[2002:7f00:1::]/", "http://2130706433/",
    "http://0x7f000001/", "http://127.1/", "http://user:pw@hooks.example/", "http://no-such-host.invalid/",
]  # fmt: skip


def test_AG_33_D_22_unsafe_urls_are_refused_when_set(guarded: Pushed) -> None:
    task_id = guarded.send("echo")["id"]
    for url in UNSAFE:
        error = guarded.error("push set", guarded.params(task_id, {"url": url}))
        assert error["code"] == -32602, url
        assert "pw@" not in error["message"]
        for prefix, headers in (("", {"A2A-Version": guarded.version}), ("/v1", {})):
            body = {"url": url} if guarded.version == "1.0" else {"pushNotificationConfig": {"url": url}}
            answer = guarded.agent.http.post(
                f"{guarded.agent.base}{prefix}/tasks/{task_id}/pushNotificationConfigs",
                json=body,
                headers=headers,
            )
            assert answer.status_code == 400, (url, answer.text)
    assert guarded.configs(task_id) == []


def test_AG_34_an_unsafe_url_in_a_message_is_refused_and_makes_no_task(guarded: Pushed) -> None:
    before = guarded.count()
    for url in (
        "http://127.0.0.1/",
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "http://u:p@hooks.example/",
    ):
        error = guarded.begin("echo", {"url": url})["error"]
        assert error["code"] == -32602
        assert f"{INLINE[guarded.version]}.url" in str(error)
    assert guarded.count() == before


@pytest.mark.slow
def test_AG_36_what_the_operator_allows(tmp_path: Path, hooks: Hooks, path: str) -> None:
    allowed = {
        "TRUNKLINE_EGRESS_HOSTS": "localhost",
        "TRUNKLINE_EGRESS_NETWORKS": "300.1.2.3/99,127.0.0.9/32,nonsense",
    }
    with ServerProcess(tmp_path, store="memory:", env=allowed) as server:
        talk = Pushed(server, "1.0")
        talk.told("echo", {"url": hooks.url(path, "localhost")})
        assert hooks.states(path, 2) == ["working", "completed"]
        talk.told("echo", {"url": hooks.url(path, "127.0.0.9")})
        assert hooks.states(path, 4)[2:] == ["working", "completed"]
        assert talk.begin("echo", {"url": hooks.url(path, "127.0.0.8")})["error"]["code"] == -32602
        assert re.findall(r"egress.ignored network='(\S+)'", server.text()) == ["300.1.2.3/99", "nonsense"]
        talk.agent.close()


# When it is set


def test_AG_37_a_config_that_is_set_during_the_work(pushed: Pushed, hooks: Hooks, path: str) -> None:
    task = pushed.send("hold 1", wait=False)
    pushed.until(task["id"], "working")
    pushed.set(task["id"], {"url": hooks.url(path)})
    pushed.send("release")
    (post,) = hooks.wait(path, 1)
    assert (post.state, post.told.get("taskId") or post.told["id"]) == ("completed", task["id"])
    assert post.headers["a2a-version"] == pushed.version


def test_AG_38_a_config_that_is_set_after_the_end(pushed: Pushed, hooks: Hooks, path: str) -> None:
    task = pushed.send("echo late")
    began = time.monotonic()
    pushed.set(task["id"], {"url": hooks.url(path)})
    (post,) = hooks.wait(path, 1)
    assert post.at - began < 1
    assert post.state == "completed"
    assert b"echo late" in post.raw


def test_AG_39_delete_and_replace(pushed: Pushed, hooks: Hooks, path: str) -> None:
    gone, old, new = f"{path}/gone", f"{path}/old", f"{path}/new"
    task_id = pushed.send("hold 1", wait=False)["id"]
    pushed.until(task_id, "working")
    pushed.set(task_id, {"id": "a", "url": hooks.url(gone)})
    pushed.set(task_id, {"id": "b", "url": hooks.url(old)})
    assert [one["id"] for one in pushed.configs(task_id)] == ["a", "b"]
    pushed.delete(task_id, "a")
    pushed.delete(task_id, "a")
    pushed.set(task_id, {"id": "b", "url": hooks.url(new)})
    assert [(one["id"], one["url"]) for one in pushed.configs(task_id)] == [("b", hooks.url(new))]
    pushed.send("release")
    assert hooks.states(new, 1) == ["completed"]
    pushed.delete(task_id, "b")
    assert pushed.configs(task_id) == []
    assert (hooks.on(gone), hooks.on(old)) == ([], [])


def test_AG_39_several_configs_are_all_told(pushed: Pushed, hooks: Hooks, path: str) -> None:
    task_id = pushed.told("ask", {"url": hooks.url(f"{path}/a")})
    pushed.set(task_id, {"url": hooks.url(f"{path}/b", "127.0.0.3")})
    pushed.send("blue", taskId=task_id)
    assert hooks.states(f"{path}/a", 4) == ["working", "input-required", "working", "completed"]
    # Who comes while it waits for an answer hears that first.
    assert hooks.states(f"{path}/b", 3) == ["input-required", "working", "completed"]


# What is told


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("echo", ["working", "completed"]),
        ("sleep 0.2", ["working", "completed"]),
        ("fail", ["working", "failed"]),
    ],
)
def test_AG_40_D_19_one_post_per_transition_in_order(
    pushed: Pushed, hooks: Hooks, path: str, text: str, states: list[str]
) -> None:
    task_id = pushed.told(text, {"url": hooks.url(path)})
    posts = hooks.wait(path, len(states))
    assert [post.state for post in posts] == states
    assert len({post.id for post in posts}) == len(states)
    # Nothing more follows: a marker, posted to the same place later, comes next.
    pushed.set(task_id, {"id": "marker", "url": hooks.url(path)})
    assert hooks.states(path, len(states) + 1) == [*states, states[-1]]


def test_AG_40_a_config_that_comes_with_every_message_is_one(pushed: Pushed, hooks: Hooks, path: str) -> None:
    config = {"url": hooks.url(path)}
    task_id = pushed.told("ask which?", config)
    given = params("this one", pushed.version, True)
    given["message"]["taskId"] = task_id
    given["configuration"][INLINE[pushed.version]] = config
    assert "result" in pushed.agent.rpc(pushed.methods["send"], given, version=pushed.version)
    assert hooks.states(path, 4) == ["working", "input-required", "working", "completed"]
    assert len(pushed.configs(task_id)) == 1


def test_AG_40_D_18_a_cancel_is_told_once(pushed: Pushed, hooks: Hooks, path: str) -> None:
    task_id = pushed.told("hold 1", {"url": hooks.url(path)}, wait=False)
    pushed.until(task_id, "working")
    assert plain_state(pushed.result("cancel", {"id": task_id})) == "canceled"
    pushed.send("release")
    pushed.set(task_id, {"id": "marker", "url": hooks.url(path)})
    posts = hooks.wait(path, 3)
    assert [post.state for post in posts] == ["working", "canceled", "canceled"]
    assert [post.headers["webhook-id"] for post in posts[:2]] == sorted({post.id for post in posts[:2]})


def test_AG_41_the_body(pushed: Pushed, hooks: Hooks, path: str) -> None:
    task_id = pushed.told("echo hello", {"url": hooks.url(path)})
    working, completed = hooks.wait(path, 2)
    task = pushed.get(task_id)
    assert all(post.headers["content-type"] == "application/json" for post in (working, completed))
    if pushed.version == "1.0":
        assert (list(working.body), list(completed.body)) == (["statusUpdate"], ["task"])
        assert working.told["taskId"] == task_id
        # The task as it can be fetched, without what the caller has said himself.
        assert completed.told == {name: value for name, value in task.items() if name != "history"}
    else:
        assert (working.body["kind"], working.body["final"]) == ("status-update", False)
        assert "artifact" not in working.body
        told = completed.body
        assert (told["kind"], told["taskId"], told["contextId"]) == (
            "status-update",
            task_id,
            task["contextId"],
        )
        assert (told["status"], told["final"]) == (task["status"], True)
        artifact = told["artifact"]
        assert (artifact.pop("append"), artifact.pop("lastChunk")) == (False, True)
        assert [artifact] == task["artifacts"]


def test_AG_43_D_19_the_moment_of_the_transition_counts(pushed: Pushed, hooks: Hooks, path: str) -> None:
    gate = hooks.hold(path)
    task_id = pushed.told("echo over", {"url": hooks.url(path, "127.0.0.4")})
    assert plain_state(pushed.get(task_id)) == "completed"
    (post,) = hooks.wait(path, 1)
    assert (post.state, b"over" in post.raw) == ("working", False)
    gate.set()
    assert hooks.states(path, 2) == ["working", "completed"]
    # And for one that is first posted when all is over.
    hooks.scripts[f"{path}/down"] = [503, 200]
    pushed.told("echo over", {"url": hooks.url(f"{path}/down", "127.0.0.5")})
    first, again, _ = hooks.wait(f"{path}/down", 3)
    assert (first.raw, first.id) == (again.raw, again.id)
    assert first.state == "working"


def test_our_own_receiver_believes_and_reads_it(pushed: Pushed, hooks: Hooks, path: str) -> None:
    pushed.told("echo signed", {"url": hooks.url(path), "token": "tok"})
    posts = hooks.wait(path, 2)
    jwks = pushed.agent.http.get(f"{pushed.agent.base}/.well-known/jwks.json")
    receiver = Receiver(tokens=["tok"], keys=jwks.content)
    working, completed = (receiver.receive(post.headers, post.raw) for post in posts)
    assert (working.state, working.final) == (TaskState.WORKING, False)
    assert (completed.state, completed.final, completed.text) == (TaskState.COMPLETED, True, "echo signed")
    assert [working.id, completed.id] == [post.id for post in posts]
    assert receiver.receive(posts[0].headers, posts[0].raw).repeated
    with pytest.raises(Unauthenticated):
        receiver.receive(posts[0].headers, posts[0].raw + b" ")


# Secrets


def test_AG_42_secrets_stay_out_of_answers_and_logs_and_the_store(
    tmp_path: Path, shelf: Shelf, hooks: Hooks, path: str
) -> None:
    planted = [
        "planted-token-1",
        "planted-credential-2",
        "planted-artifact-3",
        "planted-query-4",
        SECRET["TRUNKLINE_SECRET_KEY"],
    ]
    store = shelf.store()
    answers: list[str] = []
    with ServerProcess(
        tmp_path, "trunkline.demo:agent", "--dev", "--log-level", "debug", store=store, env=SECRET
    ) as server:
        for version in VERSIONS:
            talk = Pushed(server, version)
            config = {
                "url": hooks.url(f"{path}?key={planted[3]}"),
                "token": planted[0],
                "authentication": {"schemes": ["Basic"], "scheme": "Basic", "credentials": planted[1]},
            }
            task_id = talk.told(f"echo {planted[2]}", config)
            hooks.scripts[f"{path}?key={planted[3]}"] = [200, 401, 200]
            answers.append(str(talk.set(task_id, {**config, "id": "c"})))
            answers.append(str(talk.configs(task_id)))
            answers.append(str(talk.result("push get", talk.named(task_id, "c"))))
            posts = hooks.wait(f"{path}?key={planted[3]}", 3)
            assert planted[0] in str(posts[0].headers)
            until(lambda task_id=task_id: server.text().count(f"task={task_id} state=") >= 3)
            hooks.posts.clear()
            talk.agent.close()
        assert server.stop(signal.SIGTERM) == 0
        text = server.text()
    assert [secret for secret in planted if secret in text] == []
    assert re.search(r"INFO delivery.done task=\S+ state=completed status=200", text)
    assert [secret for secret in (*planted[:2], planted[4]) if secret in "".join(answers)] == []
    if store.startswith("sqlite"):
        raw = b"".join(file.read_bytes() for file in tmp_path.glob("tasks.db*"))
        assert planted[2].encode() in raw
        assert [secret for secret in (*planted[:2], planted[4]) if secret.encode() in raw] == []
        rows = sqlite3.connect(f"file:{tmp_path / 'tasks.db'}?mode=ro", uri=True)
        assert rows.execute("SELECT count(*) FROM outbox WHERE state <> 'pending'").fetchone() == (6,)
        rows.close()


def test_push_secrets_show_gives_them_back(tmp_path: Path, hooks: Hooks, path: str) -> None:
    shown = ("--set", "push_secrets=show", "--set", "push_format=task")
    with ServerProcess(tmp_path, "trunkline.demo:agent", "--dev", *shown, store="memory:") as server:
        talk = Pushed(server, "1.0")
        task_id = talk.told("echo", {"url": hooks.url(path), "token": "tok"})
        assert [one["token"] for one in talk.configs(task_id)] == ["tok"]
        # And what is told is the task, whatever happened.
        assert [list(post.body) for post in hooks.wait(path, 2)] == [["task"], ["task"]]
        talk.agent.close()


# Trouble


def test_410_disables_a_config(pushed: Pushed, hooks: Hooks, path: str) -> None:
    hooks.scripts[path] = [410]
    task_id = pushed.told("ask", {"url": hooks.url(path)})
    hooks.wait(path, 1)
    until(lambda: pushed.configs(task_id) == [])
    pushed.send("blue", taskId=task_id)
    pushed.set(task_id, {"url": hooks.url(f"{path}/after")})
    assert hooks.states(f"{path}/after", 1) == ["completed"]
    assert len(hooks.on(path)) == 1


def test_429_is_heard(push_server: ServerProcess, hooks: Hooks, path: str) -> None:
    hooks.scripts[path] = [(429, {"Retry-After": "2"}), 200]
    pushed = Pushed(push_server, "1.0")
    task_id = pushed.send("echo")["id"]
    pushed.set(task_id, {"url": hooks.url(path, "127.0.0.6")})
    first, second = hooks.wait(path, 2)
    assert second.at - first.at >= 2
    pushed.agent.close()


def test_row_27_one_of_fifty_targets_hangs(pushed: Pushed, hooks: Hooks, path: str) -> None:
    bad = f"{path}/bad"
    hooks.hold(bad)
    urls = [hooks.url(f"{path}/{place}", f"127.0.3.{place}") for place in range(1, 50)]
    for _ in range(12):
        pushed.told("echo", {"url": hooks.url(bad, "127.0.3.250")}, wait=False)
    for url in urls:
        pushed.told("echo", {"url": url}, wait=False)
    for place in range(1, 50):
        assert hooks.states(f"{path}/{place}", 2) == ["working", "completed"]
    assert 1 <= hooks.most[bad] <= 10
    hooks.gates.pop(bad).set()


@pytest.mark.slow
def test_kill_9_between_post_and_settle(tmp_path: Path, hooks: Hooks, path: str) -> None:
    gate = hooks.hold(path)
    server = ServerProcess(tmp_path, "trunkline.demo:agent", "--dev").start()
    talk = Pushed(server, "1.0")
    task_id = talk.told("echo survives", {"url": hooks.url(path), "token": "tok"})
    (before,) = hooks.wait(path, 1)
    server.kill()
    talk.agent.close()
    hooks.gates.pop(path)
    gate.set()
    with ServerProcess(tmp_path, "trunkline.demo:agent", "--dev") as server:
        _, again, last = hooks.wait(path, 3)
        assert (again.id, again.raw) == (before.id, before.raw)
        assert [again.state, last.state] == ["working", "completed"]
        assert last.headers["authorization"] == "Bearer tok"
        assert b"survives" in last.raw
        until(lambda: server.text().count(f"delivery.done task={task_id}") == 2)
    assert len(hooks.on(path)) == 3
