"""`trunkline task push-config …` and `trunkline push …`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted
from tests.cli.test_send import fields

Make = Callable[..., Scripted]


@pytest.mark.parametrize("spelled", [("task", "push-config"), ("push",)])
def test_a_config_is_made_shown_listed_and_forgotten(
    trunkline: Run, demo_url: str, spelled: tuple[str, ...]
) -> None:
    known = fields(trunkline("send", demo_url, "sleep 60", "--async")[1])["Task"]
    url = "http://127.0.0.1:9/hook"
    words = ("--url", url, "--token", "tok-en", "--scheme", "Bearer", "--credentials", "cred")
    code, out, _ = trunkline(*spelled, "create", demo_url, known, *words, "--id", "mine", "-o", "json")
    made = json.loads(out)
    assert code == 0
    assert (made["id"], made["taskId"], made["url"]) == ("mine", known, url)
    assert json.loads(trunkline(*spelled, "get", demo_url, known, "mine", "-o", "json")[1])["url"] == url
    listed = json.loads(trunkline(*spelled, "list", demo_url, known, "-o", "json")[1])
    assert [config["id"] for config in listed["configs"]] == ["mine"]
    text = trunkline(*spelled, "list", demo_url, known)[1]
    assert fields(text)["Config"] == f"mine {url}"
    assert fields(trunkline(*spelled, "delete", demo_url, known, "mine")[1])["Deleted"] == "mine"
    assert fields(trunkline(*spelled, "list", demo_url, known)[1])["Configs"] == "0"
    trunkline("cancel", demo_url, known)


def test_the_card_is_asked_first(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    for words in (("list", peer.url, "t1"), ("get", peer.url, "t1", "c"), ("delete", peer.url, "t1", "c")):
        code, out, _ = trunkline("push", *words, "-o", "json")
        assert (code, json.loads(out)["error"]["code"]) == (1, "PushNotificationNotSupportedError")
    assert all(name.startswith("/") for name, _, _ in peer.asked)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create", "t1"), "--url"),
        (("create", "t1", "--url", "https://x.example", "--credentials", "c"), "--scheme"),
        (("get", "t1"), "the config's"),
        (("delete",), "the config's"),
    ],
)
def test_usage(trunkline: Run, demo_url: str, words: tuple[str, ...], says: str) -> None:
    code, _, err = trunkline("push", *words, "-a", demo_url)
    assert code == 2
    assert says in err
