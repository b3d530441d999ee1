"""AG-56 and AG-59: the card declares what runs emit; the caller chooses. Over real HTTP, both versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.conformance.agent.talk import Talk, bodies, data_parts, report_of, reports_in
from tests.harness import NO_TLS, V1, params, plain_state

URI = "https://proto-labs.ai/a2a/ext/"
DOMAIN = "effect-domain-v1"
COST, CONFIDENCE = URI + "cost-v1", URI + "confidence-v1"
# Every way in which the demo agent can run.
RUNS = [
    ("echo hi", {}),
    ("usage", {}),
    ("usage fail", {}),
    ("confidence 0.5", {}),
    ("effect", {}),
    ("effect fail", {}),
    ("message hi", {}),
    ("2", {"skill": "steps"}),
    ("hi", {"skill": "tally"}),
    ("hi", {"skill": "echo"}),
]


def card_of(talk: Talk) -> Any:
    headers = V1 if talk.version == "1.0" else {}
    return talk.agent.http.get(f"{talk.agent.base}/.well-known/agent-card.json", headers=headers).json()


def declared(talk: Talk) -> dict[str, Any]:
    """The extensions on the card that speak of runs, by their names."""
    found = card_of(talk)["capabilities"]["extensions"]
    assert all(one["description"] and one["required"] is False for one in found)
    return {one["uri"].removeprefix(URI): one for one in found if one["uri"].startswith(URI)}


def _uris(value: Any) -> Iterator[str]:
    """Every extension that a task or a message shows, in whichever way."""
    yield from (name for name in value.get("metadata", {}) if name.startswith(URI))
    for artifact in value.get("artifacts", [value] if "parts" in value else []):
        yield from artifact.get("extensions", [])
        yield from (name for name in artifact.get("metadata", {}) if name.startswith(URI))
        for part in artifact["parts"]:
            if name := report_of(part):
                yield URI + name


def test_AG_56_declared_is_emitted_and_emitted_is_declared(talk: Talk) -> None:
    seen: set[str] = set()
    for text, metadata in RUNS:
        seen |= {uri.removeprefix(URI) for uri in _uris(talk.send(text, metadata=metadata))}
    # The effects of skills are on the card alone; AG-59 holds runs to them.
    assert seen == declared(talk).keys() - {DOMAIN}
    assert len(seen) == 3


def test_AG_56_declared_skills_exist(talk: Talk) -> None:
    known = {skill["id"] for skill in card_of(talk)["skills"]}
    named = [one["params"]["skills"].keys() for one in declared(talk).values() if "params" in one]
    assert [set(ids) <= known for ids in named] == [True]


def test_AG_56_both_cards_declare_the_same(talk: Talk) -> None:
    other = Talk(talk.agent, "0.3" if talk.version == "1.0" else "1.0")
    assert declared(talk) == declared(other)


def test_AG_59_what_a_skill_declares_is_what_its_runs_do(talk: Talk) -> None:
    skills = declared(talk)[DOMAIN]["params"]["skills"]
    assert skills.keys() == {"tally"}
    for skill, one in skills.items():
        task = talk.send("hi", metadata={"skill": skill})
        (emitted,) = reports_in(talk, task, "worldstate-delta-v1")
        done = [(delta["domain"], delta["path"], delta["value"] > 0) for delta in emitted["deltas"]]
        assert done == [(each["domain"], each["path"], each["delta"] > 0) for each in one["effects"]]
        assert all(0 <= each["confidence"] <= 1 for each in one["effects"])


Sent = list[tuple[str, str]]


def post(talk: Talk, text: str, headers: Sent) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": talk.methods["send"], "params": params(text, talk.version)}
    version = list(V1.items()) if talk.version == "1.0" else []
    return talk.agent.http.post(
        talk.agent.url,
        content=json.dumps(body).encode(),
        headers=[("Content-Type", "application/json"), *version, *headers],
    )


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ([("A2A-Extensions", COST)], {"a2a-extensions": COST}),
        ([("X-A2A-Extensions", COST)], {"a2a-extensions": COST, "x-a2a-extensions": COST}),
        ([("A2A-Extensions", f"urn:x,{CONFIDENCE}"), ("A2A-Extensions", COST)], None),
        ([("A2A-Extensions", CONFIDENCE), ("X-A2A-Extensions", COST)], None),
        ([("a2a-extensions", f"{CONFIDENCE} , {COST}, {COST}")], None),
    ],
)
def test_the_caller_names_what_it_wants(talk: Talk, headers: Sent, named: dict[str, str] | None) -> None:
    response = post(talk, "usage", headers)
    task = response.json()["result"]
    assert len(data_parts(task.get("task", task), "cost-v1")) == 1
    found = {name: value for name, value in response.headers.items() if "extensions" in name}
    if named is None:
        assert found["a2a-extensions"] == f"{CONFIDENCE}, {COST}"
    else:
        assert found == named


def test_what_the_caller_does_not_name_is_left_out(talk: Talk) -> None:
    response = post(talk, "usage", [("A2A-Extensions", CONFIDENCE)])
    task = response.json()["result"]
    assert list(_uris(task.get("task", task))) == []
    assert response.headers["a2a-extensions"] == CONFIDENCE, "spoken here, though this run had nothing to say"


def test_streams_name_them_too(talk: Talk) -> None:
    given = params("usage", talk.version)
    with talk.open("stream", given, A2A_Extensions=f"urn:x, {COST}") as frames:
        assert frames.response.headers["a2a-extensions"] == COST
        closed = bodies(frames.all(), "artifact-update")[-1]["artifact"]
    assert closed["extensions"] == [COST]


@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
@pytest.mark.parametrize("value", ["u" * 257, ",".join(f"urn:{number}" for number in range(33))])
def test_bounds(talk: Talk, header: str, value: str) -> None:
    error = post(talk, "usage", [(header, value)]).json()["error"]
    assert error["code"] == -32602
    assert header in error["message"]
    assert header in json.dumps(error["data"])


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/message:send", {"A2A-Version": "1.0"}, 200),
        ("/v1/message:send", {}, 200),
        ("/message:send", {}, 202),
    ],
)
def test_rest_names_them_too(demo_server: Any, path: str, headers: dict[str, str], status: int) -> None:
    part = {"text": "usage"} if path.startswith("/v1") or headers else {"kind": "text", "text": "usage"}
    message = {"messageId": "m", "role": "ROLE_USER" if path.startswith("/v1") or headers else "user"}
    body = {"message": {**message, ("content" if path.startswith("/v1") else "parts"): [part]}}
    response = httpx2.post(
        demo_server.base + path,
        json=body,
        headers={**headers, "X-A2A-Extensions": f"{COST}, urn:x"},
        verify=NO_TLS,
    )
    assert (response.status_code, response.headers["a2a-extensions"]) == (status, COST), response.text


def test_a_failed_run_says_what_it_cost_and_nothing_of_effects(talk: Talk) -> None:
    task = talk.send("usage fail")
    assert plain_state(task) == "failed"
    assert set(_uris(task)) == {COST}
